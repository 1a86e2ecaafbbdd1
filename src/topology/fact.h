#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// What every description of a machine is made of: facts with their sources, notes, references to parts, bus ids, sets
// of CPUs, and the names of enumerations.
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

// The position of a T in its vector of the machine, or none. Valid only within one Machine.
template <class T>
struct Ref {
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  std::uint32_t index = kNone;

  Ref() = default;
  explicit Ref(std::size_t i) : index(static_cast<std::uint32_t>(i)) {}
  [[nodiscard]] bool valid() const { return index != kNone; }
  explicit operator bool() const { return valid(); }
  friend auto operator<=>(const Ref&, const Ref&) = default;
};

// The parts of a machine that edges, verdicts and findings refer to.
enum class NodeKind : std::uint8_t {
  none,
  package,
  numa_node,
  host_bridge,
  pci,  // a PCI device or bridge
  gpu,
  nic,
  rdma,
  interface,  // a network interface of the operating system
  bond,
  nv_switch,
  net_switch,  // of a Fabric
};
std::string_view to_string(NodeKind kind);
std::optional<NodeKind> node_kind_from(std::string_view text);

struct NodeRef {
  NodeKind kind = NodeKind::none;
  std::uint32_t index = 0;  // into the vector of that kind
  friend auto operator<=>(const NodeRef&, const NodeRef&) = default;
};

// domain:bus:device.function, e.g. "0000:2c:00.0". Domains above ffff exist (VMD), so 32 bits.
struct BusId {
  std::uint32_t domain = 0;
  std::uint8_t bus = 0;
  std::uint8_t device = 0;
  std::uint8_t function = 0;

  // Takes "0000:2c:00.0", "2c:00.0" (domain 0) and NVML's "00000000:2C:00.0"; nothing else.
  static std::optional<BusId> parse(std::string_view text);
  [[nodiscard]] std::string to_string() const;  // lower case, domain with at least four digits
  // The same card: all but the function is equal.
  [[nodiscard]] bool same_slot(const BusId& other) const {
    return domain == other.domain && bus == other.bus && device == other.device;
  }
  friend auto operator<=>(const BusId&, const BusId&) = default;
};

// A set of CPU numbers (the operating system's), kept as sorted ranges that neither touch nor overlap.
class CpuSet {
 public:
  static constexpr std::uint32_t kMaxCpu = 65535;  // beyond this an input is refused

  struct Range {
    std::uint32_t first;
    std::uint32_t last;  // inclusive
    friend bool operator==(const Range&, const Range&) = default;
  };

  // "0-47,96-143", as the kernel's cpulist and nvidia-smi print it. Empty text is the empty set.
  static std::optional<CpuSet> parse_list(std::string_view text);
  // "000000ff,ffff0000" (NCCL, sysfs cpumap; 32 bits a word, the last word is CPUs 0-31) and hwloc's
  // "0x0000ffff,,0x1", where an empty word is zero.
  static std::optional<CpuSet> parse_mask(std::string_view text);

  void add(std::uint32_t first, std::uint32_t last);
  [[nodiscard]] bool empty() const { return ranges_.empty(); }
  [[nodiscard]] std::uint32_t count() const;
  [[nodiscard]] bool contains(std::uint32_t cpu) const;
  [[nodiscard]] bool intersects(const CpuSet& other) const;
  [[nodiscard]] bool includes(const CpuSet& other) const;
  [[nodiscard]] const std::vector<Range>& ranges() const { return ranges_; }
  [[nodiscard]] std::string to_list() const;  // "0-47,96-143"
  [[nodiscard]] std::string to_mask() const;  // NCCL's: 8 digits a word, joined by commas, at least one word
  friend bool operator==(const CpuSet&, const CpuSet&) = default;

 private:
  std::vector<Range> ranges_;
};

// An enumeration's values and their names. A value that is not listed prints as the first row.
template <class E, std::size_t N>
using NameTable = std::array<std::pair<E, std::string_view>, N>;

template <class E, std::size_t N>
std::string_view name_of(const NameTable<E, N>& table, E value) {
  for (const auto& [v, name] : table) {
    if (v == value) return name;
  }
  return table.front().second;
}

template <class E, std::size_t N>
std::optional<E> value_of(const NameTable<E, N>& table, std::string_view name) {
  for (const auto& [v, n] : table) {
    if (n == name) return v;
  }
  return {};
}

}  // namespace fairway::topology
