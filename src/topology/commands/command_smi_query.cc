#include <algorithm>

#include <fmt/format.h>

#include "topology/commands/command_text.h"
#include "topology/devices.h"
#include "topology/pci.h"
#include "topology/text.h"

// `nvidia-smi -q`, whole or through grep, and `nvidia-smi --query-gpu`.
namespace fairway::topology {
namespace {

constexpr auto kQuery = Source::nvml;  // where nvidia-smi reads it
constexpr GpuMaker kOfQuery{"NVIDIA", kVendorNvidia, 0x030200};

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

// The heading of a field whose name, or name and value, stand below no other; empty: they do not tell.
std::string_view heading_of(std::string_view key, std::string_view value) {
  const auto low = text::lower(value);
  if (key == "Max" || key == "Current") {
    if (text::to_u32(value)) return "PCIe Generation";
    if (value.ends_with(" bank(s)")) return "Bank Remap Availability Histogram";
    return value.ends_with('x') && text::to_u32(value.substr(0, value.size() - 1)) ? "Link Width" : "";
  }
  if (key == "Host Max") return "PCIe Generation";
  if (key == "Pending") return low == "yes" || low == "no" ? "Remapped Rows" : "";
  if (key == "State")
    return is_one_of(low, {"completed", "in progress", "not started", "not supported", "n/a"}) ? "Fabric" : "";
  if (key == "Status") return "Fabric";
  if (is_one_of(key, {"Summary", "Bandwidth", "Route Recovery in progress", "Route Unhealthy",
                      "Access Timeout Recovery", "Incorrect Configuration"}))
    return "Health";
  return key == "Gpu" || key == "GPU" ? "Utilization" : "";
}

// Fields that say nothing without a heading, and that a reader uses below one.
bool needs_heading(std::string_view key) {
  return is_one_of(key, {"Max", "Current", "Pending", "State", "Total"});
}

std::optional<double> speed_of_gen(std::string_view value) {
  constexpr double kSpeeds[] = {2.5, 5, 8, 16, 32, 64};
  const auto generation = text::leading_unsigned(value);
  if (!generation || *generation < 1 || *generation > std::size(kSpeeds)) return {};
  return kSpeeds[*generation - 1];
}

// One line "key : value" of a GPU's part of `nvidia-smi -q`.
void read_smi_field(Machine& machine, Gpu& gpu, std::string_view section, std::string_view key,
                    std::string_view value) {
  if (is_error_cell(value)) return;
  auto& link = machine.pci[gpu.pci.index].link;
  if (key == "Product Name") gpu.model.learn(text::quote(value), kQuery);
  if (key == "GPU UUID") gpu.uuid.learn(text::quote(value), kQuery);
  if (key == "Serial Number" && value != "N/A") gpu.serial.learn(text::quote(value), kQuery);
  if (section == "FB Memory Usage" && key == "Total") {
    if (const auto bytes = bytes_of_mib(value)) gpu.memory_bytes.learn(*bytes, kQuery);
  } else if (section == "BAR1 Memory Usage" && key == "Total") {
    if (const auto bytes = bytes_of_mib(value)) gpu.bar1_bytes.learn(*bytes, kQuery);
  } else if (section == "PCIe Generation" && (key == "Current" || key == "Max")) {
    const auto speed = speed_of_gen(value);
    if (speed) (key == "Max" ? link.max_speed_gts : link.speed_gts).learn(*speed, kQuery);
  } else if (section == "Link Width" && (key == "Current" || key == "Max")) {
    const auto width = text::leading_unsigned(value);
    if (width && *width > 0 && *width <= 32)
      (key == "Max" ? link.max_width : link.width).learn(static_cast<std::uint32_t>(*width), kQuery);
  }
}

// The numbers of the GPUs of its sections, in their order; none of a section: nothing tells it. It prints all GPUs in
// the order of their numbers, or those that -i names.
std::vector<std::optional<std::uint32_t>> numbers_of(const Output& output, std::optional<std::uint64_t>& attached) {
  std::size_t sections = 0;
  for (const auto line : text::lines(output.text)) {
    sections += line.starts_with("GPU ") && BusId::parse(text::trim(line.substr(4))) ? 1 : 0;
    if (line.starts_with("Attached GPUs") && line.find(':') != line.npos)
      attached = text::leading_unsigned(text::trim(line.substr(line.find(':') + 1)));
  }
  std::vector<std::optional<std::uint32_t>> out(sections);
  const auto words = text::words(output.command);
  for (std::size_t i = 0; i < words.size(); ++i) {
    auto names = words[i];
    if (names == "|") break;
    if ((names == "-i" || names == "--id") && i + 1 < words.size()) {
      names = words[i + 1];
    } else if (names.starts_with("--id=") || names.starts_with("-i=")) {
      names = names.substr(names.find('=') + 1);
    } else {
      continue;
    }
    const auto chosen = text::split(names, ',');
    for (std::size_t n = 0; n < sections && chosen.size() == sections; ++n) {
      const auto number = text::to_u32(chosen[n]);
      if (number && *number < kNoNumber) out[n] = number;
    }
    return out;
  }
  // One GPU alone may be any, unless it is all that there is.
  const bool all = attached ? sections >= *attached : sections > 1 || !output.command.empty();
  for (std::uint32_t n = 0; n < sections && all; ++n) out[n] = n;
  return out;
}

// The place of a bus id among those of all NVIDIA GPUs, where they are recorded: so nvidia-smi numbers them.
std::optional<std::uint32_t> place_on_bus(const Machine& machine, const BusId& bus,
                                          std::optional<std::uint64_t> attached) {
  std::size_t gpus = 0;
  std::uint32_t before = 0;
  for (const auto& device : machine.pci) {
    if (!is_gpu(device) || device.vendor_id.value_or(0) != kVendorNvidia) continue;
    ++gpus;
    before += device.bus_id < bus ? 1 : 0;
  }
  if (!find_pci(machine, bus) || gpus < 2 || gpus != attached.value_or(gpus)) return {};
  return before;
}

}  // namespace

void SmiFields::begin_gpu() {
  above_.clear();
  seen_.clear();
}

SmiField SmiFields::read(std::string_view line) {
  constexpr std::size_t kStep = 4;  // a field stands so far to the right of its heading
  SmiField out;
  const auto colon = line.find(" : ");
  out.key = text::trim(colon == line.npos ? line : line.substr(0, colon));
  if (out.key.empty()) return out;
  const auto indent = line.find_first_not_of(" \t");
  // Where a paste lost its indents a heading holds until the next.
  while (!above_.empty() && above_.back().first >= indent && (indent > 0 || colon == line.npos)) above_.pop_back();
  if (!above_.empty() && indent <= above_.back().first + kStep) out.section = above_.back().second;
  if (colon == line.npos) {
    out.is_heading = true;
    above_.emplace_back(indent, out.key);
    return out;
  }
  out.value = text::trim(line.substr(colon + 3));
  if (!out.section.empty()) return out;
  out.section = heading_of(out.key, out.value);
  // Those since the driver was loaded stand before those of the GPU's life.
  if (out.key.starts_with("SRAM Uncorrectable") || out.key.starts_with("DRAM Uncorrectable"))
    out.section = seen_.insert(out.key).second ? "Volatile" : "Aggregate";
  out.is_lost = out.section.empty() && needs_heading(out.key);
  return out;
}

std::string lost_smi_fields(const Output& output) {
  SmiFields fields;
  std::set<std::string> names;
  std::string all;
  std::string where;
  std::size_t number = 0;
  std::size_t lost = 0;
  bool in_gpu = false;
  for (const auto line : text::lines(output.text)) {
    ++number;
    if (line.starts_with("GPU ")) {
      fields.begin_gpu();
      in_gpu = true;
      continue;
    }
    const auto field = fields.read(line);
    if (!in_gpu || !field.is_lost || field.value == "N/A") continue;
    if (++lost == 1) where = output.at(number);
    const auto name = text::quote(field.key);
    if (names.insert(name).second) all += (all.empty() ? "" : ", ") + name;
  }
  if (lost == 0) return {};
  return fmt::format("fields without their heading: {} of them ({}), from {} on", lost, all, where);
}

std::size_t read_smi_query(const Output& output, Machine& machine) {
  std::optional<std::uint64_t> attached;
  const auto numbers = numbers_of(output, attached);
  std::uint32_t told = 0;
  Ref<Gpu> gpu;
  SmiFields fields;
  for (const auto line : text::lines(output.text)) {
    // Of `grep -A Fabric` each block is the next GPU's.
    if (numbers.empty() && line == kFabricHeading && gpu_numbered(machine, told, kOfQuery.name)) ++told;
    if (line.starts_with("GPU ")) {
      fields.begin_gpu();
      const auto bus = BusId::parse(text::trim(line.substr(4)));
      gpu = {};
      if (!bus) continue;
      auto number = numbers[told++];
      if (!number) number = place_on_bus(machine, *bus, attached);
      auto last = kNoNumber;
      for (const auto& one : machine.gpus) last = std::max(last, one.ordinal + 1);
      gpu = gpu_at(machine, *bus, number.value_or(last), kOfQuery);
      continue;
    }
    const auto field = fields.read(line);
    if (!gpu && field.key == "Driver Version") machine.gpu_driver.learn(text::quote(field.value), Source::procfs);
    if (gpu && !field.is_heading && machine.gpus[gpu.index].pci)
      read_smi_field(machine, machine.gpus[gpu.index], field.section, field.key, field.value);
  }
  return told;
}

namespace {

// nvidia-smi prints what NVML tells it.
constexpr auto kNvml = Source::nvml;

std::optional<std::size_t> column(const std::vector<std::string_view>& heading, std::string_view name) {
  const auto found = std::ranges::find(heading, name);
  if (found == heading.end()) return {};
  return static_cast<std::size_t>(found - heading.begin());
}

// "pcie.link.gen.max" is that of GPU and slot together.
template <class Cell>
void read_link_columns(Cell cell, PcieLink& link) {
  const auto width = [&](std::string_view name, Fact<std::uint32_t>& fact) {
    const auto number = text::leading_unsigned(cell(name));
    if (number && *number > 0 && *number <= 32) fact.learn(static_cast<std::uint32_t>(*number), kNvml);
  };
  const auto speed = [&](std::string_view name, Fact<double>& fact) {
    if (const auto gts = speed_of_gen(cell(name))) fact.learn(*gts, kNvml);
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
    const auto row = comma_cells(line);
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
    auto& known = machine.gpus[gpu.index];
    if (bus) {
      const auto function = gpu_function(machine, *bus, kOfQuery);
      if (!function) continue;
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
    if (const auto bytes = bytes_of_mib(cell("memory.total"))) known.memory_bytes.learn(*bytes, kNvml);
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
    const auto taken = std::ranges::any_of(machine.gpus, [i](const Gpu& gpu) { return gpu.pci.index == i; });
    if (is_gpu(machine.pci[i]) && !taken) functions.emplace_back(i);
  }
  std::vector<std::size_t> waiting;
  for (std::size_t i = 0; i < machine.gpus.size(); ++i) {
    if (!machine.gpus[i].pci) waiting.push_back(i);
  }
  if (waiting.empty() || functions.size() != waiting.size()) return;
  std::ranges::sort(functions,
                    [&](auto a, auto b) { return machine.pci[a.index].bus_id < machine.pci[b.index].bus_id; });
  std::ranges::sort(waiting, [&](auto a, auto b) { return machine.gpus[a].ordinal < machine.gpus[b].ordinal; });
  for (std::size_t i = 0; i < waiting.size(); ++i) machine.gpus[waiting[i]].pci = functions[i];
  add_note(machine, NoteKind::inferred, "GPUs",
           "their bus ids are those of lspci's GPUs in the order of the bus, as nvidia-smi numbers them");
}

}  // namespace fairway::topology
