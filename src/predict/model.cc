#include "predict/model.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "predict/max_min.h"

namespace fairway::predict {
namespace {

double figure(const Term& term, const Constants& constants, Level level) {
  const double factor = term.factor.at(level);
  return std::isfinite(factor) ? constants[term.constant].at(level) * factor : kUnbounded;
}

Demand demand_of(const Plan& plan, const Constants& constants, Level level) {
  Demand demand;
  for (const auto& term : plan.terms) {
    const double value = figure(term, constants, level);
    if (!std::isfinite(value) || value <= 0) continue;
    if (term.resource == Term::kNone) {
      demand.ceiling = std::min(demand.ceiling, value);
    } else {
      demand.uses.push_back({term.resource, 1 / value});
    }
  }
  return demand;
}

}  // namespace

Model::Model(topology::Machine machine, Constants constants, Assumptions assumptions)
    : planner_(std::move(machine), constants, std::move(assumptions)) {}

std::vector<double> Model::capacities(Level level) const {
  std::vector<double> out;
  out.reserve(planner_.resources().size());
  for (const auto& resource : planner_.resources()) out.push_back(resource.gbs.at(level));
  return out;
}

// The smallest of its ceilings and of the share of each resource; a resource that it crosses twice gives half. The
// result of max_min for one flow, without visiting every resource.
Share Model::alone(const Plan& plan, const Constants& constants, Level level) const {
  const auto demand = demand_of(plan, constants, level);
  Share share{demand.ceiling, Share::kCeiling};
  for (const auto& use : demand.uses) {
    double weight = 0;
    for (const auto& other : demand.uses) weight += other.resource == use.resource ? other.weight : 0;
    const double rate = planner_.resources()[use.resource].gbs.at(level) / weight;
    if (rate < share.rate || (rate == share.rate && use.resource < share.limited_by && std::isfinite(rate) &&
                              share.limited_by != Share::kCeiling)) {
      share = {rate, use.resource};
    }
  }
  return share;
}

double Model::expected_gbs(const Plan& plan, const Constants& constants) const {
  return alone(plan, constants, Level::expected).rate;
}

std::vector<Prediction> Model::evaluate(std::span<const Plan> plans) const {
  if (plans.size() == 1) {
    Range gbs;
    for (const auto level : kLevels) gbs.set(level, alone(plans[0], planner_.constants(), level).rate);
    return {explain(plans[0], gbs, alone(plans[0], planner_.constants(), Level::expected).limited_by, 1)};
  }
  std::vector<Range> rates(plans.size());
  std::vector<std::uint32_t> limits(plans.size(), Share::kCeiling);
  // How many flows cross each resource, to say that a bottleneck is shared.
  std::vector<std::uint32_t> company(planner_.resources().size(), 0);
  for (const auto level : kLevels) {
    std::vector<Demand> demands;
    demands.reserve(plans.size());
    for (const auto& plan : plans) demands.push_back(demand_of(plan, planner_.constants(), level));
    const auto shares = max_min(capacities(level), demands);
    for (std::size_t i = 0; i < plans.size(); ++i) {
      rates[i].set(level, shares[i].rate);
      if (level == Level::expected) limits[i] = shares[i].limited_by;
    }
    if (level != Level::expected) continue;
    for (const auto& demand : demands) {
      for (std::size_t u = 0; u < demand.uses.size(); ++u) {
        bool counted = false;
        for (std::size_t v = 0; v < u; ++v) counted = counted || demand.uses[v].resource == demand.uses[u].resource;
        company[demand.uses[u].resource] += counted ? 0 : 1;
      }
    }
  }
  std::vector<Prediction> out;
  out.reserve(plans.size());
  for (std::size_t i = 0; i < plans.size(); ++i) {
    // With sharing a flow's expected rate can fall below its low one: keep low <= expected <= high.
    auto& r = rates[i];
    r.low = std::min(r.low, r.expected);
    r.high = std::max(r.high, r.expected);
    const auto flows = limits[i] == Share::kCeiling ? 1U : company[limits[i]];
    out.push_back(explain(plans[i], r, limits[i], flows));
  }
  return out;
}

Prediction Model::explain(const Plan& plan, const Range& gbs, std::uint32_t limited_by, std::size_t company) const {
  Prediction prediction;
  prediction.path = plan.path;
  prediction.latency_us = plan.latency_us;
  prediction.notes = plan.notes;
  prediction.known = std::isfinite(gbs.expected);
  if (!prediction.known) {
    prediction.sentence = "unknown: nothing on the way has a known rate";
    return prediction;
  }
  prediction.gbs = gbs;
  const auto& constants = planner_.constants();
  const Term* binding = nullptr;
  for (const auto& term : plan.terms) {
    const bool candidate = limited_by == Share::kCeiling ? term.resource == Term::kNone : term.resource == limited_by;
    if (!candidate) continue;
    if (binding == nullptr || figure(term, constants, Level::expected) < figure(*binding, constants, Level::expected)) {
      binding = &term;
    }
  }
  if (binding == nullptr) return prediction;
  prediction.constant = binding->constant;
  std::string why;
  if (limited_by == Share::kCeiling) {
    prediction.bottleneck = std::string(binding->what);
    why = fmt::format("{:.3g} GB/s for one flow", figure(*binding, constants, Level::expected));
  } else {
    const auto& resource = planner_.resources()[limited_by];
    prediction.bottleneck = planner_.describe(resource);
    why = fmt::format("{:.4g} GB/s x {:.3g}", resource.gbs.expected, figure(*binding, constants, Level::expected));
    if (company > 1) why += fmt::format(", shared by {} flows", company);
  }
  // With an unbounded factor the expected rate is the highest that is known.
  if (!std::isfinite(prediction.gbs.high)) prediction.gbs.high = prediction.gbs.expected;
  prediction.sentence = fmt::format(
      "{:.1f} GB/s expected ({:.1f} to {:.1f}), {} Gb/s; bound by {}: {}", prediction.gbs.expected, prediction.gbs.low,
      prediction.gbs.high, static_cast<int>(std::lround(prediction.gbs.expected * 8)), prediction.bottleneck, why);
  return prediction;
}

Result<Prediction> Model::predict(const Flow& flow) const {
  auto resolved = resolve(flow);
  if (!resolved) return resolved.status();
  auto plan = planner_.plan(*resolved);
  if (!plan) return plan.status();
  return evaluate({&*plan, 1}).front();
}

Result<std::vector<Prediction>> Model::predict(std::span<const Flow> flows) const {
  std::vector<Plan> plans;
  plans.reserve(flows.size());
  for (const auto& flow : flows) {
    auto resolved = resolve(flow);
    if (!resolved) return resolved.status();
    auto plan = planner_.plan(*resolved);
    if (!plan) return plan.status();
    plans.push_back(std::move(*plan));
  }
  return evaluate(plans);
}

Range seconds_for(const Prediction& prediction, double size_bytes) {
  if (!prediction.known || !(prediction.gbs.low > 0)) return {};
  return {prediction.latency_us.low * 1e-6 + size_bytes / (prediction.gbs.high * 1e9),
          prediction.latency_us.expected * 1e-6 + size_bytes / (prediction.gbs.expected * 1e9),
          prediction.latency_us.high * 1e-6 + size_bytes / (prediction.gbs.low * 1e9)};
}

}  // namespace fairway::predict
