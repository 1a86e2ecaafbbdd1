#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <fmt/format.h>

#include "topology/commands/command_text.h"
#include "topology/pci.h"
#include "topology/sysfs.h"
#include "topology/text.h"

namespace fairway::topology {
namespace {

constexpr auto kLspci = Source::lspci;

// lspci's words for the classes that matter here (pci.ids, "List of known device classes").
std::optional<std::uint32_t> class_from(std::string_view words) {
  static constexpr std::array<std::pair<std::string_view, std::uint32_t>, 12> kClasses{{
      {"Ethernet controller", 0x020000},
      {"Infiniband controller", 0x020700},
      {"InfiniBand controller", 0x020700},
      {"Network controller", 0x028000},
      {"Fabric controller", 0x020800},
      {"3D controller", 0x030200},
      {"VGA compatible controller", 0x030000},
      {"Processing accelerators", 0x120000},
      {"PCI bridge", 0x060400},
      {"Bridge", 0x068000},  // NVSwitches are such
      {"Display controller", 0x038000},
      {"Non-Volatile memory controller", 0x010800},
  }};
  for (const auto& [name, code] : kClasses) {
    if (words == name) return code;
  }
  return {};
}

std::optional<std::uint32_t> vendor_from(std::string_view name) {
  static constexpr std::array<std::pair<std::string_view, std::uint32_t>, 9> kVendors{{
      {"Mellanox Technologies", kVendorMellanox},
      {"NVIDIA Corporation", kVendorNvidia},
      {"Advanced Micro Devices, Inc. [AMD/ATI]", kVendorAmd},
      {"Amazon.com, Inc.", kVendorAmazon},
      {"Red Hat, Inc.", kVendorVirtio},
      {"Intel Corporation", 0x8086},
      {"Habana Labs", kVendorHabana},
      {"MetaX", kVendorMetax},
      {"Google, Inc.", kVendorGoogle},
  }};
  for (const auto& [known, id] : kVendors) {
    if (name.starts_with(known)) return id;
  }
  return {};
}

// "[0200]" and "[15b3:a2dc]", which `lspci -nn` adds.
void read_ids(std::string_view line, PciDevice& device) {
  for (std::size_t at = line.find('['); at != line.npos; at = line.find('[', at + 1)) {
    const auto close = line.find(']', at);
    if (close == line.npos) return;
    const auto inside = line.substr(at + 1, close - at - 1);
    if (inside.size() == 4) {
      if (const auto code = text::to_hex(inside)) device.class_code.set(static_cast<std::uint32_t>(*code << 8), kLspci);
    } else if (inside.size() == 9 && inside[4] == ':') {
      const auto vendor = text::to_hex(inside.substr(0, 4));
      const auto id = text::to_hex(inside.substr(5));
      if (vendor) device.vendor_id.set(static_cast<std::uint32_t>(*vendor), kLspci);
      if (id) device.device_id.set(static_cast<std::uint32_t>(*id), kLspci);
    }
  }
}

// "0302: 10de:2330 (rev a1)", as `lspci -n` has it; "Class 0302: Device 10de:2330" where no pci.ids is installed.
void read_numbers(std::string_view kind, std::string_view model, PciDevice& device) {
  if (kind.starts_with("Class ")) kind = text::trim(kind.substr(6));
  if (model.starts_with("Device ")) model = text::trim(model.substr(7));
  if (const auto blank = model.find(' '); blank != model.npos) model = model.substr(0, blank);
  const auto code = kind.size() == 4 ? text::to_hex(kind) : std::nullopt;
  if (code) device.class_code.learn(static_cast<std::uint32_t>(*code << 8U), kLspci);
  if (model.size() != 9 || model[4] != ':') return;
  const auto vendor = text::to_hex(model.substr(0, 4));
  const auto id = text::to_hex(model.substr(5));
  if (!vendor || !id) return;
  device.vendor_id.learn(static_cast<std::uint32_t>(*vendor), kLspci);
  device.device_id.learn(static_cast<std::uint32_t>(*id), kLspci);
}

// "LnkSta: Speed 32GT/s, Width x16 (ok)" and LnkCap alike.
void read_link(std::string_view line, Fact<double>& speed, Fact<std::uint32_t>& width) {
  const auto speed_at = line.find("Speed ");
  const auto width_at = line.find("Width x");
  if (speed_at != line.npos) {
    const auto gts = text::leading_double(line.substr(speed_at + 6));
    if (gts && *gts >= 0 && *gts <= 1000) speed.learn(*gts, kLspci);
  }
  if (width_at != line.npos) {
    const auto lanes = text::leading_unsigned(line.substr(width_at + 7));
    if (lanes && *lanes <= 64) width.learn(static_cast<std::uint32_t>(*lanes), kLspci);
  }
}

// "Bus: primary=00, secondary=01, subordinate=05, sec-latency=0"
std::optional<BusesBelow> buses_below(std::string_view line) {
  const auto number = [line](std::string_view name) -> std::optional<std::uint8_t> {
    const auto at = line.find(name);
    if (at == line.npos || at + name.size() + 2 > line.size()) return {};
    const auto value = text::to_hex(line.substr(at + name.size(), 2));
    return value && *value <= 0xff ? std::optional(static_cast<std::uint8_t>(*value)) : std::nullopt;
  };
  const auto first = number("secondary=");
  const auto last = number("subordinate=");
  if (!first || !last) return {};
  return BusesBelow{*first, *last};
}

// "Capabilities: [68] Express (v2) Downstream Port (Slot+), MSI 00"
std::optional<PciKind> port_kind(std::string_view line) {
  if (line.find("Express") == line.npos) return {};
  if (line.find("Root Port") != line.npos) return PciKind::root_port;
  if (line.find("Upstream Port") != line.npos) return PciKind::switch_upstream;
  if (line.find("Downstream Port") != line.npos) return PciKind::switch_downstream;
  return {};
}

void read_heading(std::string_view line, const BusId& bus, std::size_t prefix, Machine& machine,
                  std::map<BusId, std::size_t>& index, const std::string& place) {
  PciDevice device;
  device.bus_id = bus;
  auto rest = text::trim(line.substr(prefix));
  const auto colon = rest.find(": ");
  auto kind = colon == rest.npos ? rest : rest.substr(0, colon);
  if (const auto bracket = kind.find(" ["); bracket != kind.npos) kind = kind.substr(0, bracket);
  if (const auto code = class_from(kind)) device.class_code.set(*code, kLspci);
  read_numbers(kind, colon == rest.npos ? std::string_view{} : rest.substr(colon + 2), device);
  read_ids(line, device);
  if (is_pci_bridge(device.class_code.value_or(0))) device.kind = PciKind::bridge;
  if (colon != rest.npos) {
    auto model = text::trim(rest.substr(colon + 2));
    if (const auto revision = model.rfind(" (rev "); revision != model.npos) model = model.substr(0, revision);
    // `lspci -nn` ends with "[15b3:1021]": read as ids above, and no part of the name.
    if (model.size() > 12 && model.ends_with(']') && model[model.size() - 11] == '[' &&
        model[model.size() - 6] == ':') {
      model = text::trim(model.substr(0, model.size() - 11));
    }
    if (const auto id = vendor_from(model)) device.vendor_id.learn(*id, kLspci);
    // "NVIDIA Corporation Device 31c2": pci.ids has no name for it.
    if (const auto at = model.rfind(" Device "); at != model.npos && device.vendor_id && model.size() == at + 12) {
      if (const auto id = text::to_hex(model.substr(at + 8))) {
        device.device_id.learn(static_cast<std::uint32_t>(*id), kLspci);
        model = model.substr(0, at + 7);
      }
    }
    // An lspci older than the device knows its vendor alone: "NVIDIA Corporation Device".
    const bool unnamed = model.ends_with(" Device") && device.vendor_id && device.device_id;
    const auto by_ids = unnamed ? pci_device_name(*device.vendor_id, *device.device_id) : std::nullopt;
    // Of ids alone there is no name: the table has it.
    const bool bare = device.device_id && (model.starts_with("Device ") || model.find(' ') == model.npos);
    if (by_ids || !bare) device.device_name.set(by_ids ? *by_ids : text::quote(model, 120), kLspci);
  }
  const auto known = index.find(bus);
  if (known != index.end()) {
    auto& first = machine.pci[known->second];
    if (!first.device_name) {
      first.device_name = device.device_name;
    } else if (device.device_name && *first.device_name != *device.device_name) {
      add_note(machine, NoteKind::conflict, bus.to_string(),
               fmt::format("{} calls it \"{}\", before it was \"{}\": the first is kept", place, *device.device_name,
                           *first.device_name));
    }
    return;
  }
  if (machine.pci.size() >= kMaxPciDevices) {
    return leave_out(machine, kPciDeviceLimit);
  }
  index[bus] = machine.pci.size();
  machine.pci.push_back(std::move(device));
}

}  // namespace

std::size_t read_lspci(std::string_view content, const std::string& place, Machine& machine) {
  std::map<BusId, std::size_t> index;
  for (std::size_t i = 0; i < machine.pci.size(); ++i) index[machine.pci[i].bus_id] = i;
  std::optional<std::size_t> current;
  std::map<BusId, BusesBelow> bridges;
  std::size_t read = 0;
  for (const auto line : text::lines(content)) {
    const auto words = text::words(line);
    if (words.empty()) continue;
    const auto bus = BusId::parse(words[0]);
    if (bus && line.front() != ' ' && line.front() != '\t') {
      read_heading(line, *bus, words[0].size(), machine, index, place);
      ++read;
      const auto found = index.find(*bus);
      current = found == index.end() ? std::nullopt : std::optional(found->second);
      continue;
    }
    if (!current) continue;
    auto& device = machine.pci[*current];
    const auto trimmed = text::trim(line);
    if (trimmed.starts_with("LnkSta:")) read_link(trimmed, device.link.speed_gts, device.link.width);
    if (trimmed.starts_with("LnkCap:")) read_link(trimmed, device.link.max_speed_gts, device.link.max_width);
    if (trimmed.starts_with("Bus: primary=")) {
      if (const auto buses = buses_below(trimmed)) bridges[device.bus_id] = *buses;
    }
    if (trimmed.starts_with("Capabilities:")) {
      if (const auto kind = port_kind(trimmed)) device.kind = *kind;
    }
    if (trimmed.starts_with("NUMA node:")) {
      const auto node = text::to_u32(text::trim(trimmed.substr(10)));
      if (node && *node <= 4095) device.numa_node.learn(*node, kLspci);
    }
    if (const auto at = trimmed.find("SMDL="); at != trimmed.npos)
      device.purpose.learn(text::quote(text::trim(trimmed.substr(at + 5)), 40), kLspci);
    if (trimmed.starts_with("Kernel driver in use:"))
      device.driver.learn(text::quote(text::trim(trimmed.substr(21))), kLspci);
  }
  place_by_buses(bridges, place, machine);
  return read;
}

// The PCI tree from what `lspci -vvv` says of each bridge: the buses below it.

namespace {

constexpr auto kLspciTree = Source::lspci;

// NUMA nodes that only devices name: a number, without CPUs or socket.
void add_nodes(Machine& machine) {
  if (!machine.numa_nodes.empty()) return;
  std::set<std::uint32_t> numbers;
  for (const auto& device : machine.pci) {
    if (device.numa_node && device.numa_node.source == kLspciTree) numbers.insert(*device.numa_node);
  }
  for (const auto number : numbers) {
    auto& node = machine.numa_nodes.emplace_back();
    node.os_index = number;
  }
}

}  // namespace

void place_by_buses(const std::map<BusId, BusesBelow>& bridges, const std::string& place, Machine& machine) {
  if (bridges.empty()) return;
  std::map<BusId, Ref<PciDevice>> index;
  for (std::size_t i = 0; i < machine.pci.size(); ++i) index[machine.pci[i].bus_id] = Ref<PciDevice>(i);
  std::map<std::pair<std::uint32_t, std::uint8_t>, Ref<PciDevice>> above;  // the bridge above a bus
  for (const auto& [bus_id, buses] : bridges) {
    const auto found = index.find(bus_id);
    // A bridge that leads to its own bus or upwards would be a cycle.
    if (found == index.end() || buses.first <= bus_id.bus || buses.last < buses.first) continue;
    const auto [there, fresh] = above.try_emplace({bus_id.domain, buses.first}, found->second);
    if (!fresh) {
      add_note(machine, NoteKind::conflict, bus_id.to_string(),
               fmt::format("{}: leads to bus {:02x}, as {} does: the first is kept", place, buses.first,
                           machine.pci[there->second.index].bus_id.to_string()));
    }
  }
  std::map<std::pair<std::uint32_t, std::uint8_t>, Ref<HostBridge>> roots;
  for (std::size_t i = 0; i < machine.host_bridges.size(); ++i)
    roots[{machine.host_bridges[i].domain, machine.host_bridges[i].bus}] = Ref<HostBridge>(i);
  for (auto& device : machine.pci) {
    if (device.parent || device.host_bridge) continue;  // another output placed it
    const auto found = above.find({device.bus_id.domain, device.bus_id.bus});
    if (found != above.end()) {
      device.parent = found->second;
      continue;
    }
    // A bus without a bridge above it is a root bus.
    const auto [root, fresh] =
        roots.try_emplace({device.bus_id.domain, device.bus_id.bus}, Ref<HostBridge>(machine.host_bridges.size()));
    if (fresh) {
      auto& bridge = machine.host_bridges.emplace_back();
      bridge.domain = device.bus_id.domain;
      bridge.bus = bridge.last_bus = device.bus_id.bus;
    }
    device.host_bridge = root->second;
    if (const auto below = bridges.find(device.bus_id); below != bridges.end()) {
      auto& last = machine.host_bridges[root->second.index].last_bus;
      last = std::max(last, below->second.last);
    }
  }
  // Without capabilities the kinds of ports follow from the tree.
  bool named = false;
  for (const auto& device : machine.pci)
    named = named || device.kind == PciKind::root_port || device.kind == PciKind::switch_upstream;
  if (!named) classify_bridges(machine);
  // Drop devices that no path uses.
  std::vector<PciDevice> kept;
  std::vector<Ref<PciDevice>> moved(machine.pci.size());
  for (std::size_t i = 0; i < machine.pci.size(); ++i) {
    const auto& device = machine.pci[i];
    if (device.kind == PciKind::endpoint && !is_kept(device.class_code.value_or(0), device.vendor_id.value_or(0)))
      continue;
    moved[i] = Ref<PciDevice>(kept.size());
    kept.push_back(device);
  }
  for (auto& device : kept) {
    if (device.parent) device.parent = moved[device.parent.index];
  }
  machine.pci = std::move(kept);
  drop_empty_bridges(machine);
  add_nodes(machine);
  add_note(machine, NoteKind::inferred, "",
           fmt::format("{}: the PCI tree is built from the bus numbers of its bridges", place));
}

}  // namespace fairway::topology
