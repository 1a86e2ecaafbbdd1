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

constexpr double kGenerations[] = {2.5, 5, 8, 16, 32, 64};

// "pcie.link.gen.max" is that of GPU and slot together.
template <class Cell>
void read_link_columns(Cell cell, PcieLink& link) {
  const auto width = [&](std::string_view name, Fact<std::uint32_t>& fact) {
    const auto number = text::leading_unsigned(cell(name));
    if (number && *number > 0 && *number <= 32) fact.learn(static_cast<std::uint32_t>(*number), kNvml);
  };
  const auto speed = [&](std::string_view name, Fact<double>& fact) {
    const auto number = text::leading_unsigned(cell(name));
    if (number && *number > 0 && *number <= std::size(kGenerations)) fact.learn(kGenerations[*number - 1], kNvml);
  };
  width("pcie.link.width.current", link.width);
  width("pcie.link.width.max", link.max_width);
  speed("pcie.link.gen.current", link.speed_gts);
  speed("pcie.link.gen.gpucurrent", link.speed_gts);
  speed("pcie.link.gen.max", link.max_speed_gts);
}

}  // namespace

// "index, pci.bus_id, pcie.link.width.current" and rows such as "3, 00000000:5D:00.0, 16". A heading may have a unit:
// "memory.total [MiB]".
std::size_t read_gpu_query(std::string_view content, const std::string& place, Machine& machine) {
  std::vector<std::string_view> heading;
  std::size_t read = 0;
  std::uint32_t rows = 0;
  for (const auto line : text::lines(content)) {
    const auto row = cells(line);
    if (heading.empty()) {
      if (!column(row, "pci.bus_id") && !column(row, "index")) continue;
      for (const auto name : row) heading.push_back(text::trim(name.substr(0, name.find(" ["))));
      continue;
    }
    const auto cell = [&](std::string_view name) {
      const auto at = column(heading, name);
      return at && *at < row.size() ? row[*at] : std::string_view{};
    };
    const auto ordinal = text::to_u32(cell("index"));
    const auto bus = BusId::parse(cell("pci.bus_id"));
    if (!ordinal && (!bus || column(heading, "index"))) continue;
    // Without numbers the rows still stand in their order; what is known by bus id is taken.
    Ref<Gpu> gpu;
    if (ordinal) {
      gpu = gpu_numbered(machine, *ordinal, "NVIDIA");
    } else if (const auto known = find_pci(machine, *bus)) {
      for (std::size_t i = 0; i < machine.gpus.size(); ++i) {
        if (machine.gpus[i].pci == known) gpu = Ref<Gpu>(i);
      }
    }
    ++rows;
    if (!gpu) continue;
    if (machine.pci.size() >= kMaxPciDevices) {
      leave_out(machine, kPciDeviceLimit);
      continue;
    }
    auto& known = machine.gpus[gpu.index];
    if (bus) {
      const auto function = gpu_function(machine, *bus);
      if (known.pci && known.pci != function) {
        add_note(machine, NoteKind::conflict, gpu_name(machine, known),
                 fmt::format("{} says {}, before it was {}: the first is kept", place, bus->to_string(),
                             machine.pci[known.pci.index].bus_id.to_string()));
        continue;
      }
      known.pci = function;
    }
    ++read;
    if (const auto name = cell("name"); !name.empty() && !is_error_cell(name))
      known.model.learn(text::quote(name), kNvml);
    if (const auto mebibytes = text::leading_unsigned(cell("memory.total")); mebibytes && *mebibytes < (1U << 30U))
      known.memory_bytes.learn(*mebibytes << 20U, kNvml);
    if (known.pci) read_link_columns(cell, machine.pci[known.pci.index].link);
  }
  if (rows > 0 && !column(heading, "index"))
    add_note(machine, NoteKind::unknown, place, "has pci.bus_id and no index: which GPU is which, it does not say");
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
