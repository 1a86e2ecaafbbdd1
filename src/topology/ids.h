#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fairway::topology {

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

}  // namespace fairway::topology
