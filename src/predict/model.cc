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

namespace {

using topology::NodeKind;
using topology::NodeRef;
using topology::PathKind;

// Finds the routes of one flow, the best of each kind.
class RouteFinder {
 public:
  explicit RouteFinder(const Model& model, const Flow& flow) : model_(model), flow_(flow) {}

  Result<std::vector<Route>> find() {
    const auto resolved = model_.resolve(flow_);
    if (!resolved) return resolved.status();
    const auto direct = model_.planner().plan(*resolved);
    if (!direct) return direct.status();
    add("direct", {*resolved});
    take_best();
    if (flow_.loop) return finish();
    const auto& from = resolved->from;
    const auto& to = resolved->to;
    if (from.kind == EndpointKind::gpu || to.kind == EndpointKind::gpu) {
      over_gpus(*resolved);
      through_hosts(*resolved);
    }
    const bool hosts = from.kind == EndpointKind::host_memory && to.kind == EndpointKind::host_memory;
    const bool gpus = from.kind == EndpointKind::gpu && to.kind == EndpointKind::gpu;
    if (hosts || gpus) over_nics(*resolved);
    return finish();
  }

 private:
  Endpoint gpu(std::uint32_t i) const { return {EndpointKind::gpu, i, {}}; }
  Endpoint nic(std::uint32_t i) const { return {EndpointKind::nic, i, {}}; }
  Endpoint host(std::uint32_t i) const { return {EndpointKind::host_memory, i, {}}; }
  Flow hop(const Endpoint& from, const Endpoint& to) const { return {from, to, {}, flow_.conditions}; }

  void add(std::string name, std::vector<Flow> stages, bool staged = false) {
    Plan whole;
    for (const auto& stage : stages) {
      auto plan = model_.planner().plan(stage);
      if (!plan) return;
      if (whole.path.kind == PathKind::unknown) whole.path = plan->path;
      whole.add(*plan);
    }
    auto prediction = model_.evaluate({&whole, 1}).front();
    if (staged && prediction.known) {
      model_.planner().add_stage(whole, prediction.gbs);
      prediction = model_.evaluate({&whole, 1}).front();
    }
    if (!prediction.known && name != "direct") return;
    sort_.push_back({std::move(name), std::move(stages), std::move(whole), std::move(prediction)});
  }

  void take_best() {
    const auto best = std::ranges::max_element(sort_, [](const Route& a, const Route& b) {
      if (a.prediction.gbs.expected != b.prediction.gbs.expected) {
        return a.prediction.gbs.expected < b.prediction.gbs.expected;
      }
      return a.prediction.latency_us.expected > b.prediction.latency_us.expected;
    });
    if (best != sort_.end()) routes_.push_back(std::move(*best));
    sort_.clear();
  }

  // Over another GPU that is near to both ends.
  void over_gpus(const Flow& flow) {
    const auto count = static_cast<std::uint32_t>(model_.machine().gpus.size());
    for (std::uint32_t middle = 0; middle < count; ++middle) {
      if (gpu(middle) == flow.from || gpu(middle) == flow.to) continue;
      if (!has_link(flow.from, middle) && !has_link(flow.to, middle)) continue;
      add("over " + topology::gpu_name(model_.machine(), model_.machine().gpus[middle]),
          {hop(flow.from, gpu(middle)), hop(gpu(middle), flow.to)});
    }
    take_best();
  }

  [[nodiscard]] bool has_link(const Endpoint& end, std::uint32_t middle) const {
    if (end.kind != EndpointKind::gpu) return false;
    const auto kind = model_.planner().path_class(node_of(end), {NodeKind::gpu, middle}).kind;
    return kind == PathKind::nvlink || kind == PathKind::xgmi;
  }

  void through_hosts(const Flow& flow) {
    for (std::uint32_t i = 0; i < model_.machine().numa_nodes.size(); ++i) {
      if (host(i) == flow.from || host(i) == flow.to) continue;
      add(fmt::format("through the memory of NUMA node {}", model_.machine().numa_nodes[i].os_index),
          {hop(flow.from, host(i)), hop(host(i), flow.to)}, true);
    }
    take_best();
  }

  // Out of a NIC near one end and into one near the other, over the network.
  void over_nics(const Flow& flow) {
    const auto count = static_cast<std::uint32_t>(model_.machine().nics.size());
    const auto near = [&](const Endpoint& end) {
      std::optional<std::uint32_t> best;
      double most = 0;
      for (std::uint32_t i = 0; i < count; ++i) {
        if (!model_.machine().nics[i].rdma) continue;
        const auto prediction = model_.predict(hop(end, nic(i)));
        if (!prediction || !prediction->known || prediction->gbs.expected <= most) continue;
        most = prediction->gbs.expected;
        best = i;
      }
      return best;
    };
    const auto out = near(flow.from);
    const auto in = near(flow.to);
    if (out && in && *out != *in) {
      const auto& nics = model_.machine().nics;
      add(fmt::format("over {} and {}", nics[*out].name, nics[*in].name),
          {hop(flow.from, nic(*out)), hop(nic(*in), flow.to)});
    }
    take_best();
  }

  Result<std::vector<Route>> finish() {
    std::ranges::stable_sort(routes_, [](const Route& a, const Route& b) {
      return a.prediction.gbs.expected > b.prediction.gbs.expected * 1.0001;
    });
    return std::move(routes_);
  }

  const Model& model_;
  const Flow& flow_;
  std::vector<Route> sort_;
  std::vector<Route> routes_;
};

}  // namespace

Result<Flow> Model::resolve(const Flow& flow) const {
  const bool from_remote = flow.from.kind == EndpointKind::remote;
  const bool to_remote = flow.to.kind == EndpointKind::remote;
  if (!from_remote && !to_remote) return flow;
  if (from_remote && to_remote) return Status(ErrorCode::invalid_argument, "both ends are remote");
  if ((from_remote ? flow.to : flow.from).kind == EndpointKind::nic) {
    return Status(ErrorCode::invalid_argument, "from a NIC to a remote machine: name the memory, or the NIC alone");
  }
  Flow best = flow;
  double most = -1;
  for (std::uint32_t i = 0; i < machine().nics.size(); ++i) {
    Flow by = flow;
    (from_remote ? by.from : by.to) = Endpoint{EndpointKind::nic, i, {}};
    const auto plan = planner_.plan(by);
    if (!plan) continue;
    const double rate = expected_gbs(*plan, planner_.constants());
    const bool hardware = machine().nics[i].rdma.valid();
    // NICs without RDMA come after those with it, NICs of unknown rate last.
    const double rank = !std::isfinite(rate) ? 0 : hardware ? rate : rate * 1e-3;
    if (rank > most) {
      most = rank;
      best = by;
    }
  }
  if (most < 0) return Status(ErrorCode::not_found, "a remote end needs a NIC, and this machine has none");
  return best;
}

Result<std::vector<Route>> Model::routes(const Flow& flow) const {
  return RouteFinder(*this, flow).find();
}

}  // namespace fairway::predict
