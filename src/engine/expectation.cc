#include "engine/expectation.h"

#include <algorithm>
#include <utility>

#include "sys/library_loading.h"

namespace fairway::engine {

using predict::Endpoint;
using predict::EndpointKind;
using predict::Prediction;

Expectation::Expectation(predict::Model model)
    : model_(std::move(model)), places_(1 + model_.machine().gpus.size() + model_.machine().numa_nodes.size()) {}

Place Expectation::place_of(const transport::MemoryPlace& memory, int numa_node) const {
  const topology::Machine& machine = model_.machine();
  if (!reached_by_cpu(memory.kind)) {
    const auto bus_id = topology::BusId::parse(memory.gpu);
    for (std::size_t i = 0; bus_id && i < machine.gpus.size(); ++i)
      if (const auto pci = machine.gpus[i].pci; pci && machine.pci[pci.index].bus_id == *bus_id)
        return static_cast<Place>(1 + i);
    return kNoPlace;
  }
  if (machine.numa_nodes.size() == 1) return static_cast<Place>(1 + machine.gpus.size());
  const auto node =
      numa_node < 0 ? topology::Ref<topology::NumaNode>{} : find_numa(machine, static_cast<std::uint32_t>(numa_node));
  return node ? static_cast<Place>(1 + machine.gpus.size() + node.index) : kAnyNode;
}

std::vector<Endpoint> Expectation::endpoints(Place place) const {
  const std::size_t gpus = model_.machine().gpus.size();
  if (place >= places_) return {};
  if (place != kAnyNode && place <= gpus) return {{EndpointKind::gpu, place - 1u, {}}};
  if (place != kAnyNode) return {{EndpointKind::host_memory, static_cast<std::uint32_t>(place - 1 - gpus), {}}};
  std::vector<Endpoint> all;
  for (std::uint32_t node = 0; node < model_.machine().numa_nodes.size(); ++node)
    all.push_back({EndpointKind::host_memory, node, {}});
  return all;
}

std::optional<std::uint32_t> Expectation::nic_of(std::string_view device) const {
  const topology::Machine& machine = model_.machine();
  const std::size_t slash = device.find('/');
  auto rdma = find_rdma(machine, device.substr(0, slash));  // "mlx5_0/1"
  if (!rdma && slash != device.npos) {                      // "efa/rdmap0s6-rdm": a domain of libfabric
    const std::string_view domain = device.substr(slash + 1);
    rdma = find_rdma(machine, domain.substr(0, domain.rfind('-')));
  }
  const auto interface = find_interface(machine, device.substr(0, slash));
  for (std::uint32_t i = 0; i < machine.nics.size(); ++i) {
    const topology::Nic& nic = machine.nics[i];
    if ((rdma && nic.rdma == rdma) ||
        (interface && std::find(nic.interfaces.begin(), nic.interfaces.end(), interface) != nic.interfaces.end()))
      return i;
  }
  return {};
}

// The range over all pairs of endpoints.
std::optional<Prediction> Expectation::ask(predict::Flow flow, const std::vector<Endpoint>& from,
                                           const std::vector<Endpoint>& to) const {
  std::optional<Prediction> all;
  for (const Endpoint& source : from)
    for (const Endpoint& target : to) {
      flow.from = source;
      flow.to = target;
      auto one = model_.predict(flow);
      if (!one || !one->known) continue;
      if (!all) {
        all = std::move(*one);
        continue;
      }
      all->gbs.low = std::min(all->gbs.low, one->gbs.low);
      all->gbs.expected = std::max(all->gbs.expected, one->gbs.expected);
      all->gbs.high = std::max(all->gbs.high, one->gbs.high);
    }
  return all;
}

std::optional<Prediction> Expectation::through(std::string_view device, Place place, bool outwards) const {
  const auto nic = nic_of(device);
  if (!nic) return {};
  predict::Flow flow;
  flow.conditions.ordering = predict::Ordering::relaxed;  // as regions are registered
  const std::vector<Endpoint> port{{EndpointKind::nic, *nic, {}}};
  return outwards ? ask(flow, endpoints(place), port) : ask(flow, port, endpoints(place));
}

bool Expectation::is_gpu(Place place) const {
  return place != kAnyNode && place <= model_.machine().gpus.size();
}

std::optional<Prediction> Expectation::between(Place from, Place to, bool by_kernel) const {
  if (!is_gpu(from) && !is_gpu(to)) return {};
  predict::Flow flow;
  flow.conditions.by_kernel = by_kernel;
  return ask(flow, endpoints(from), endpoints(to));
}

std::optional<Prediction> Expectation::copied(Place from, Place to, predict::Mover mover) const {
  if (is_gpu(from) || is_gpu(to)) return {};
  predict::Flow flow;
  flow.conditions.mover = mover;
  return ask(flow, endpoints(from), endpoints(to));
}

MachineDiscovery::MachineDiscovery(Executor& executor, Source source, std::function<void()> known)
    : executor_(executor), source_(std::move(source)), known_(std::move(known)), ended_(source_ == nullptr) {}

void MachineDiscovery::want() {
  if (ended()) return;
  std::lock_guard lock(mutex_);
  if (std::exchange(wanted_, true)) return;
  TaskOptions options;
  options.name = "fairway-machine";
  options.spin_ns = 0;
  auto task = executor_.start(options, *this);
  if (task) {
    task_ = std::move(*task);
    return task_->wake();
  }
  problem_ = task.status();
  ended_.store(true, std::memory_order_release);
}

Time MachineDiscovery::step(Time) {
  if (ended()) return kNever;
  auto model = [this] {
    const sys::LibraryLoading loading;  // of NVML and verbs
    return source_();
  }();
  if (model)
    found_ = std::make_unique<const Expectation>(std::move(*model));
  else
    problem_ = model.status();
  ended_.store(true, std::memory_order_release);
  known_();
  return kNever;
}

void MachineDiscovery::close() {
  std::unique_ptr<Task> task;
  std::lock_guard lock(mutex_);
  wanted_ = true;
  task = std::move(task_);
}

}  // namespace fairway::engine
