#pragma once

#include <span>
#include <string_view>

#include "server.h"

namespace fairway::doctor::testing {

// A machine that a rule must find something in, and one as near to it as can be in which it must not.
struct Pair {
  std::string_view rule;
  Server (*trigger)();
  Server (*near_miss)();
};
std::span<const Pair> machine_pairs();   // placement, PCIe, IOMMU, virtual machines, ports, bonds
std::span<const Pair> software_pairs();  // software of the host, measurements, files
std::span<const Pair> job_pairs();       // jobs' settings, logs, networks, NVLink fabrics

}  // namespace fairway::doctor::testing
