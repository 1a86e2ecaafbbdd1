#include "predict/odds.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "predict/max_min.h"

namespace fairway::predict {

double heaviest_at_most(std::uint32_t qps, std::uint32_t legs, std::uint32_t most) {
  qps = std::clamp(qps, 1U, kMaxQps);
  legs = std::clamp(legs, 1U, kMaxLegs);
  if (most >= qps) return 1;
  if (static_cast<std::uint64_t>(most) * legs < qps) return 0;
  // left[n]: the probability that n queue pairs on the legs so far put at most `most` on each. The k-th leg takes i of
  // n with the binomial probability of (n, 1/k). All terms are positive, so nothing cancels.
  std::vector<double> log_factorial(qps + 1, 0.0);
  for (std::uint32_t n = 2; n <= qps; ++n) log_factorial[n] = log_factorial[n - 1] + std::log(n);
  std::vector<double> left(qps + 1, 0.0);
  for (std::uint32_t n = 0; n <= std::min(most, qps); ++n) left[n] = 1;
  for (std::uint32_t k = 2; k <= legs; ++k) {
    const double log_in = -std::log(k);
    const double log_out = std::log1p(-1.0 / k);
    std::vector<double> next(qps + 1, 0.0);
    for (std::uint32_t n = k == legs ? qps : 0; n <= qps; ++n) {
      double sum = 0;
      for (std::uint32_t i = 0; i <= std::min(most, n); ++i) {
        if (left[n - i] <= 0) continue;
        sum += left[n - i] *
               std::exp(log_factorial[n] - log_factorial[i] - log_factorial[n - i] + i * log_in + (n - i) * log_out);
      }
      next[n] = sum;
    }
    left = std::move(next);
  }
  return std::min(1.0, left[qps]);
}

double hashed_share(std::uint32_t qps, std::uint32_t legs) {
  qps = std::clamp(qps, 1U, kMaxQps);
  legs = std::clamp(legs, 1U, kMaxLegs);
  if (legs == 1) return 1;
  double expected = 0;
  double below = 0;
  for (std::uint32_t most = (qps + legs - 1) / legs; most <= qps && below < 1 - 1e-12; ++most) {
    const double at_most = heaviest_at_most(qps, legs, most);
    expected += (at_most - below) * qps / (static_cast<double>(legs) * most);
    below = at_most;
  }
  return expected;
}

double round_robin_share(std::uint32_t qps, std::uint32_t legs) {
  qps = std::clamp(qps, 1U, kMaxQps);
  legs = std::clamp(legs, 1U, kMaxLegs);
  const auto heaviest = (qps + legs - 1) / legs;
  return static_cast<double>(qps) / (static_cast<double>(legs) * heaviest);
}

Status validate(const TwoTier& fabric) {
  const auto bad = [](std::string_view field, std::string_view rule) {
    return Status(ErrorCode::invalid_argument, fmt::format("{} {}", field, rule));
  };
  if (fabric.hosts < 2 || fabric.hosts > kMaxFabricHosts) {
    return bad("hosts", fmt::format("is not between 2 and {}: of a larger fabric give as many of its leaves as that "
                                    "allows, with the same hosts_per_leaf and spines",
                                    kMaxFabricHosts));
  }
  if (fabric.hosts_per_leaf == 0 || fabric.hosts_per_leaf >= fabric.hosts) {
    return bad("hosts_per_leaf", "is not between 1 and hosts - 1: with one leaf nothing crosses a spine");
  }
  if (fabric.spines == 0 || fabric.spines > 256) return bad("spines", "is not between 1 and 256");
  if (fabric.links_per_spine == 0 || fabric.links_per_spine > 64) {
    return bad("links_per_spine", "is not between 1 and 64");
  }
  if (!(fabric.host_gbps > 0) || fabric.host_gbps > 1e5) return bad("host_gbps", "is not a rate in Gb/s");
  if (!(fabric.uplink_gbps > 0) || fabric.uplink_gbps > 1e5) return bad("uplink_gbps", "is not a rate in Gb/s");
  if (fabric.flows_per_host == 0 || fabric.flows_per_host > 256)
    return bad("flows_per_host", "is not between 1 and 256");
  return {};
}

namespace {

// A random target for each host on another leaf, so that all traffic crosses the spines.
std::vector<std::uint32_t> pick_targets(const TwoTier& fabric, Random& random) {
  std::vector<std::uint32_t> targets(fabric.hosts);
  std::iota(targets.begin(), targets.end(), 0U);
  for (std::uint32_t i = fabric.hosts - 1; i > 0; --i) std::swap(targets[i], targets[random.below(i + 1)]);
  // A host that drew its own leaf swaps with one whose swap is valid for both.
  const auto leaf = [&fabric](std::uint32_t host) { return host / fabric.hosts_per_leaf; };
  for (std::uint32_t i = 0; i < fabric.hosts; ++i) {
    if (leaf(i) != leaf(targets[i])) continue;
    const auto start = random.below(fabric.hosts);
    for (std::uint32_t k = 0; k < fabric.hosts; ++k) {
      const auto j = (start + k) % fabric.hosts;
      if (leaf(j) != leaf(targets[i]) && leaf(i) != leaf(targets[j])) {
        std::swap(targets[i], targets[j]);
        break;
      }
    }
  }
  return targets;
}

// One trial: each host's share of its line rate.
std::vector<double> one_trial(const TwoTier& fabric, Random& random) {
  const auto leaves = (fabric.hosts + fabric.hosts_per_leaf - 1) / fabric.hosts_per_leaf;
  const auto per_leaf = fabric.spines * fabric.links_per_spine;
  const auto up = [&](std::uint32_t leaf, std::uint32_t link) { return leaf * per_leaf + link; };
  const auto down = [&](std::uint32_t leaf, std::uint32_t link) { return (leaves + leaf) * per_leaf + link; };
  const auto port = [&](std::uint32_t host, bool in) { return 2 * leaves * per_leaf + 2 * host + (in ? 1 : 0); };
  std::vector<double> capacities(2 * leaves * per_leaf, fabric.uplink_gbps);
  capacities.resize(capacities.size() + 2 * fabric.hosts, fabric.host_gbps);
  const auto targets = pick_targets(fabric, random);
  std::vector<Demand> demands;
  demands.reserve(static_cast<std::size_t>(fabric.hosts) * fabric.flows_per_host);
  for (std::uint32_t host = 0; host < fabric.hosts; ++host) {
    for (std::uint32_t flow = 0; flow < fabric.flows_per_host; ++flow) {
      const auto spine = random.below(fabric.spines);
      const auto there = spine * fabric.links_per_spine + random.below(fabric.links_per_spine);
      const auto back = spine * fabric.links_per_spine + random.below(fabric.links_per_spine);
      auto& demand = demands.emplace_back();
      demand.uses = {{port(host, false), 1},
                     {up(host / fabric.hosts_per_leaf, there), 1},
                     {down(targets[host] / fabric.hosts_per_leaf, back), 1},
                     {port(targets[host], true), 1}};
    }
  }
  const auto rates = max_min(capacities, demands);
  // A host's flows carry equal parts of its message: the slowest decides.
  std::vector<double> shares(fabric.hosts);
  for (std::uint32_t host = 0; host < fabric.hosts; ++host) {
    double slowest = fabric.host_gbps;
    for (std::uint32_t flow = 0; flow < fabric.flows_per_host; ++flow) {
      slowest = std::min(slowest, rates[host * fabric.flows_per_host + flow].rate);
    }
    shares[host] = slowest * fabric.flows_per_host / fabric.host_gbps;
  }
  return shares;
}

}  // namespace

Result<FabricOdds> fabric_odds(const TwoTier& fabric, std::uint32_t trials, std::uint64_t seed) {
  if (auto status = validate(fabric); !status) return status;
  trials = std::clamp(trials, 1U, 4'000'000U / fabric.hosts);
  Random random(seed);
  FabricOdds odds;
  odds.trials = trials;
  std::vector<double> all;
  all.reserve(static_cast<std::size_t>(trials) * fabric.hosts);
  for (std::uint32_t trial = 0; trial < trials; ++trial) {
    const auto shares = one_trial(fabric, random);
    odds.slowest_mean += *std::ranges::min_element(shares) / trials;
    all.insert(all.end(), shares.begin(), shares.end());
  }
  std::ranges::sort(all);
  const auto quantile = [&all](double q) {
    return all[static_cast<std::size_t>(q * static_cast<double>(all.size() - 1))];
  };
  odds.mean = std::accumulate(all.begin(), all.end(), 0.0) / static_cast<double>(all.size());
  odds.worst = all.front();
  odds.p5 = quantile(0.05);
  odds.p50 = quantile(0.5);
  odds.p95 = quantile(0.95);
  const double leaf_up = fabric.uplink_gbps * fabric.spines * fabric.links_per_spine;
  const double leaf_hosts = fabric.host_gbps * std::min(fabric.hosts_per_leaf, fabric.hosts);
  odds.balanced = std::min(1.0, leaf_up / leaf_hosts);
  return odds;
}

}  // namespace fairway::predict
