#include <algorithm>

#include <fmt/format.h>

#include "topology/assess.h"

namespace fairway::topology {
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
    const auto other =
        std::find_if(machine.numa_nodes.begin(), machine.numa_nodes.end(),
                     [&node](const NumaNode& candidate) { return candidate.cpus && *candidate.cpus == *node.cpus; });
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
