#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/fact.h"
#include "topology/ids.h"

namespace fairway::topology {

struct PciDevice;
struct HostBridge;

// One CPU socket.
struct Package {
  std::uint32_t os_index = 0;
  Fact<std::string> vendor;  // "GenuineIntel", "AuthenticAMD": CPUID's
  Fact<std::string> model;   // "Intel(R) Xeon(R) Platinum 8480C"
  Fact<std::uint32_t> family;
  Fact<std::uint32_t> model_number;
  Fact<CpuSet> cpus;
  friend bool operator==(const Package&, const Package&) = default;
};

// Memory with the CPUs near it.
struct NumaNode {
  std::uint32_t os_index = 0;
  Ref<Package> package;  // none when unknown
  Fact<CpuSet> cpus;
  Fact<std::uint64_t> memory_bytes;
  Fact<std::vector<std::uint32_t>>
      distances;  // by the firmware, to each node in the order of Machine::numa_nodes; 10 is local
  friend bool operator==(const NumaNode&, const NumaNode&) = default;
};

// Between two sockets: UPI, xGMI. The generation decides the rate; few sources know it.
struct SocketLink {
  Ref<Package> a;
  Ref<Package> b;
  Fact<std::string> kind;     // "UPI", "xGMI"
  Fact<std::uint32_t> links;  // in parallel
  Fact<double> gbs_per_link;  // GB/s, per direction
  friend bool operator==(const SocketLink&, const SocketLink&) = default;
};

// Where a PCI domain's root bus meets the CPU: the level above root ports.
struct HostBridge {
  std::uint32_t domain = 0;
  std::uint8_t bus = 0;           // the root bus
  std::uint8_t last_bus = 0;      // the last bus below it; equal to bus when unknown
  Fact<std::uint32_t> numa_node;  // NumaNode::os_index
  // True if the source always shows one bridge for each NUMA node (NCCL and RCCL files). Two devices that meet here may
  // be PHB or NODE; the format calls both PHB.
  bool folded = false;
  friend bool operator==(const HostBridge&, const HostBridge&) = default;
};

// One end of a PCIe link. Speeds in GT/s per lane (2.5, 5, 8, 16, 32, 64).
struct PcieLink {
  Fact<double> speed_gts;
  Fact<std::uint32_t> width;
  Fact<double> max_speed_gts;  // what the device supports; the slot may support less
  Fact<std::uint32_t> max_width;
  Fact<double> gbs;  // GB/s per direction if the source has only speed x width (hwloc XML); else unknown
  friend bool operator==(const PcieLink&, const PcieLink&) = default;
};

enum class PciKind : std::uint8_t {
  endpoint,
  root_port,
  switch_upstream,
  switch_downstream,
  pci_switch,  // a whole switch as one node: the source shows no ports (NCCL and RCCL files)
  bridge,      // any other PCI bridge
};
std::string_view to_string(PciKind kind);
std::optional<PciKind> pci_kind_from(std::string_view text);

// A PCI function: an endpoint or a bridge. Its `link` is what its registers describe: for endpoints, upstream ports and
// whole switches the link above; for root and downstream ports the link below, which the child describes too.
struct PciDevice {
  BusId bus_id;
  PciKind kind = PciKind::endpoint;
  Ref<PciDevice> parent;           // the bridge above; none: directly below a host bridge, or unknown
  Ref<HostBridge> host_bridge;     // the root of its tree; none: its position is unknown
  Fact<std::uint32_t> class_code;  // 24 bits: 0x030200
  Fact<std::uint32_t> vendor_id;   // 16 bits each
  Fact<std::uint32_t> device_id;
  Fact<std::uint32_t> subsystem_vendor_id;
  Fact<std::uint32_t> subsystem_device_id;
  Fact<std::string> vendor_name;
  Fact<std::string> device_name;
  Fact<std::string> driver;
  Fact<std::string> purpose;  // what its vital product data says it is for: "SW_MNG" manages NVLink
  PcieLink link;
  Fact<std::uint32_t> numa_node;  // NumaNode::os_index; unknown if the firmware says -1
  Fact<CpuSet> local_cpus;
  friend bool operator==(const PciDevice&, const PciDevice&) = default;
};

// Whether a bridge or a hypervisor's device reports one lane at 2.5 GT/s. Emulated ones always do, whatever is behind
// them, so in a virtual machine it is not a rate.
bool claims_least(const PciDevice& device);

// GB/s per direction of `width` lanes at `speed_gts`, after line coding (8b/10b to 5 GT/s, 128b/130b above), before
// packet headers. 16 lanes at 32 GT/s: 63.0.
double pcie_gbs(double speed_gts, std::uint32_t width);
// The link's capacity now, and the most it supports; unknown if speed or width is.
Fact<double> current_gbs(const PcieLink& link);
Fact<double> max_gbs(const PcieLink& link);

}  // namespace fairway::topology
