#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace fairway::topology {

// Where a fact was first read. Snapshots keep it.
enum class Source : std::uint8_t {
  none,         // the fact is unknown
  hwloc,        // the hwloc library on this machine
  sysfs,        // /sys, of this machine or captured
  procfs,       // /proc, of this machine or captured
  nvml,         // NVIDIA's management library
  verbs,        // libibverbs' device query
  netlink,      // ethtool or rtnetlink
  hwloc_xml,    // an hwloc XML file
  nccl_xml,     // an NCCL topology file
  rccl_xml,     // an RCCL topology file
  topo_matrix,  // `nvidia-smi topo -m`
  lspci,        // pasted command outputs, each by the command's name
  ibv_devinfo,
  ibdev2netdev,
  ip_link,
  ip_addr,
  bonding,       // a pasted /proc/net/bonding file
  hand_written,  // written by hand, from the document that the machine's notes name
  catalogue,     // the table of generations: the rate by specification
  derived,       // concluded from other facts; a note says how
};

std::string_view to_string(Source source);
std::optional<Source> source_from(std::string_view text);

// One fact about the machine: a value and its source, or unknown. Never a guess.
template <class T>
struct Fact {
  std::optional<T> value;
  Source source = Source::none;

  Fact() = default;
  Fact(T v, Source s) : value(std::move(v)), source(s) {}

  [[nodiscard]] bool known() const { return value.has_value(); }
  explicit operator bool() const { return known(); }
  const T& operator*() const { return *value; }
  const T* operator->() const { return &*value; }
  [[nodiscard]] T value_or(T other) const { return value.value_or(std::move(other)); }

  void set(T v, Source s) {
    value = std::move(v);
    source = s;
  }
  // Sets v if the fact is unknown. False if another value is known: that one stays, and the caller notes
  // the conflict.
  bool learn(T v, Source s) {
    if (known()) return *value == v;
    set(std::move(v), s);
    return true;
  }
  void forget() { *this = {}; }

  friend bool operator==(const Fact&, const Fact&) = default;
};

// A sentence about how the machine was read, for people.
enum class NoteKind : std::uint8_t {
  unreadable,  // could not be read, with the system's reason
  unknown,     // the source cannot say this
  conflict,    // two sources disagree; the text says which one was kept
  inferred,    // concluded, and from what
  lost,        // an export could not carry this
  left_out,    // an input has more of this than is read
  remark,      // anything else worth knowing
};

std::string_view to_string(NoteKind kind);
std::optional<NoteKind> note_kind_from(std::string_view text);

struct Note {
  NoteKind kind = NoteKind::remark;
  std::string subject;  // a device, a file, a field: "0000:2c:00.0", "GPU3", "lspci.txt:4"; empty for the machine
  std::string text;     // one sentence

  friend bool operator==(const Note&, const Note&) = default;
};

}  // namespace fairway::topology
