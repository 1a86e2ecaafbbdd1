#include "doctor/cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include <fmt/format.h>

#include "topology/assess.h"
#include "topology/pci.h"

namespace fairway::doctor {

using predict::Endpoint;
using predict::EndpointKind;
using predict::Flow;
using topology::Machine;
using topology::NodeKind;
using topology::NodeRef;

namespace {

predict::Conditions full_use() {
  predict::Conditions how;
  how.qps = 8;
  how.round_robin = true;
  how.ordering = predict::Ordering::relaxed;
  return how;
}

bool same_device(const Machine& machine, NodeRef flow_end, NodeRef device) {
  if (flow_end == device) return true;
  if (device.kind == NodeKind::pci) {
    const auto pci = topology::pci_of(machine, flow_end);
    if (!pci) return false;
    std::size_t depth = 0;
    for (auto at = pci; at && depth++ <= topology::kMaxPciDepth; at = machine.pci[at.index].parent) {
      if (at.index == device.index) return true;
    }
    // The second port of a card is a function of its own.
    if (flow_end.kind == NodeKind::nic) {
      for (const auto function : machine.nics[flow_end.index].functions) {
        if (function.index == device.index) return true;
      }
    }
  }
  if (flow_end.kind != NodeKind::nic) return false;
  const auto& nic = machine.nics[flow_end.index];
  if (device.kind == NodeKind::rdma) return nic.rdma.index == device.index && nic.rdma.valid();
  if (device.kind == NodeKind::bond) return nic.bond.index == device.index && nic.bond.valid();
  if (device.kind == NodeKind::interface) {
    return std::ranges::any_of(nic.interfaces, [&](const auto interface) { return interface.index == device.index; });
  }
  return false;
}

// The memory that a NIC serves best: a GPU of the nearest class, else the NUMA node beside it.
std::optional<Endpoint> memory_near(const Machine& machine, std::uint32_t nic) {
  std::optional<Endpoint> best;
  auto best_kind = topology::PathKind::unknown;
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    const auto path = topology::path_class(machine, {NodeKind::gpu, gpu}, {NodeKind::nic, nic});
    if (!path) continue;
    if (!best || path->kind < best_kind) {
      best = Endpoint{EndpointKind::gpu, gpu, {}};
      best_kind = path->kind;
    }
  }
  if (best || machine.numa_nodes.empty()) return best;
  const auto numa = topology::numa_of(machine, {NodeKind::nic, nic});
  const auto found = numa ? topology::find_numa(machine, *numa) : topology::Ref<topology::NumaNode>{};
  return Endpoint{EndpointKind::host_memory, found ? found.index : 0, {}};
}

std::vector<Flow> all_flows(const Machine& machine) {
  std::vector<Flow> flows;
  for (const auto nic : bulk_nics(machine)) {
    if (const auto memory = memory_near(machine, nic)) {
      flows.push_back(full_flow(*memory, {EndpointKind::nic, nic, {}}));
    }
  }
  for (std::uint32_t gpu = 0; gpu < machine.gpus.size(); ++gpu) {
    const auto choices = topology::nics_for_gpu(machine, topology::Ref<topology::Gpu>(std::size_t{gpu}));
    if (!choices.empty() && choices.front().rail) {
      const bool there = std::ranges::any_of(flows, [&](const Flow& flow) {
        return flow.from.kind == EndpointKind::gpu && flow.from.index == gpu &&
               flow.to.index == choices.front().nic.index;
      });
      if (!there)
        flows.push_back(full_flow({EndpointKind::gpu, gpu, {}}, {EndpointKind::nic, choices.front().nic.index, {}}));
    } else if (!machine.numa_nodes.empty()) {
      const auto numa = topology::numa_of(machine, {NodeKind::gpu, gpu});
      const auto found = numa ? topology::find_numa(machine, *numa) : topology::Ref<topology::NumaNode>{};
      flows.push_back(
          full_flow({EndpointKind::gpu, gpu, {}}, {EndpointKind::host_memory, found ? found.index : 0, {}}));
    }
  }
  return flows;
}

std::optional<double> rate(const predict::Model& model, const Flow& flow) {
  const auto prediction = model.predict(flow);
  if (!prediction || !prediction->known) return {};
  return prediction->gbs.expected * 8;
}

// Of the paths through one NIC only the costliest counts: two GPUs together lose no more than the NIC that they share.
class Shared {
 public:
  void add(const Flow& flow, double now_gbps, double mended_gbps) {
    auto end = predict::node_of(flow.to);
    if (end.kind != NodeKind::nic) end = predict::node_of(flow.from);
    const auto [one, fresh] = paths_.try_emplace(end, now_gbps, mended_gbps);
    if (!fresh && mended_gbps - now_gbps > one->second.second - one->second.first)
      one->second = {now_gbps, mended_gbps};
  }
  void write_to(Cost& cost) const {
    for (const auto& [end, rates] : paths_) cost.add(rates.first, rates.second);
  }

 private:
  std::map<NodeRef, std::pair<double, double>> paths_;  // now, mended
};

}  // namespace

std::vector<std::uint32_t> rails(const Machine& machine) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 0; i < machine.nics.size(); ++i) {
    const auto& nic = machine.nics[i];
    if (!nic.rdma || machine.rdma[nic.rdma.index].software.value_or(false)) continue;
    if (topology::rail_verdict(machine, {NodeKind::nic, i}).rail) out.push_back(i);
  }
  if (!out.empty()) return out;
  // A machine without RDMA hardware: its traffic uses the software devices.
  const bool hardware =
      std::ranges::any_of(machine.rdma, [](const auto& one) { return !one.software.value_or(false); });
  for (std::uint32_t i = 0; !hardware && i < machine.nics.size(); ++i) {
    const auto* port = port_of(machine, i);
    if (port != nullptr && port->state.value_or("") == "ACTIVE") out.push_back(i);
  }
  return out;
}

std::vector<std::uint32_t> unrecorded_rails(const Machine& machine) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t i = 0; i < machine.nics.size(); ++i) {
    const auto pci = topology::pci_of(machine, {NodeKind::nic, i});
    if (machine.nics[i].rdma || !pci || !topology::is_rdma_function(machine.pci[pci.index])) continue;
    if (topology::rail_verdict(machine, {NodeKind::nic, i}).rail) out.push_back(i);
  }
  return out;
}

std::vector<std::uint32_t> bulk_nics(const Machine& machine) {
  auto out = rails(machine);
  return out.empty() ? unrecorded_rails(machine) : out;
}

const topology::RdmaPort* port_of(const Machine& machine, std::uint32_t nic) {
  const auto rdma = machine.nics[nic].rdma;
  if (!rdma || machine.rdma[rdma.index].ports.empty()) return nullptr;
  const auto& ports = machine.rdma[rdma.index].ports;
  const auto active =
      std::ranges::find_if(ports, [](const topology::RdmaPort& port) { return port.state.value_or("") == "ACTIVE"; });
  return active == ports.end() ? &ports.front() : &*active;
}

std::string source_of(topology::Source source, std::string_view what) {
  return fmt::format("{} ({})", what, topology::to_string(source));
}

std::vector<Flow> flows_through(const Machine& machine, NodeRef device) {
  auto flows = all_flows(machine);
  std::erase_if(flows, [&](const Flow& flow) {
    return !same_device(machine, predict::node_of(flow.from), device) &&
           !same_device(machine, predict::node_of(flow.to), device);
  });
  return flows;
}

bool on_a_path(const Machine& machine, NodeRef device) {
  return !flows_through(machine, device).empty();
}

std::string paths_text(const Machine& machine, const std::vector<Flow>& flows) {
  if (flows.empty()) return {};
  const auto one = fmt::format("{} - {}", predict::to_string(machine, flows.front().from),
                               predict::to_string(machine, flows.front().to));
  return flows.size() == 1 ? one
                           : fmt::format("{} and {} other{}", one, flows.size() - 1, flows.size() == 2 ? "" : "s");
}

void Cost::add(double now_gbps, double mended_gbps) {
  known_ = true;
  if (mended_gbps <= now_gbps) return;
  ++paths_;
  now_gbps_ += now_gbps;
  mended_gbps_ += mended_gbps;
}

void Cost::write_to(Finding& finding) const {
  if (finding.path.empty()) finding.path = path;
  finding.loss_gbps.reset();
  finding.now_gbps.reset();
  finding.mended_gbps.reset();
  if (!known_) return;
  finding.loss_gbps = mended_gbps_ - now_gbps_;
  if (paths_ == 0) return;
  finding.paths = paths_;
  finding.now_gbps = now_gbps_ / static_cast<double>(paths_);
  finding.mended_gbps = mended_gbps_ / static_cast<double>(paths_);
}

predict::Flow full_flow(Endpoint from, Endpoint to) {
  return {from, to, {}, full_use()};
}

Cost cost_of(const RuleInput& input, const std::vector<Flow>& flows, const std::function<void(Machine&)>& mend,
             const std::function<void(predict::Conditions&)>& mended_use,
             const std::function<void(predict::Conditions&)>& present_use) {
  Cost cost;
  cost.path = paths_text(input.machine(), flows);
  if (flows.empty()) return cost;
  auto machine = input.machine();
  if (mend) mend(machine);
  const predict::Model mended(std::move(machine), input.model.planner().constants());
  Shared shared;
  for (const auto& flow : flows) {
    Flow now = flow;
    Flow then = flow;
    if (present_use) present_use(now.conditions);
    if (mended_use) mended_use(then.conditions);
    const auto a = rate(input.model, now);
    const auto b = rate(mended, then);
    if (a && b) shared.add(flow, *a, *b);
  }
  shared.write_to(cost);
  return cost;
}

Cost cost_of_share(const RuleInput& input, const std::vector<Flow>& flows, double share) {
  Cost cost;
  cost.path = paths_text(input.machine(), flows);
  Shared shared;
  for (const auto& flow : flows) {
    if (const auto full = rate(input.model, flow)) shared.add(flow, (1 - share) * *full, *full);
  }
  shared.write_to(cost);
  return cost;
}

std::vector<PlacedDevice> placed_devices(const Machine& machine) {
  std::vector<PlacedDevice> out;
  const auto place = [&](NodeRef node) {
    PlacedDevice device{node, topology::pci_of(machine, node), {}};
    if (!device.pci) return;
    auto at = machine.pci[device.pci.index].parent;
    while (at && device.above.size() <= topology::kMaxPciDepth) {
      device.above.push_back(at);
      at = machine.pci[at.index].parent;
    }
    out.push_back(std::move(device));
  };
  for (std::uint32_t i = 0; i < machine.gpus.size(); ++i) place({NodeKind::gpu, i});
  for (const auto nic : bulk_nics(machine)) place({NodeKind::nic, nic});
  return out;
}

namespace {

// Two-sided 95 % of Student's t, by degrees of freedom 1 to 30.
constexpr std::array<double, 30> kStudent = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                                             2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
                                             2.080,  2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042};

}  // namespace

Ratio ratio_of(std::span<const double> a, std::span<const double> b) {
  std::vector<double> logs;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i] > 0 && b[i] > 0) logs.push_back(std::log(b[i] / a[i]));
  }
  if (logs.empty()) return {0, 0, std::numeric_limits<double>::infinity()};
  double mean = 0;
  for (const double x : logs) mean += x;
  mean /= static_cast<double>(logs.size());
  if (logs.size() < 3) return {0, std::exp(mean), std::numeric_limits<double>::infinity()};
  double squares = 0;
  for (const double x : logs) squares += (x - mean) * (x - mean);
  const auto degrees = logs.size() - 1;
  const double error = std::sqrt(squares / static_cast<double>(degrees) / static_cast<double>(logs.size()));
  const double t = degrees <= kStudent.size() ? kStudent[degrees - 1] : 1.96;
  return {std::exp(mean - t * error), std::exp(mean), std::exp(mean + t * error)};
}

bool is_faster(const Ratio& ratio, double factor) {
  return ratio.low > factor;
}

}  // namespace fairway::doctor
