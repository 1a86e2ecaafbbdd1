#include "topology/lint_places.h"

#include <string>

#include <fmt/format.h>

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

}  // namespace fairway::topology
