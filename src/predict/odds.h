#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fairway/status.h"

// What hashing costs: queue pairs over the legs of a bond, flows over the uplinks of a fabric.
namespace fairway::predict {

inline constexpr std::uint32_t kMaxLegs = 64;
inline constexpr std::uint32_t kMaxQps = 1024;

// Expected share of a bond of `legs` when `qps` queue pairs of equal load are hashed to legs uniformly and the heaviest
// leg decides when all are done: E[qps / (legs x heaviest)]. Exact, by the distribution of the heaviest. 0.5, 0.75,
// 0.771, 0.814, 0.849 for 1, 2, 4, 8, 16 on two legs. Arguments beyond the limits above are held to them.
double hashed_share(std::uint32_t qps, std::uint32_t legs);
// The same when each leg takes the next in turn.
double round_robin_share(std::uint32_t qps, std::uint32_t legs);
// P(heaviest leg carries at most `most`), exact.
double heaviest_at_most(std::uint32_t qps, std::uint32_t legs, std::uint32_t most);

// Leaf switches with hosts below and one link to each spine (or several: `links_per_spine`).
struct TwoTier {
  std::uint32_t hosts = 0;
  std::uint32_t hosts_per_leaf = 0;
  std::uint32_t spines = 0;
  std::uint32_t links_per_spine = 1;
  double host_gbps = 0;              // Gb/s of a host's port
  double uplink_gbps = 0;            // Gb/s of one link between leaf and spine
  std::uint32_t flows_per_host = 1;  // what one host's traffic is split into before hashing
};

// Shares of a host's line rate that hosts reach when each sends to one host of another leaf, all at once.
struct FabricOdds {
  double mean = 0;
  double worst = 0;  // of all hosts in all trials
  double p5 = 0;
  double p50 = 0;
  double p95 = 0;
  double slowest_mean = 0;  // mean over trials of the slowest host: what a collective waits for
  double balanced = 0;      // every flow spread evenly: round-robin or packet spraying
  std::uint32_t trials = 0;
};

Status validate(const TwoTier& fabric);
// By simulation with max-min sharing; the same seed gives the same answer. Fewer trials are made where trials x hosts
// would exceed four million; the answer says how many.
Result<FabricOdds> fabric_odds(const TwoTier& fabric, std::uint32_t trials, std::uint64_t seed);

// {"hosts": 32, "hosts_per_leaf": 8, "spines": 4, "links_per_spine": 2, "host_gbps": 400, "uplink_gbps": 400,
//  "flows_per_host": 4}. `name` stands for the file in messages.
Result<TwoTier> read_two_tier(const std::string& text, const std::string& name);

}  // namespace fairway::predict
