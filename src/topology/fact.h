#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace fairway::topology {

// Who said it. A snapshot keeps these, so a loaded machine still says where each of its facts was first read.
enum class Source : std::uint8_t {
  none,         // nobody: the fact is unknown
  hwloc,        // the hwloc library on the living machine
  sysfs,        // /sys, living or captured
  procfs,       // /proc, living or captured
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
  hand_written,  // a person wrote it, from the document that the machine's notes name
  catalogue,     // the table of generations: what such a link has by its specification
  derived,       // concluded from other facts; a note says how
};

std::string_view to_string(Source source);
std::optional<Source> source_from(std::string_view text);

// One fact about the machine: a value and who said it, or unknown. Never a guess in place of an unknown.
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
  // Takes v when nothing was known. False when something else was known already: it is kept, and the caller lists
  // the conflict.
  bool learn(T v, Source s) {
    if (known()) return *value == v;
    set(std::move(v), s);
    return true;
  }
  void forget() { *this = {}; }

  friend bool operator==(const Fact&, const Fact&) = default;
};

// A sentence about the reading as a whole, for people.
enum class NoteKind : std::uint8_t {
  unreadable,  // could not be read, with the system's reason
  unknown,     // the source cannot say this
  conflict,    // two sources disagree; the text says which one was kept
  inferred,    // concluded, and from what
  lost,        // an export could not carry this
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
