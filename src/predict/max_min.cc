#include "predict/max_min.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace fairway::predict {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The load of one resource while rates rise.
struct Filling {
  double capacity = kInfinity;
  double frozen = 0;  // spent by flows that stopped
  double slope = 0;   // spent per unit of the common rate by those that rise
  // Uses of the flows that rise. It and not the slope tells when none is left: what rounding leaves of a slope is not
  // 0.
  std::size_t rising = 0;
  std::vector<std::uint32_t> flows;

  // The common rate at which it is full.
  [[nodiscard]] double full_at() const { return slope <= 0 ? kInfinity : std::max(0.0, capacity - frozen) / slope; }
};

}  // namespace

std::vector<Share> max_min(std::span<const double> capacities, std::span<const Demand> demands) {
  std::vector<Filling> resources(capacities.size());
  for (std::size_t r = 0; r < capacities.size(); ++r) resources[r].capacity = capacities[r];
  for (std::size_t f = 0; f < demands.size(); ++f) {
    for (const auto& use : demands[f].uses) {
      if (use.resource >= resources.size() || !(use.weight > 0)) continue;
      resources[use.resource].slope += use.weight;
      ++resources[use.resource].rising;
      resources[use.resource].flows.push_back(static_cast<std::uint32_t>(f));
    }
  }
  // Skip resources without flows or without a limit.
  std::vector<std::uint32_t> live;
  for (std::size_t r = 0; r < resources.size(); ++r) {
    if (resources[r].slope > 0 && std::isfinite(resources[r].capacity)) live.push_back(static_cast<std::uint32_t>(r));
  }
  std::vector<std::uint32_t> by_ceiling(demands.size());
  std::iota(by_ceiling.begin(), by_ceiling.end(), 0U);
  std::ranges::sort(by_ceiling, [&demands](auto a, auto b) { return demands[a].ceiling < demands[b].ceiling; });

  std::vector<Share> shares(demands.size());
  std::vector<bool> stopped(demands.size(), false);
  const auto stop = [&](std::uint32_t f, double rate, std::uint32_t by) {
    stopped[f] = true;
    shares[f] = {rate, by};
    for (const auto& use : demands[f].uses) {
      if (use.resource >= resources.size() || !(use.weight > 0)) continue;
      auto& resource = resources[use.resource];
      resource.frozen += use.weight * rate;
      resource.slope = --resource.rising == 0 ? 0 : resource.slope - use.weight;
    }
  };

  std::size_t next = 0;  // into by_ceiling
  while (true) {
    while (next < by_ceiling.size() && stopped[by_ceiling[next]]) ++next;
    if (next == by_ceiling.size()) return shares;
    double level = kInfinity;
    std::uint32_t fullest = Share::kCeiling;
    for (std::size_t i = 0; i < live.size();) {
      const auto& resource = resources[live[i]];
      if (resource.rising == 0) {
        live[i] = live.back();
        live.pop_back();
        continue;
      }
      // Of equals the lower number, so that the result does not depend on the order of this list.
      const double at = resource.full_at();
      if (at < level || (at == level && live[i] < fullest)) {
        level = at;
        fullest = live[i];
      }
      ++i;
    }
    if (demands[by_ceiling[next]].ceiling <= level) {
      const auto f = by_ceiling[next];
      stop(f, demands[f].ceiling, Share::kCeiling);
    } else if (fullest == Share::kCeiling) {
      for (const auto f : by_ceiling) {
        if (!stopped[f]) stop(f, kInfinity, Share::kCeiling);
      }
    } else {
      for (const auto f : resources[fullest].flows) {
        if (!stopped[f]) stop(f, level, fullest);
      }
    }
  }
}

}  // namespace fairway::predict
