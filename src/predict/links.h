#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "predict/flow.h"
#include "predict/range.h"
#include "topology/machine.h"

// The raw capacity of each link of a machine, or an assumption if it is not recorded.
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

}  // namespace fairway::predict
