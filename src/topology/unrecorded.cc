#include "topology/unrecorded.h"

#include <algorithm>

#include "topology/catalog.h"
#include "topology/machine.h"
#include "topology/text.h"

namespace fairway::topology {

namespace {

// If only the architecture is known: those of servers with NVLink.
std::string_view by_architecture(std::string_view architecture) {
  constexpr std::string_view kNvidia[] = {"sm_60", "sm_70", "sm_80", "sm_90", "sm_100", "sm_103"};
  constexpr std::string_view kAmd[] = {"gfx90a", "gfx942", "gfx950"};
  if (std::find(std::begin(kNvidia), std::end(kNvidia), architecture) != std::end(kNvidia)) return "NVLink";
  return std::any_of(std::begin(kAmd), std::end(kAmd), [&](auto name) { return architecture.starts_with(name); })
             ? "xGMI"
             : std::string_view{};
}

std::string_view links_of(const Gpu& gpu) {
  if (!gpu.model) return by_architecture(gpu.architecture.value_or(""));
  // PCIe cards may have NVLink bridges; if none is recorded there is none.
  if (gpu.model->find("PCIe") != std::string::npos || gpu.model->find("PCIE") != std::string::npos) return {};
  const auto* generation = find_gpu_generation(*gpu.model);
  if (generation == nullptr) return by_architecture(gpu.architecture.value_or(""));
  // A30 and A40 are cards too.
  if (generation->nvlinks > 4) return "NVLink";
  return generation->name.starts_with("MI2") || generation->name.starts_with("MI3") ? "xGMI" : std::string_view{};
}

}  // namespace

std::string_view unrecorded_gpu_links(const Machine& machine) {
  if (machine.gpus.size() < 2 || has_gpu_links(machine) || !machine.nv_switches.empty()) return {};
  // A captured topo -m has a cell for each pair, and NVML reports links if it was asked.
  if (!machine.matrix.empty() || machine.gpu_driver.source == Source::nvml) return {};
  for (const auto& gpu : machine.gpus) {
    if (!gpu.nvlinks.empty()) return {};
  }
  std::string_view common;
  for (const auto& gpu : machine.gpus) {
    const auto links = links_of(gpu);
    if (links.empty()) return {};
    common = links;
  }
  return common;
}

}  // namespace fairway::topology
