#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "predict/flow.h"
#include "predict/range.h"
#include "topology/machine.h"

// What each link of a machine can carry, raw, with what is assumed where the machine does not say.
namespace fairway::predict {

inline constexpr double kUnbounded = std::numeric_limits<double>::infinity();

// A capacity in one direction, GB/s raw; unbounded where nothing is known to bind.
struct Capacity {
  Range gbs = Range::exactly(kUnbounded);
  std::string assumed;  // why, where it is no fact of the machine; else empty
};

// The PCIe link of a GPU or NIC whose own facts do not say it: by its model's generation, by what its port needs, else
// between Gen3 and Gen5.
Capacity assumed_pcie(const topology::Machine& machine, topology::NodeRef node, const Assumptions& assumptions);
// What one port (one leg of a bond) carries in Gb/s; nothing where neither facts nor model say it.
struct PortRate {
  std::optional<double> gbps;
  std::uint32_t legs = 1;
  std::string assumed;
};
PortRate port_rate(const topology::Machine& machine, std::uint32_t nic, const Assumptions& assumptions);
// Payload's share of the line for packets of `mtu` bytes: headers and gaps of RoCE v2 or InfiniBand.
double payload_share(std::uint32_t mtu, bool infiniband);
struct WireFacts {
  Range payload;  // share
  bool infiniband = false;
  std::uint32_t mtu = 4096;
  bool mtu_assumed = false;
};
WireFacts wire_facts(const topology::Machine& machine, std::uint32_t nic, const Conditions& conditions);

// One link of NVLink as its generation has it, GB/s per direction, by the GPU's model or architecture.
Range nvlink_gbs(const topology::Machine& machine, std::uint32_t gpu);
std::uint32_t nvlink_generation(const topology::Machine& machine, std::uint32_t gpu);  // 0 when unknown
// Before Ampere: such GPUs answer a NIC's reads slowly through a root complex.
bool is_before_ampere(const topology::Gpu& gpu);
bool is_virtual(const topology::Machine& machine, const Assumptions& assumptions);

}  // namespace fairway::predict
