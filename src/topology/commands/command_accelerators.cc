#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "topology/commands/command_text.h"
#include "topology/pci.h"
#include "topology/text.h"

// What amd-smi, mx-smi and hl-smi say of their makers' accelerators.
namespace fairway::topology {
namespace {

constexpr auto kSource = Source::sysfs;  // where these tools read it
constexpr GpuMaker kAmd{"AMD", kVendorAmd, 0x120000};
constexpr GpuMaker kMetax{"MetaX", kVendorMetax, 0x030200};
constexpr GpuMaker kHabana{"Habana", kVendorHabana, 0x120000};

// A table headed by bus ids, or by GPU0, GPU1: the cell of each pair.
class Table {
 public:
  // The columns; false: it is no heading.
  template <class Column>
  bool begin(const std::vector<std::string_view>& words, Column column) {
    std::vector<Ref<Gpu>> columns;
    for (const auto word : words) {
      const auto gpu = column(word, columns.size());
      if (!gpu || columns.size() >= kMaxGpus) return false;
      columns.push_back(gpu);
    }
    columns_ = std::move(columns);
    return !columns_.empty();
  }
  [[nodiscard]] bool is_row(const std::vector<std::string_view>& words) const {
    return !columns_.empty() && words.size() == columns_.size() + 1;
  }
  [[nodiscard]] Ref<Gpu> column(std::size_t i) const { return columns_[i]; }
  [[nodiscard]] std::size_t size() const { return columns_.size(); }
  // The column of a GPU's bus id.
  [[nodiscard]] Ref<Gpu> at(const Machine& machine, const BusId& bus) const {
    for (const auto gpu : columns_) {
      const auto pci = machine.gpus[gpu.index].pci;
      if (pci && machine.pci[pci.index].bus_id == bus) return gpu;
    }
    return {};
  }
  void end() { columns_.clear(); }

 private:
  std::vector<Ref<Gpu>> columns_;
};

void add_link(Machine& machine, LinkKind kind, Ref<Gpu> a, Ref<Gpu> b) {
  auto& link = machine.links.emplace_back();
  link.kind = kind;
  link.a = {NodeKind::gpu, a.index};
  link.b = {NodeKind::gpu, b.index};
  link.count.set(1, kSource);
}

// "ENABLED" and "DISABLED" of the access table.
void learn_access(Machine& machine, Ref<Gpu> from, Ref<Gpu> to, bool allowed) {
  if (from == to) return;
  if (machine.peers.size() >= kPeerLimit.most) return leave_out(machine, kPeerLimit);
  auto& peer = machine.peers.emplace_back();
  peer.from = from;
  peer.to = to;
  peer.read.set(allowed, kSource);
  peer.write.set(allowed, kSource);
  if (!allowed) peer.refusal.set("disabled", kSource);
}

}  // namespace

// Blocks of "GPU: 0" and "    BDF: 0000:0c:00.0", and tables "LINK TYPE TABLE:" whose rows and columns are bus ids.
std::size_t read_amd_smi(std::string_view content, const std::string&, Machine& machine) {
  std::set<std::uint32_t> told;
  const bool have_links = has_gpu_links(machine);
  const bool have_peers = !machine.peers.empty();
  std::string_view table_name;
  std::string_view section;
  std::optional<std::uint32_t> ordinal;
  Ref<Gpu> gpu;
  Table table;
  for (const auto line : text::lines(content)) {
    const auto trimmed = text::trim(line);
    const auto words = text::words(trimmed);
    if (words.empty()) continue;
    if (trimmed.ends_with(" TABLE:")) {
      table_name = trimmed.substr(0, trimmed.size() - 7);
      table.end();
      continue;
    }
    if (trimmed.starts_with("GPU: ")) {
      ordinal = text::to_u32(trimmed.substr(5));
      gpu = {};
      continue;
    }
    const auto bus = BusId::parse(words.front());
    if (bus && !table_name.empty()) {
      if (table.is_row(words)) {
        const auto row = table.at(machine, *bus);
        for (std::size_t c = 0; row && c < table.size(); ++c) {
          const auto cell = words[c + 1];
          const auto column = table.column(c);
          if (table_name == "LINK TYPE" && cell == "XGMI" && row.index < column.index && !have_links)
            add_link(machine, LinkKind::xgmi, row, column);
          if (table_name == "ACCESS" && !have_peers && (cell == "ENABLED" || cell == "DISABLED"))
            learn_access(machine, row, column, cell == "ENABLED");
        }
        continue;
      }
      // The GPUs stand in the order of their numbers.
      table.begin(words, [&](std::string_view word, std::size_t place) {
        const auto column = BusId::parse(word);
        const auto found = column ? gpu_at(machine, *column, static_cast<std::uint32_t>(place), kAmd) : Ref<Gpu>{};
        if (found) told.insert(found.index);
        return found;
      });
      continue;
    }
    const auto colon = trimmed.find(':');
    if (colon == trimmed.npos || !ordinal) continue;
    const auto key = text::trim(trimmed.substr(0, colon));
    const auto value = text::trim(trimmed.substr(colon + 1));
    if (value.empty()) {
      section = key;
      continue;
    }
    if (key == "BDF") {
      const auto at = BusId::parse(value);
      gpu = at ? gpu_at(machine, *at, *ordinal, kAmd) : Ref<Gpu>{};
    } else if (!gpu && (key == "MARKET_NAME" || key == "NODE")) {
      gpu = gpu_numbered(machine, *ordinal, kAmd.name);
    }
    if (!gpu) continue;
    told.insert(gpu.index);
    auto& known = machine.gpus[gpu.index];
    if (key == "MARKET_NAME" && value != "N/A") known.model.learn(text::quote(value), kSource);
    const auto node = text::to_u32(value);
    if (section == "NUMA" && key == "NODE" && node && *node <= 4095) known.numa_node.learn(*node, kSource);
    if (!known.pci) continue;
    auto& link = machine.pci[known.pci.index].link;
    const auto number = text::leading_double(value);
    if (key == "MAX_PCIE_WIDTH" && node && *node > 0 && *node <= 32) link.max_width.learn(*node, kSource);
    if (section == "PCIE" && key == "WIDTH" && node && *node > 0 && *node <= 32) link.width.learn(*node, kSource);
    if (key == "MAX_PCIE_SPEED" && number && *number > 0 && *number <= 128) link.max_speed_gts.learn(*number, kSource);
    if (section == "PCIE" && key == "SPEED" && number && *number > 0 && *number <= 128)
      link.speed_gts.learn(*number, kSource);
  }
  return told.size();
}

// "| 0           MetaX C550             | 0000:0f:00.0        | 0%  |", and the matrix of `mx-smi topo -m`, in which MX
// is MetaXLink: what it carries is not known here, so such a pair has no class.
std::size_t read_mx_smi(std::string_view content, const std::string& place, Machine& machine) {
  std::set<std::uint32_t> told;
  std::size_t links = 0;
  Table table;
  for (const auto line : text::lines(content)) {
    const auto cells = text::split(line, '|');
    if (cells.size() > 3) {
      const auto left = text::words(cells[1]);
      const auto ordinal = left.empty() ? std::nullopt : text::to_u32(left.front());
      const auto middle = text::words(cells[2]);
      const auto bus = middle.empty() ? std::nullopt : BusId::parse(middle.front());
      const auto gpu = ordinal && bus ? gpu_at(machine, *bus, *ordinal, kMetax) : Ref<Gpu>{};
      if (!gpu) continue;
      told.insert(gpu.index);
      std::string name;
      for (std::size_t i = 1; i < left.size() && left[i] != "Off" && left[i] != "On"; ++i)
        name += (name.empty() ? "" : " ") + std::string(left[i]);
      if (!name.empty()) machine.gpus[gpu.index].model.learn(text::quote(name), kSource);
      continue;
    }
    const auto words = text::words(line);
    if (words.empty() || !words.front().starts_with("GPU")) continue;
    if (table.is_row(words)) {
      const auto row = text::to_u32(words.front().substr(3));
      const auto gpu = row ? find_gpu(machine, *row) : Ref<Gpu>{};
      for (std::size_t c = 0; gpu && c < table.size(); ++c)
        links += words[c + 1] == "MX" && gpu.index < table.column(c).index ? 1U : 0U;
      continue;
    }
    table.begin(words, [&](std::string_view word, std::size_t) {
      const auto ordinal = word.starts_with("GPU") ? text::to_u32(word.substr(3)) : std::nullopt;
      const auto gpu = ordinal ? gpu_numbered(machine, *ordinal, kMetax.name) : Ref<Gpu>{};
      if (gpu) told.insert(gpu.index);
      return gpu;
    });
  }
  if (links > 0)
    add_note(machine, NoteKind::unknown, "MetaXLink",
             fmt::format("{}: {} are joined by it; its rate is not known here", place, text::count(links, "pair")));
  return told.size();
}

namespace {

// "0, HL-225, 0000:19:00.0" below "index, name, bus_id"; `place` is its number where no column has one.
Ref<Gpu> queried_module(const std::vector<std::string_view>& heading, const std::vector<std::string_view>& row,
                        std::uint32_t place, Machine& machine) {
  const auto cell = [&](std::string_view name) {
    const auto at = std::ranges::find(heading, name) - heading.begin();
    return static_cast<std::size_t>(at) < row.size() && row.size() == heading.size() ? row[static_cast<std::size_t>(at)]
                                                                                     : std::string_view{};
  };
  const auto bus = BusId::parse(cell("bus_id"));
  if (!bus) return {};
  const auto gpu = gpu_at(machine, *bus, text::to_u32(cell("index")).value_or(place), kHabana);
  if (gpu && !cell("name").empty()) machine.gpus[gpu.index].model.learn(text::quote(cell("name")), kSource);
  return gpu;
}

}  // namespace

// "| 0     910B3   | OK            | 94.5 ..." and "| 0               | 0000:C1:00.0  | ...": Huawei's accelerators, of
// which no more than name and place is known here.
std::size_t read_npu_smi(std::string_view content, const std::string&, Machine& machine) {
  std::string_view name;
  std::size_t read = 0;
  for (const auto line : text::lines(content)) {
    const auto cells = text::split(line, '|');
    if (cells.size() < 4) continue;
    const auto left = text::words(cells[1]);
    if (left.empty() || !text::to_u32(left.front())) continue;
    if (left.size() > 1) name = left[1];
    const auto bus = BusId::parse(text::trim(cells[2]));
    if (!bus) continue;
    ++read;
    auto function = find_pci(machine, *bus);
    if (!function) {
      if (machine.pci.size() >= kMaxPciDevices) {
        leave_out(machine, kPciDeviceLimit);
        continue;
      }
      function = Ref<PciDevice>(machine.pci.size());
      machine.pci.emplace_back().bus_id = *bus;
    }
    auto& device = machine.pci[function.index];
    device.vendor_id.learn(kVendorHuawei, kSource);
    device.class_code.learn(0x120000, kSource);
    if (!name.empty()) device.device_name.learn("Ascend " + text::quote(name), kSource);
  }
  return read;
}

// "|   0  HL-225              N/A  | 0000:43:00.0     N/A |                   0  |"
std::size_t read_hl_smi(std::string_view content, const std::string&, Machine& machine) {
  std::set<std::uint32_t> told;
  Ref<Gpu> gpu;
  std::vector<std::string_view> heading;  // of -Q
  for (const auto line : text::lines(content)) {
    if (line.find("bus_id") != line.npos) heading = comma_cells(line);
    if (!heading.empty() && line.find('|') == line.npos) {
      if (const auto queried =
              queried_module(heading, comma_cells(line), static_cast<std::uint32_t>(told.size()), machine))
        told.insert(queried.index);
      continue;
    }
    const auto cells = text::split(line, '|');
    if (cells.size() < 4) continue;
    const auto left = text::words(cells[1]);
    const auto middle = text::words(cells[2]);
    const auto ordinal = left.empty() ? std::nullopt : text::to_u32(left.front());
    const auto bus = middle.empty() ? std::nullopt : BusId::parse(middle.front());
    if (ordinal && bus && left.size() > 1) {
      gpu = gpu_at(machine, *bus, *ordinal, kHabana);
      if (!gpu) continue;
      told.insert(gpu.index);
      machine.gpus[gpu.index].model.learn(text::quote(left[1]), kSource);
    } else if (gpu && middle.size() == 3 && middle[1] == "/") {
      if (const auto bytes = bytes_of_mib(middle[2])) machine.gpus[gpu.index].memory_bytes.learn(*bytes, kSource);
      gpu = {};
    }
  }
  return told.size();
}

}  // namespace fairway::topology
