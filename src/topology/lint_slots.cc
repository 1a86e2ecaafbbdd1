#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "topology/lint_places.h"
#include "topology/pci_ids.h"
#include "topology/unrecorded.h"

namespace fairway::topology {
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
    const auto most = std::max_element(by_node.begin(), by_node.end(),
                                       [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
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

}  // namespace fairway::topology
