#pragma once

#include <string>

#include "fairway/status.h"

#include "topology/machine.h"

namespace fairway::topology {

struct DiscoverOptions {
  // Where /sys, /proc and /etc are. "/" reads the living machine, with hwloc, the GPU driver and libibverbs where there
  // are any; another directory is a captured tree, read as files only.
  std::string root = "/";
  bool use_hwloc = true;         // off: read the tree from sysfs instead
  bool use_gpu_driver = true;    // off: what sysfs says of GPUs
  bool use_verbs = true;         // off: what sysfs says of RDMA devices, without their limits
  bool keep_identities = false;  // serials, GUIDs, MACs, addresses, host name
};

// Reads this machine, without root. What could not be read is in the notes; fails only where the root is no directory
// or holds more than kMaxPciDevices. Blocking file reads, some tens of milliseconds; any thread.
Result<Machine> discover(const DiscoverOptions& options = {});

// The parts of discovery that ask libraries instead of files. Each says in its Status why it could not, and leaves the
// machine as it was then; none needs root.

// Packages, NUMA nodes and the PCI tree by hwloc. Unsupported where this build has no hwloc.
Status read_hwloc(Machine& machine);
// GPUs, NVLinks, peers and the driver's version by NVML, opened at run time. Needs a completed machine.
Status read_nvml(Machine& machine);
// Limits of RDMA devices and MTUs of their ports by libibverbs, opened at run time.
Status read_verbs(Machine& machine);

}  // namespace fairway::topology
