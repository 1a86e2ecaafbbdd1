#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace fairway::predict {

// A flow uses a resource: each unit of its rate takes `weight` units of capacity.
struct Use {
  std::uint32_t resource = 0;
  double weight = 1;
};

struct Demand {
  std::vector<Use> uses;
  double ceiling = std::numeric_limits<double>::infinity();  // of this flow alone
};

struct Share {
  static constexpr std::uint32_t kCeiling = std::numeric_limits<std::uint32_t>::max();
  double rate = 0;
  std::uint32_t limited_by = kCeiling;  // the resource that filled up, or its own ceiling
};

// Max-min fair rates by progressive filling: all rates rise together, a flow stops at its ceiling or when a resource
// it uses is full. An infinite capacity limits nothing; a flow without a limit gets an infinite rate. Time: rounds x
// resources, with at most one round for each resource and distinct ceiling.
std::vector<Share> max_min(std::span<const double> capacities, std::span<const Demand> demands);

}  // namespace fairway::predict
