#include <algorithm>

#include <fmt/format.h>

#include "predict/model.h"

namespace fairway::predict {
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
    const auto best = std::max_element(sort_.begin(), sort_.end(), [](const Route& a, const Route& b) {
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
    std::stable_sort(routes_.begin(), routes_.end(), [](const Route& a, const Route& b) {
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
