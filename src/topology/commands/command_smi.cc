#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "topology/commands/command_text.h"
#include "topology/pci.h"
#include "topology/text.h"

// What nvidia-smi and rocm-smi say of GPUs and the links between them.
namespace fairway::topology {
namespace {

constexpr auto kSmi = Source::nvml;    // where nvidia-smi reads it
constexpr auto kRocm = Source::sysfs;  // where rocm-smi does

constexpr GpuMaker kNvidia{"NVIDIA", kVendorNvidia, 0x030200};

}  // namespace

std::optional<std::uint64_t> bytes_of_mib(std::string_view value) {
  const auto number = text::leading_unsigned(value);
  if (!number || *number == 0 || *number >= (1U << 30U)) return {};
  return *number << 20U;
}

std::vector<std::string_view> comma_cells(std::string_view line) {
  auto cells = text::split(line, ',');
  for (auto& cell : cells) cell = text::trim(cell);
  return cells;
}

bool is_error_cell(std::string_view value) {
  if (value.size() > 60) return false;
  auto words = text::lower(text::trim(value));
  if (words.starts_with('[') && words.ends_with(']')) words = words.substr(1, words.size() - 2);
  return words == "err!" || words == "unknown error" || words == "insufficient power" || says_lost(words);
}

bool says_lost(std::string_view words) {
  const auto low = text::lower(words);
  for (const auto* part :
       {"gpu is lost", "gpu requires reset", "fallen off the bus", "unable to determine the device"}) {
    if (low.find(part) != std::string::npos) return true;
  }
  return false;
}

Ref<Gpu> gpu_numbered(Machine& machine, std::uint32_t ordinal, const char* vendor) {
  if (const auto known = find_gpu(machine, ordinal)) return known;
  if (machine.gpus.size() >= kMaxGpus) {
    leave_out(machine, kGpuLimit);
    return {};
  }
  machine.gpus.emplace_back().ordinal = ordinal;
  machine.gpus.back().vendor.set(vendor, kSmi);
  return Ref<Gpu>(machine.gpus.size() - 1);
}

Ref<PciDevice> gpu_function(Machine& machine, const BusId& bus, const GpuMaker& maker) {
  if (const auto known = find_pci(machine, bus)) return known;
  if (machine.pci.size() >= kMaxPciDevices) {
    leave_out(machine, kPciDeviceLimit);
    return {};
  }
  auto& device = machine.pci.emplace_back();
  device.bus_id = bus;
  device.vendor_id.set(maker.vendor_id, kSmi);
  device.class_code.set(maker.class_code, kSmi);
  return Ref<PciDevice>(machine.pci.size() - 1);
}

Ref<Gpu> gpu_at(Machine& machine, const BusId& bus, std::uint32_t place, const GpuMaker& maker) {
  const auto function = gpu_function(machine, bus, maker);
  if (!function) return {};
  for (std::size_t i = 0; i < machine.gpus.size(); ++i) {
    if (machine.gpus[i].pci == function) return Ref<Gpu>(i);
  }
  const auto gpu = gpu_numbered(machine, place, maker.name);
  if (!gpu || machine.gpus[gpu.index].pci) return {};
  machine.gpus[gpu.index].pci = function;
  return gpu;
}

// "|   1  NVIDIA H100 80GB HBM3          Off |   00000000:81:00.0 Off |                   14 |", and on the next line
// "70211MiB /  81559MiB".
std::size_t read_smi_table(std::string_view content, const std::string&, Machine& machine) {
  std::size_t told = 0;
  Ref<Gpu> gpu;
  for (const auto line : text::lines(content)) {
    if (const auto at = line.find("Driver Version: "); at != line.npos)
      machine.gpu_driver.learn(text::quote(text::words(line.substr(at + 16)).front()), Source::procfs);
    const auto cells = text::split(line, '|');
    if (cells.size() < 5) continue;
    const auto left = text::words(cells[1]);
    const auto middle = text::words(cells[2]);
    const auto bus = middle.empty() ? std::nullopt : BusId::parse(middle.front());
    const auto ordinal = left.empty() ? std::nullopt : text::to_u32(left.front());
    if (bus && ordinal && left.size() > 2) {
      gpu = gpu_at(machine, *bus, *ordinal, kNvidia);
      ++told;
      if (!gpu) continue;
      std::string name;
      for (std::size_t i = 1; i + 1 < left.size(); ++i) name += (name.empty() ? "" : " ") + std::string(left[i]);
      // The table cuts long names: "NVIDIA A100-SXM...".
      if (!name.ends_with("...") && !is_error_cell(name)) machine.gpus[gpu.index].model.learn(text::quote(name), kSmi);
    } else if (gpu && middle.size() == 3 && middle[1] == "/") {
      if (const auto bytes = bytes_of_mib(middle[2])) machine.gpus[gpu.index].memory_bytes.learn(*bytes, kSmi);
      gpu = {};
    }
  }
  return told;
}

// `nvidia-smi nvlink -s`: "GPU 0: NVIDIA H100 (UUID: ...)" and "Link 4: <inactive>"; -e: "Link 0: CRC Errors: 99121";
// -L: the GPUs alone.
std::size_t read_nvlink(std::string_view content, const std::string&, Machine& machine) {
  std::size_t told = 0;
  Ref<Gpu> gpu;
  for (const auto line : text::lines(content)) {
    const auto trimmed = text::trim(line);
    const auto colon = trimmed.find(':');
    if (colon == trimmed.npos) continue;
    if (trimmed.starts_with("GPU ")) {
      const auto ordinal = text::to_u32(text::trim(trimmed.substr(4, colon - 4)));
      gpu = ordinal ? gpu_numbered(machine, *ordinal, "NVIDIA") : Ref<Gpu>{};
      told += gpu ? 1 : 0;
      if (!gpu) continue;
      const auto uuid = trimmed.find(" (UUID:");
      const auto name = text::trim(trimmed.substr(colon + 1, uuid == trimmed.npos ? uuid : uuid - colon - 1));
      machine.gpus[gpu.index].model.learn(text::quote(name), kSmi);
      continue;
    }
    const auto index = trimmed.starts_with("Link ") ? text::to_u32(text::trim(trimmed.substr(5, colon - 5)))
                                                    : std::optional<std::uint32_t>{};
    if (!gpu || !index || *index > 255) continue;
    const auto value = text::trim(trimmed.substr(colon + 1));
    const bool inactive = value == "<inactive>";
    if (!inactive && !value.ends_with("GB/s")) continue;
    auto& links = machine.gpus[gpu.index].nvlinks;
    auto known = std::ranges::find_if(links, [&](const auto& one) { return one.index == *index; });
    if (known == links.end()) {
      links.emplace_back().index = *index;
      known = links.end() - 1;
    }
    known->active.learn(!inactive, kSmi);
  }
  return told;
}

// `nvidia-smi topo -p2p r`: rows "GPU0  X  CNS".
std::size_t read_topo_peers(std::string_view content, const std::string&, Machine& machine) {
  static const std::map<std::string_view, const char*> kWhy = {{"CNS", "chipset not supported"},
                                                               {"GNS", "GPU not supported"},
                                                               {"TNS", "topology not supported"},
                                                               {"NS", "not supported"},
                                                               {"DR", "disabled by a setting of the driver"},
                                                               {"U", "unknown"}};
  std::vector<std::uint32_t> columns;
  std::size_t read = 0;
  const auto number_of = [](std::string_view word) {
    return word.starts_with("GPU") ? text::to_u32(word.substr(3)) : std::optional<std::uint32_t>{};
  };
  for (const auto line : text::lines(content)) {
    const auto words = text::words(line);
    if (words.empty()) continue;
    const auto row = number_of(words[0]);
    if (columns.empty()) {
      for (const auto word : words) {
        if (const auto column = number_of(word)) columns.push_back(*column);
      }
      continue;
    }
    if (!row || words.size() != columns.size() + 1) continue;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const auto cell = words[c + 1];
      const auto why = kWhy.find(cell);
      if (columns[c] == *row || (cell != "OK" && why == kWhy.end())) continue;
      const auto from = gpu_numbered(machine, *row, "NVIDIA");
      const auto to = gpu_numbered(machine, columns[c], "NVIDIA");
      if (!from || !to) continue;
      if (machine.peers.size() >= kPeerLimit.most) {
        leave_out(machine, kPeerLimit);
        return read;
      }
      auto peer =
          std::ranges::find_if(machine.peers, [&](const auto& one) { return one.from == from && one.to == to; });
      if (peer == machine.peers.end()) {
        machine.peers.emplace_back();
        peer = machine.peers.end() - 1;
        peer->from = from;
        peer->to = to;
      }
      ++read;
      // It prints one matrix for reads, writes, NVLink or atomics, and not which: what is refused in one is refused.
      const bool allowed = cell == "OK";
      if (!peer->write || !allowed) peer->write.set(allowed, kSmi);
      if (!peer->read || !allowed) peer->read.set(allowed, kSmi);
      if (!allowed) peer->refusal.set(why->second, kSmi);
    }
  }
  return read;
}

// `rocm-smi --showtopo`: a table of link types, and "GPU[0] : (Topology) Numa Node: 0".
std::size_t read_rocm_smi(std::string_view content, const std::string&, Machine& machine) {
  std::vector<std::uint32_t> columns;
  std::size_t read = 0;
  bool types = false;
  std::set<std::pair<std::uint32_t, std::uint32_t>> linked;
  for (const auto line : text::lines(content)) {
    const auto words = text::words(line);
    if (words.empty()) continue;
    if (line.starts_with("====")) {
      types = line.find("Link Type") != line.npos;
      columns.clear();
      continue;
    }
    if (words[0].starts_with("GPU[") && line.find("Numa Node:") != line.npos) {
      const auto ordinal = text::leading_unsigned(words[0].substr(4));
      const auto node = text::to_u32(words.back());
      const auto gpu = ordinal && *ordinal < kMaxGpus
                           ? gpu_numbered(machine, static_cast<std::uint32_t>(*ordinal), "AMD")
                           : Ref<Gpu>{};
      if (!gpu) continue;
      ++read;
      if (node && *node <= 4095) machine.gpus[gpu.index].numa_node.learn(*node, kRocm);
      continue;
    }
    if (!types || !words[0].starts_with("GPU")) continue;
    const auto row = text::to_u32(words[0].substr(3));
    if (columns.empty() && words.size() > 1 && words[1].starts_with("GPU")) {
      for (const auto word : words) columns.push_back(text::to_u32(word.substr(3)).value_or(kMaxGpus));
      continue;
    }
    if (!row || words.size() != columns.size() + 1) continue;
    for (std::size_t c = 0; c < columns.size(); ++c) {
      if (words[c + 1] == "XGMI" && *row < columns[c] && columns[c] < kMaxGpus) linked.insert({*row, columns[c]});
    }
  }
  const bool have = !machine.links.empty();
  for (const auto& [a, b] : linked) {
    const auto from = gpu_numbered(machine, a, "AMD");
    const auto to = gpu_numbered(machine, b, "AMD");
    if (!from || !to || have) continue;
    auto& link = machine.links.emplace_back();
    link.kind = LinkKind::xgmi;
    link.a = {NodeKind::gpu, from.index};
    link.b = {NodeKind::gpu, to.index};
    link.count.set(1, kRocm);
  }
  return std::max(read, linked.size());
}

}  // namespace fairway::topology
