#include <algorithm>
#include <map>
#include <string>

#include <fmt/format.h>

#include "topology/assess.h"
#include "topology/edges.h"
#include "topology/pci.h"

// Whether devices are where they should be: places that nobody records, slots and nodes that neighbours contradict, and
// what a file says of them that its machine does not have.
namespace fairway::topology {
namespace {

// "mlx5_0", "mlx5_0 and mlx5_1", "mlx5_0 and 3 others".
std::string some_of(const std::vector<std::string>& names) {
  if (names.size() == 1) return names[0];
  if (names.size() == 2) return names[0] + " and " + names[1];
  return fmt::format("{} and {} others", names[0], names.size() - 1);
}

struct Lost {
  std::vector<std::string> functions;  // network functions with a bus id that no tree has
  std::vector<std::string> devices;    // RDMA devices without a bus id
  std::vector<std::string> gpus;       // without a bus id
};

Lost look(const Machine& machine) {
  Lost lost;
  for (const auto& nic : machine.nics) {
    const bool software = nic.rdma && machine.rdma[nic.rdma.index].software.value_or(false);
    if (software) continue;
    if (nic.functions.empty() && nic.rdma) lost.devices.push_back(nic.name);
    for (const auto function : nic.functions) {
      const auto& device = machine.pci[function.index];
      if (!device.host_bridge) lost.functions.push_back(device.bus_id.to_string());
    }
  }
  for (const auto& gpu : machine.gpus) {
    if (!gpu.pci) lost.gpus.push_back(gpu_name(machine, gpu));
  }
  return lost;
}

}  // namespace

std::vector<Finding> lint_places(const Machine& machine) {
  std::vector<Finding> findings;
  const auto lost = look(machine);
  const auto add = [&findings](const char* rule, const std::vector<std::string>& names, std::string text) {
    findings.push_back({Severity::notice, rule, some_of(names), std::move(text)});
  };
  if (!lost.functions.empty()) {
    std::string text =
        "their place is unknown: only their bus ids are recorded, not the bridges above or the NUMA node. ";
    if (!lost.devices.empty()) {
      text += fmt::format("Some may be the ports of {}, counted a second time. ", some_of(lost.devices));
    }
    text += "`ls -l /sys/bus/pci/devices` of that machine, saved beside the other outputs, gives it";
    add("nic-place-unknown", lost.functions, std::move(text));
  }
  if (!lost.devices.empty()) {
    add("nic-without-bus-id", lost.devices,
        "their PCI functions are not recorded: only the recorded classes place them. "
        "`ls -l /sys/class/infiniband /sys/class/net` of that machine, saved beside the other outputs, gives them");
  }
  if (!lost.gpus.empty()) {
    add("gpu-without-bus-id", lost.gpus,
        "their bus ids are not recorded: only the recorded classes place them, and the rates of their PCIe "
        "links are assumed. `nvidia-smi --query-gpu=index,pci.bus_id --format=csv` of that machine, saved beside the "
        "other outputs, gives them");
  }
  return findings;
}

namespace {

bool matters(const PciDevice& device) {
  return is_gpu(device) || is_network(device);
}

std::string name(const Machine& machine, std::uint32_t pci) {
  for (const auto& gpu : machine.gpus) {
    if (gpu.pci.index == pci) return gpu_and_bus(machine, gpu);
  }
  return machine.pci[pci].bus_id.to_string();
}

// Ports of one card that together are faster than its PCIe link, raw.
void check_slots(const Machine& machine, std::vector<Finding>& findings) {
  std::map<BusId, std::pair<double, std::uint32_t>> wanted;  // of each card, and one of its functions
  for (const auto& nic : machine.nics) {
    const auto capacity = nic_capacity_gbps(machine, nic);
    if (nic.functions.empty() || !nic.rdma || !capacity) continue;
    auto card = machine.pci[nic.functions.front().index].bus_id;
    card.function = 0;
    auto& [sum, pci] = wanted[card];
    sum += *capacity;
    pci = nic.functions.front().index;
  }
  for (const auto& [card, what] : wanted) {
    const auto gbs = believed_gbs(machine, machine.pci[what.second]);
    if (!gbs || *gbs <= 0 || what.first <= *gbs * 8) continue;
    findings.push_back(
        {Severity::warning, "slot-too-small", name(machine, what.second),
         fmt::format("its ports have {:g} Gb/s in all, its PCIe link {:.0f} raw: they cannot all be full", what.first,
                     *gbs * 8)});
  }
}

// Devices below one host bridge are near the same CPUs: one that differs has a wrong node or mask.
void check_siblings(const Machine& machine, std::vector<Finding>& findings) {
  std::map<std::uint32_t, std::map<std::uint32_t, std::vector<std::uint32_t>>> nodes;  // of each bridge, by node
  for (std::uint32_t i = 0; i < machine.pci.size(); ++i) {
    const auto& device = machine.pci[i];
    if (device.host_bridge && device.numa_node && matters(machine.pci[i]))
      nodes[device.host_bridge.index][*device.numa_node].push_back(i);
  }
  for (const auto& [bridge, by_node] : nodes) {
    if (by_node.size() < 2 || machine.host_bridges[bridge].folded) continue;
    const auto most = std::ranges::max_element(
        by_node, [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    for (const auto& [node, devices] : by_node) {
      if (node == most->first) continue;
      findings.push_back({Severity::warning, "numa-unlike-siblings", name(machine, devices.front()),
                          fmt::format("its NUMA node is {}; that of {} below the same host bridge is {}", node,
                                      name(machine, most->second.front()), most->first)});
    }
  }
  // The kernel gives CPU 0 to node 0: finds swapped masks in hand-written files.
  const auto& all = machine.numa_nodes;
  if (all.size() != 2 || !all[0].cpus || !all[1].cpus || all[0].cpus->empty() || all[1].cpus->empty()) return;
  const bool by_hand = all[0].cpus.source == Source::nccl_xml || all[0].cpus.source == Source::rccl_xml;
  if (by_hand && all[0].os_index < all[1].os_index && all[1].cpus->contains(0) && !all[0].cpus->contains(0)) {
    findings.push_back(
        {Severity::warning, "numa-masks-swapped", fmt::format("NUMA nodes {} and {}", all[0].os_index, all[1].os_index),
         fmt::format("node {} has CPU 0 ({}), not node {} ({}): the masks look swapped; compare with the machine "
                     "(fairway topo lint FILE --against this)",
                     all[1].os_index, all[1].cpus->to_list(), all[0].os_index, all[0].cpus->to_list())});
  }
}

}  // namespace

std::vector<Finding> lint_slots(const Machine& machine) {
  std::vector<Finding> findings;
  check_slots(machine, findings);
  check_siblings(machine, findings);
  if (const auto links = unrecorded_gpu_links(machine); !links.empty()) {
    findings.push_back(
        {Severity::notice, "gpu-links-not-recorded", fmt::format("{} GPUs", machine.gpus.size()),
         fmt::format("{} not recorded: GPUs of this model have it, so the classes and rates between them "
                     "are unknown. `nvidia-smi topo -m` of that machine prints them",
                     links)});
  }
  return findings;
}

namespace {

void check_bus_ids(const Machine& file, const Machine& machine, std::vector<Finding>& findings) {
  const auto check = [&](const std::string& who, Ref<PciDevice> pci) {
    if (!pci) return;
    const auto& bus = file.pci[pci.index].bus_id;
    if (find_pci(machine, bus)) return;
    findings.push_back(
        {Severity::error, "bus-id-does-not-exist", who,
         fmt::format("the file places it at {}, and this machine has no such device: the file is for another "
                     "machine or virtual machine",
                     bus.to_string())});
  };
  for (const auto& gpu : file.gpus) check(gpu_name(file, gpu), gpu.pci);
  for (const auto& nic : file.nics) {
    for (const auto function : nic.functions) check(nic.name, function);
  }
}

void check_masks(const Machine& file, const Machine& machine, std::vector<Finding>& findings) {
  for (const auto& node : file.numa_nodes) {
    const auto here = find_numa(machine, node.os_index);
    const auto subject = fmt::format("NUMA node {}", node.os_index);
    if (!here) {
      findings.push_back({Severity::error, "numa-does-not-exist", subject, "this machine has no such node"});
      continue;
    }
    const auto& own = machine.numa_nodes[here.index].cpus;
    if (!node.cpus || !own || *node.cpus == *own) continue;
    const auto other = std::ranges::find_if(machine.numa_nodes, [&node](const NumaNode& candidate) {
      return candidate.cpus && *candidate.cpus == *node.cpus;
    });
    const auto swapped = other != machine.numa_nodes.end()
                             ? fmt::format("; these are the CPUs of node {}: swapped", other->os_index)
                             : std::string();
    findings.push_back(
        {Severity::error, swapped.empty() ? "numa-masks-differ" : "numa-masks-swapped", subject,
         fmt::format("the file says CPUs {}, this machine {}{}", node.cpus->to_list(), own->to_list(), swapped)});
  }
}

void check_places(const Machine& file, const Machine& machine, std::vector<Finding>& findings) {
  for (std::uint32_t i = 0; i < file.gpus.size(); ++i) {
    const auto& gpu = file.gpus[i];
    const auto here = gpu.pci ? find_pci(machine, file.pci[gpu.pci.index].bus_id) : Ref<PciDevice>{};
    if (!here) continue;
    const auto said = numa_of(file, {NodeKind::gpu, i});
    const auto is = numa_of(machine, {NodeKind::pci, here.index});
    if (said && is && *said != *is) {
      findings.push_back({Severity::error, "device-on-other-node", gpu_name(file, gpu),
                          fmt::format("the file places it near NUMA node {}, and it is near node {}", *said, *is)});
    }
  }
}

}  // namespace

std::vector<Finding> lint_against(const Machine& file, const Machine& machine) {
  std::vector<Finding> findings;
  check_bus_ids(file, machine, findings);
  check_masks(file, machine, findings);
  check_places(file, machine, findings);
  return findings;
}

}  // namespace fairway::topology
