#pragma once

#include <string>
#include <vector>

#include "collectives/clock.h"
#include "collectives/lanes.h"
#include "collectives/wire.h"

// Whether ranks reach each other through memory. `explain` would tell it too, but looks at the whole machine first.
namespace fairway::collectives {

// Fills in what a rank tells of the host that it is on.
void tell_host(Engine& engine, Words& words);
// "0-2,7" as the kernel writes lists of CPUs and nodes.
[[nodiscard]] std::vector<int> numbers_of(const std::string& list);
// The NUMA node that all of these CPUs are of, by the folder in which the kernel tells nodes; -1: of several, or
// unknown.
[[nodiscard]] int node_of_cpus(const std::string& cpus, const std::string& nodes);
// Whether two ranks share a host and have a transport for it.
[[nodiscard]] bool share_host(const Words& one, const Words& other);
// Whether each rank of this rank's host can have a core of its own.
[[nodiscard]] bool has_core(int rank, const std::vector<Words>& words);
// Whether this rank has a link through memory to every other. `words`: of all ranks. It waits a moment for links that
// are being set up.
[[nodiscard]] bool all_near(Lanes& lanes, const std::vector<Words>& words);
// Whether an engine registers memory without asking a device, so that it pays for one operation.
[[nodiscard]] bool registers_cheaply(const Engine& engine);

}  // namespace fairway::collectives
