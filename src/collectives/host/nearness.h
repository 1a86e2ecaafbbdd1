#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "collectives/clock.h"
#include "collectives/host/lanes.h"
#include "collectives/host/wire.h"

// Whether ranks reach each other through memory. `explain` would tell it too, but looks at the whole machine first.
namespace fairway::collectives {

// Which host an engine is on, where a simulation or a test says so; null: as the kernel tells.
inline std::atomic<std::uint64_t (*)(const Engine& engine)> other_host{nullptr};
// Fills in what a rank tells of the host that it is on.
void tell_host(Engine& engine, Words& words);
// "0-2,7" as the kernel writes lists of CPUs and nodes.
[[nodiscard]] std::vector<int> numbers_of(const std::string& list);
// The NUMA node that all of these CPUs are of, by the folder in which the kernel tells nodes; -1: of several, or
// unknown.
[[nodiscard]] int node_of_cpus(const std::string& cpus, const std::string& nodes);
// Whether two ranks share a host and have a transport for it.
[[nodiscard]] bool share_host(const Words& one, const Words& other);
// Whether each of the ranks that are held to this rank's CPUs can have one of its own. Launchers hold ranks to the same
// CPUs, or to others: sets that only overlap count as others.
[[nodiscard]] bool has_core(int rank, const std::vector<Words>& words);
// The others that a rank shares a host with. `words`: of all ranks.
[[nodiscard]] std::vector<int> neighbours_of(int rank, const std::vector<Words>& words);
// Whether all ranks of a host share it, so that they are the same group to each of them.
[[nodiscard]] bool are_apart(const std::vector<Words>& words);
// Whether this rank has a link through memory to each of those. It waits a moment for links that are being set up.
[[nodiscard]] bool all_near(Lanes& lanes, const std::vector<int>& peers);
// Whether an engine registers memory without asking a device, so that it pays for one operation.
[[nodiscard]] bool registers_cheaply(const Engine& engine);

}  // namespace fairway::collectives
