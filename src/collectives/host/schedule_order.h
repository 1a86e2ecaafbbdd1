#pragma once

#include <span>
#include <vector>

#include "collectives/host/schedule.h"
#include "collectives/host/wire.h"

// Rings, chains and trees along hosts and NUMA nodes, whatever the order in which the launcher has numbered the ranks.
namespace fairway::collectives {

// Ranks by their places: those of a host beside each other, in it those of a NUMA node, and there by number. Hosts and
// nodes come in the order of their first ranks. Every rank computes the same. Empty: they are numbered so already.
[[nodiscard]] std::vector<int> order_of(const std::vector<Words>& words);

// The group of each rank, from 0 on in the order of their first ranks: those of a host, or, where all are of one host,
// those of a NUMA node. Empty: there is one group, or no two ranks share one.
[[nodiscard]] std::vector<int> groups_of(const std::vector<Words>& words);

// make_schedule() with the ranks in those places, where the collective lets any rank take any: all_reduce, broadcast,
// reduce and barrier that combine in no order of ranks, and all_gather and reduce_scatter by ring.
void make_schedule_along(std::span<const int> order, const Shape& shape, Schedule& out);

}  // namespace fairway::collectives
