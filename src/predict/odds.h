#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fairway/status.h"

// What hashing costs: queue pairs over the legs of a bond, flows over the uplinks of a fabric. With the chance that
// the trials draw from.
namespace fairway::predict {

// Repeatable random numbers for simulations: SplitMix64 (Steele, Lea, Flood, OOPSLA 2014). A value; not for secrets.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  // Uniform in [0, bound); bound > 0. The bias of 2^-32 x bound does not matter here.
  std::uint32_t below(std::uint32_t bound) { return static_cast<std::uint32_t>(((next() >> 32U) * bound) >> 32U); }

 private:
  std::uint64_t state_;
};

inline constexpr std::uint32_t kMaxLegs = 64;
inline constexpr std::uint32_t kMaxQps = 1024;
inline constexpr std::uint32_t kMaxFabricHosts = 4096;  // a trial of so many takes a tenth of a second and more

// The expected share of a bond of `legs` legs that `qps` queue pairs of equal load reach, if they are hashed to legs
// uniformly and the heaviest leg finishes last: E[qps / (legs x heaviest)]. Exact. On two legs 1, 2, 4, 8, 16 queue
// pairs reach 0.5, 0.75, 0.771, 0.814, 0.849. Arguments are clamped to the limits above.
double hashed_share(std::uint32_t qps, std::uint32_t legs);
// The same if queue pairs take the legs in turn.
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
  std::uint32_t flows_per_host = 1;  // flows that one host's traffic is split into
};

// The share of its line rate that a host reaches while each host sends to one host of another leaf.
struct FabricOdds {
  double mean = 0;
  double worst = 0;  // of all hosts in all trials
  double p5 = 0;
  double p50 = 0;
  double p95 = 0;
  double slowest_mean = 0;  // mean over trials of the slowest host, which a collective waits for
  double balanced = 0;      // every flow spread evenly: round-robin or packet spraying
  std::uint32_t trials = 0;
};

Status validate(const TwoTier& fabric);
// Simulated with max-min sharing; the same seed gives the same result. Makes fewer trials if trials x hosts exceeds
// four million; the result has their number.
Result<FabricOdds> fabric_odds(const TwoTier& fabric, std::uint32_t trials, std::uint64_t seed);

// {"hosts": 32, "hosts_per_leaf": 8, "spines": 4, "links_per_spine": 2, "host_gbps": 400, "uplink_gbps": 400,
//  "flows_per_host": 4}. `name` stands for the file in messages.
Result<TwoTier> read_two_tier(const std::string& text, const std::string& name);

}  // namespace fairway::predict
