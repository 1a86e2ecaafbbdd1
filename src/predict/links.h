#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "predict/constants.h"
#include "predict/flow.h"
#include "topology/machine.h"

// The raw capacity of each link of a machine, or an assumption if it is not recorded; and the paths of several links.
namespace fairway::predict {

inline constexpr double kUnbounded = std::numeric_limits<double>::infinity();

// A capacity in one direction, GB/s raw; unbounded if unknown.
struct Capacity {
  Range gbs = Range::exactly(kUnbounded);
  std::string assumed;  // the reason, if it is assumed; else empty
};

// The PCIe link of a GPU or NIC, if it is not recorded: by its model's generation, by what its port needs, else between
// Gen3 and Gen5.
Capacity assumed_pcie(const topology::Machine& machine, topology::NodeRef node, const Assumptions& assumptions);
// The rate of one port (one leg of a bond) in Gb/s; none if neither facts nor model tell.
struct PortRate {
  std::optional<double> gbps;
  std::uint32_t legs = 1;
  std::string assumed;
};
PortRate port_rate(const topology::Machine& machine, std::uint32_t nic, const Assumptions& assumptions);
// The share of payload on the wire for packets of `mtu` bytes: the rest are headers and gaps of RoCE v2 or InfiniBand.
double payload_share(std::uint32_t mtu, bool infiniband);
struct WireFacts {
  Range payload;  // share
  bool infiniband = false;
  std::uint32_t mtu = 4096;
  bool mtu_assumed = false;
};
WireFacts wire_facts(const topology::Machine& machine, std::uint32_t nic, const Conditions& conditions);

// The rate of one NVLink by the GPU's model or architecture, GB/s per direction.
Range nvlink_gbs(const topology::Machine& machine, std::uint32_t gpu);
std::uint32_t nvlink_generation(const topology::Machine& machine, std::uint32_t gpu);  // 0 when unknown
// Before Ampere: such GPUs serve a NIC's reads slowly through a root complex.
bool is_before_ampere(const topology::Gpu& gpu);
bool is_virtual(const topology::Machine& machine, const Assumptions& assumptions);

// One edge of a path through the machine's tree; `down`: away from the CPU.
struct Step {
  std::uint32_t edge = 0;  // into Paths::edges()
  bool down = false;
};

// Paths through the PCIe trees, host bridges, NUMA nodes and sockets of a machine, and the links between its devices.
// Immutable after construction.
class Paths {
 public:
  explicit Paths(const topology::Machine& machine);

  [[nodiscard]] const std::vector<topology::Edge>& edges() const { return edges_; }
  // Up from one end to where the two meet, and down to the other; none if either has no place in a tree. Separate trees
  // are joined at their roots. NVLink and similar links are in direct().
  [[nodiscard]] std::optional<std::vector<Step>> tree(topology::NodeRef from, topology::NodeRef to) const;
  // Links between exactly these two; several if the machine lists them separately.
  [[nodiscard]] std::vector<Step> direct(topology::NodeRef from, topology::NodeRef to) const;

 private:
  struct Above {
    topology::NodeRef node;
    std::uint32_t edge = 0;
  };
  [[nodiscard]] std::vector<Above> climb(topology::NodeRef from) const;

  std::vector<topology::Edge> edges_;
  std::map<topology::NodeRef, Above> above_;  // the next node towards the CPU
  std::map<topology::NodeRef, bool> in_tree_;
};

}  // namespace fairway::predict
