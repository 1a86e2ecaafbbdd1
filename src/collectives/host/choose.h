#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fairway/collectives.h"

#include "collectives/clock.h"
#include "collectives/host/lanes.h"
#include "collectives/host/wire.h"

// Which algorithm an operation takes. Pure, so that every rank comes to the same answer without asking.
namespace fairway::collectives {

// What moving costs, in nanoseconds. Constants, not measurements: every rank must have the same.
struct Costs {
  double round = 0;    // from a rank's message to the other rank's next step
  double message = 0;  // a rank's time for a message, sent and received
  double byte = 0;     // moved: into the message, to the peer, out of it
  double combine = 0;  // a byte combined
  // Into one rank no more long messages come at once than from so many others: with more ranks, rings.
  int most_flows = 16;
  std::uint64_t long_block = 64U << 10;  // bytes: longer ones are long messages
};
inline constexpr Costs kSameHost{900, 900, 0.28, 0.08};
// The same, and every rank has mapped every other's memory. A byte combined costs what a byte copied out does.
inline constexpr Costs kMapped{400, 120, 0.12, 0.006};
inline constexpr Costs kNetwork{20000, 4000, 0.9, 0.08, 4};

// The longest message among so many ranks of a host that have mapped each other's memory. All their slots together stay
// in the caches, or what is stored there has left them before it is read.
[[nodiscard]] std::uint32_t mapped_piece(int ranks);

// Ranks in groups that are nearer to each other than to the rest: those of a host. No groups: all alike.
struct Near {
  int groups = 0, least = 1, most = 1;  // ranks of a group
  std::uint64_t piece = 1;              // longest message within one
  Costs costs = kMapped;                // within one
};

// The algorithms of a kind for ranks that are all alike, never `automatic`; `ordered`: those that combine in the order
// of ranks.
[[nodiscard]] std::span<const Algorithm> algorithms_of(CollectiveKind kind, bool ordered = false);
// Whether a call may name it: one of those, or `hierarchical`.
[[nodiscard]] bool has_algorithm(CollectiveKind kind, Algorithm algorithm, bool ordered);

// Expected nanoseconds. `bytes`: count times the element, as in Collective; `piece`: the longest message.
[[nodiscard]] double cost_of(CollectiveKind kind, Algorithm algorithm, int size, std::uint64_t bytes,
                             std::uint64_t piece, const Costs& costs);
// Of all_reduce by `hierarchical`; `costs` and `piece`: between groups.
[[nodiscard]] double cost_in_levels(const Near& near, std::uint64_t bytes, std::uint64_t piece, const Costs& costs);
// The cheapest; of those within a thousandth of each other the first of algorithms_of(). `hierarchical` only with
// groups.
[[nodiscard]] Algorithm choose(CollectiveKind kind, int size, std::uint64_t bytes, std::uint64_t piece,
                               const Costs& costs, bool ordered = false, const Near& near = {});

// Whether ranks reach each other through memory. `explain` would tell it too, but looks at the whole machine first.

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
