#pragma once

#include "fairway/status.h"

#include "topology/machine.h"

// The parts of discovery that ask libraries instead of files. Each says in its Status why it could not, and leaves the
// machine as it was then; none needs root.
namespace fairway::topology {

// Packages, NUMA nodes and the PCI tree by hwloc. Unsupported where this build has no hwloc.
Status read_hwloc(Machine& machine);
// GPUs, NVLinks, peers and the driver's version by NVML, opened at run time. Needs a completed machine.
Status read_nvml(Machine& machine);
// Limits of RDMA devices and MTUs of their ports by libibverbs, opened at run time.
Status read_verbs(Machine& machine);

}  // namespace fairway::topology
