#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/fact.h"
#include "topology/host.h"
#include "topology/ids.h"

namespace fairway::topology {

// One NVLink of one GPU as its driver reports it.
struct NvLinkPort {
  std::uint32_t index = 0;
  Fact<bool> active;
  Fact<std::uint32_t> version;    // NVLink generation, 1-5
  Fact<std::string> remote_kind;  // "GPU", "NVSwitch", "CPU"
  Fact<BusId> remote;
  friend bool operator==(const NvLinkPort&, const NvLinkPort&) = default;
};

struct Gpu {
  std::uint32_t ordinal = 0;       // the n of "GPUn": in PCI bus order, or as the source numbers them
  Ref<PciDevice> pci;              // none: its bus id is not recorded
  Fact<std::string> vendor;        // "NVIDIA", "AMD"
  Fact<std::string> model;         // "NVIDIA H200"
  Fact<std::string> architecture;  // "sm_90", "gfx942"
  Fact<std::uint64_t> memory_bytes;
  Fact<std::uint64_t> bar1_bytes;  // size of the window through which NICs reach its memory
  Fact<bool> gpudirect_rdma;       // whether NICs can read and write its memory
  Fact<std::uint32_t> numa_node;   // the CPU memory near it, NumaNode::os_index
  Fact<CpuSet> cpus;               // the CPUs near it
  Fact<std::string> uuid;          // identity: scrubbed from snapshots
  Fact<std::string> serial;        // identity: scrubbed from snapshots
  std::vector<NvLinkPort> nvlinks;
  friend bool operator==(const Gpu&, const Gpu&) = default;
};

struct NvSwitch {
  Ref<PciDevice> pci;  // none: it is inferred, or not on this machine's bus
  friend bool operator==(const NvSwitch&, const NvSwitch&) = default;
};

enum class LinkKind : std::uint8_t { nvlink, xgmi, c2c };
std::string_view to_string(LinkKind kind);
std::optional<LinkKind> link_kind_from(std::string_view text);

// `count` parallel links between two ends: GPU-GPU, GPU-NVSwitch (nv_switch) or GPU-CPU (package, numa_node).
// Both directions have the capacity of one: count x gbs_per_link, GB/s.
struct DeviceLink {
  LinkKind kind = LinkKind::nvlink;
  NodeRef a;
  NodeRef b;
  Fact<std::uint32_t> count;       // links in place
  Fact<std::uint32_t> active;      // how many of them are up; unknown if the source has no states
  Fact<std::uint32_t> generation;  // NVLink 1-5
  Fact<double> gbs_per_link;       // GB/s per direction, nominal (25 for NVLink 4)
  friend bool operator==(const DeviceLink&, const DeviceLink&) = default;
};

// Peer access between two GPUs, as the driver reports it.
struct PeerAccess {
  Ref<Gpu> from;
  Ref<Gpu> to;
  Fact<bool> read;
  Fact<bool> write;
  Fact<bool> atomics;
  Fact<std::string> refusal;  // the driver's reason for refusing: "chipset not supported"
  friend bool operator==(const PeerAccess&, const PeerAccess&) = default;
};

}  // namespace fairway::topology
