#include <algorithm>

#include <fmt/format.h>

#include "topology/command_text.h"
#include "topology/pci_ids.h"
#include "topology/text.h"

namespace fairway::topology {
namespace {

// nvidia-smi prints what NVML tells it.
constexpr auto kNvml = Source::nvml;

std::vector<std::string_view> cells(std::string_view line) {
  auto parts = text::split(line, ',');
  for (auto& part : parts) part = text::trim(part);
  return parts;
}

std::optional<std::size_t> column(const std::vector<std::string_view>& heading, std::string_view name) {
  const auto found = std::find(heading.begin(), heading.end(), name);
  if (found == heading.end()) return {};
  return static_cast<std::size_t>(found - heading.begin());
}

Ref<PciDevice> gpu_function(Machine& machine, const BusId& bus) {
  if (const auto known = find_pci(machine, bus)) return known;
  PciDevice device;
  device.bus_id = bus;
  device.vendor_id.set(kVendorNvidia, kNvml);
  device.class_code.set(0x030200, kNvml);
  machine.pci.push_back(std::move(device));
  return Ref<PciDevice>(machine.pci.size() - 1);
}

}  // namespace

// "index, pci.bus_id" and rows such as "3, 00000000:5D:00.0".
std::size_t read_gpu_query(std::string_view content, const std::string& place, Machine& machine) {
  std::optional<std::size_t> index;
  std::optional<std::size_t> bus_id;
  std::optional<std::size_t> name;
  std::size_t read = 0;
  for (const auto line : text::lines(content)) {
    const auto row = cells(line);
    if (!bus_id) {
      bus_id = column(row, "pci.bus_id");
      index = column(row, "index");
      name = column(row, "name");
      continue;
    }
    if (!index || row.size() <= std::max(*index, *bus_id)) continue;
    const auto ordinal = text::to_u32(row[*index]);
    const auto bus = BusId::parse(row[*bus_id]);
    if (!ordinal || !bus || machine.pci.size() >= kMaxPciDevices) continue;
    auto gpu = find_gpu(machine, *ordinal);
    if (!gpu) {
      if (machine.gpus.size() >= kMaxGpus) return read;
      gpu = Ref<Gpu>(machine.gpus.size());
      machine.gpus.emplace_back().ordinal = *ordinal;
      machine.gpus.back().vendor.set("NVIDIA", kNvml);
    }
    auto& known = machine.gpus[gpu.index];
    const auto function = gpu_function(machine, *bus);
    if (known.pci && known.pci != function) {
      add_note(machine, NoteKind::conflict, fmt::format("GPU{}", *ordinal),
               fmt::format("{} says {}, before it was {}: the first is kept", place, bus->to_string(),
                           machine.pci[known.pci.index].bus_id.to_string()));
      continue;
    }
    known.pci = function;
    ++read;
    if (name && *name < row.size()) known.model.learn(text::quote(row[*name]), kNvml);
  }
  if (bus_id && !index) {
    add_note(machine, NoteKind::unknown, place, "has pci.bus_id and no index: which GPU is which, it does not say");
  }
  return read;
}

// nvidia-smi numbers GPUs by their place on the bus.
void join_gpus_by_bus_order(Machine& machine) {
  std::vector<Ref<PciDevice>> functions;
  for (std::size_t i = 0; i < machine.pci.size(); ++i) {
    const auto taken =
        std::any_of(machine.gpus.begin(), machine.gpus.end(), [i](const Gpu& gpu) { return gpu.pci.index == i; });
    if (is_gpu(machine.pci[i]) && !taken) functions.emplace_back(i);
  }
  std::vector<std::size_t> waiting;
  for (std::size_t i = 0; i < machine.gpus.size(); ++i) {
    if (!machine.gpus[i].pci) waiting.push_back(i);
  }
  if (waiting.empty() || functions.size() != waiting.size()) return;
  std::sort(functions.begin(), functions.end(),
            [&](auto a, auto b) { return machine.pci[a.index].bus_id < machine.pci[b.index].bus_id; });
  std::sort(waiting.begin(), waiting.end(),
            [&](auto a, auto b) { return machine.gpus[a].ordinal < machine.gpus[b].ordinal; });
  for (std::size_t i = 0; i < waiting.size(); ++i) machine.gpus[waiting[i]].pci = functions[i];
  add_note(machine, NoteKind::inferred, "GPUs",
           "their bus ids are those of lspci's GPUs in the order of the bus, as nvidia-smi numbers them");
}

}  // namespace fairway::topology
