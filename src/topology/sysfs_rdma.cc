#include <algorithm>

#include <fmt/format.h>

#include "topology/port_errors.h"
#include "topology/sysfs.h"
#include "topology/text.h"

namespace fairway::topology {
namespace {

constexpr LimitOf kPkeyLimit{"partition keys of a port", 1024};

// "4: ACTIVE" -> "ACTIVE"
std::optional<std::string> after_colon(const std::optional<std::string>& content) {
  if (!content) return {};
  const auto colon = content->find(':');
  return text::quote(text::trim(colon == std::string::npos ? *content : content->substr(colon + 1)));
}

bool all_zero(std::string_view gid) {
  return gid.find_first_not_of("0:") == gid.npos;
}

void read_counters(FileTree& tree, Machine& machine, const std::string& directory, std::vector<Counter>& counters) {
  for (const auto& name : tree.list(directory)) {
    if (counters.size() >= kCounterLimit.most) return leave_out(machine, kCounterLimit);
    const auto value = tree.number(directory + "/" + name);
    // `lifespan` is how often the driver refreshes the others.
    if (value && name != "lifespan") counters.push_back({text::quote(name), *value, Source::sysfs});
  }
}

void read_gids(FileTree& tree, Machine& machine, const std::string& base, RdmaPort& port) {
  const bool ethernet = port.link_layer.value_or("") == "Ethernet";
  for (std::uint32_t i = 0;; ++i) {
    const auto index = std::to_string(i);
    const auto path = base + "/gids/" + index;
    if (i == kGidLimit.most) {
      if (exists(path)) leave_out(machine, kGidLimit);
      return;
    }
    const auto gid = tree.text(path);
    if (!gid) {
      if (!exists(path)) return;
      continue;
    }
    if (all_zero(*gid)) continue;
    auto& entry = port.gids.emplace_back();
    entry.index = i;
    entry.address.set(text::quote(*gid), Source::sysfs);
    entry.scope.set(gid_scope(*gid, ethernet), Source::sysfs);
    if (const auto type = tree.text(base + "/gid_attrs/types/" + index)) {
      entry.type.set(*type == "IB/RoCE v1" ? (ethernet ? "RoCE v1" : "IB") : text::quote(*type), Source::sysfs);
    }
    if (const auto interface = tree.text(base + "/gid_attrs/ndevs/" + index)) {
      entry.interface.set(text::quote(*interface), Source::sysfs);
    }
  }
}

void read_pkeys(FileTree& tree, Machine& machine, const std::string& base, RdmaPort& port) {
  std::vector<std::uint32_t> keys;
  for (std::uint32_t i = 0;; ++i) {
    if (i == kPkeyLimit.most) {
      if (exists(base + "/pkeys/" + std::to_string(i))) leave_out(machine, kPkeyLimit);
      break;
    }
    const auto key = tree.hex(base + "/pkeys/" + std::to_string(i));
    if (!key) break;
    if (*key != 0) keys.push_back(*key);
  }
  if (!keys.empty()) port.pkeys.set(std::move(keys), Source::sysfs);
}

RdmaPort read_port(FileTree& tree, Machine& machine, const std::string& base, std::uint32_t number) {
  RdmaPort port;
  port.number = number;
  if (const auto layer = tree.text(base + "/link_layer")) port.link_layer.set(text::quote(*layer), Source::sysfs);
  if (const auto state = after_colon(tree.text(base + "/state"))) port.state.set(*state, Source::sysfs);
  if (const auto state = after_colon(tree.text(base + "/phys_state"))) port.physical_state.set(*state, Source::sysfs);
  if (const auto content = tree.text(base + "/rate")) {
    if (const auto rate = parse_port_rate(*content); rate && rate->gbps > 0) {
      port.rate_gbps.set(rate->gbps, Source::sysfs);
      if (rate->lanes > 0) port.lanes.set(rate->lanes, Source::sysfs);
      if (!rate->speed_name.empty()) port.speed_name.set(rate->speed_name, Source::sysfs);
    }
  }
  tree.fill_hex(port.lid, base + "/lid");
  tree.fill_hex(port.sm_lid, base + "/sm_lid");
  tree.fill(port.lmc, base + "/lid_mask_count");
  read_gids(tree, machine, base, port);
  read_pkeys(tree, machine, base, port);
  read_counters(tree, machine, base + "/counters", port.counters);
  read_counters(tree, machine, base + "/hw_counters", port.hw_counters);
  for (const auto& gid : port.gids) {
    if (gid.interface && !port.interface) port.interface = gid.interface;
  }
  return port;
}

void join_interface(FileTree& tree, Machine& machine, const std::string& base, RdmaPort& port) {
  if (!port.interface) {
    // Interfaces of the same function; dev_port distinguishes the ports of older cards.
    for (const auto& name : tree.list(base + "/device/net")) {
      const auto dev_port = tree.number(base + "/device/net/" + name + "/dev_port").value_or(0);
      if (dev_port + 1 == port.number || port.number == 1) port.interface.learn(text::quote(name), Source::sysfs);
    }
  }
  if (port.link_layer.value_or("") != "Ethernet" || !port.interface) return;
  const auto ref = find_interface(machine, *port.interface);
  if (!ref || !machine.interfaces[ref.index].mtu) return;
  if (const auto mtu = roce_mtu(*machine.interfaces[ref.index].mtu)) port.active_mtu.learn(*mtu, Source::derived);
}

void read_device(FileTree& tree, Machine& machine, const std::string& directory, const std::string& name) {
  const auto base = directory + "/" + name;
  RdmaDevice device;
  device.name = text::quote(name);
  tree.fill(device.firmware, base + "/fw_ver");
  tree.fill(device.hca_type, base + "/hca_type");
  tree.fill(device.board_id, base + "/board_id");
  tree.fill(device.node_guid, base + "/node_guid");
  tree.fill(device.system_guid, base + "/sys_image_guid");
  // "1: CA", "4: RNIC" (iWARP), "7: unspecified" (EFA)
  if (const auto type = after_colon(tree.text(base + "/node_type"))) {
    device.transport.set(*type == "CA" ? "InfiniBand" : *type == "RNIC" ? "iWARP" : *type, Source::sysfs);
  }
  const auto parent = tree.text(base + "/parent");
  if (parent) {
    device.software.set(true, Source::sysfs);
  } else if (exists(base + "/device")) {
    device.software.set(false, Source::sysfs);
  }
  auto ports = tree.list(base + "/ports");
  std::ranges::sort(ports, text::natural_less);
  for (const auto& entry : ports) {
    const auto number = text::to_u32(entry);
    if (!number || *number == 0 || *number > 255) continue;
    auto& port = device.ports.emplace_back(read_port(tree, machine, base + "/ports/" + entry, *number));
    if (parent && !port.interface) port.interface.set(text::quote(*parent), Source::sysfs);
    join_interface(tree, machine, base, port);
  }
  auto& nic = machine.nics.emplace_back();
  nic.name = device.name;
  nic.rdma = Ref<RdmaDevice>(machine.rdma.size());
  // Without a `device` link the class entry itself points below its function.
  auto bus = FileTree::pci_function(base + "/device");
  if (!bus) bus = FileTree::pci_function(base);
  const auto function = bus && !parent ? find_pci(machine, *bus) : Ref<PciDevice>{};
  if (function) nic.functions.push_back(function);
  if (function && !device.software) device.software.set(false, Source::sysfs);
  machine.rdma.push_back(std::move(device));
}

}  // namespace

std::string gid_scope(std::string_view gid, bool ethernet) {
  if (!ethernet) return "InfiniBand";
  const auto s = text::lower(gid);
  if (s.starts_with("fe80")) return "link-local";
  // ::ffff:a.b.c.d, whole or shortened
  if (s.starts_with("0000:0000:0000:0000:0000:ffff:") || s.starts_with("::ffff:")) return "IPv4";
  return "IPv6";
}

std::vector<Counter> read_port_counters(const std::string& sys, const std::string& device, std::uint32_t port) {
  Machine notes;  // notes about what could not be read are dropped
  FileTree tree(sys, "", notes);
  const auto base = fmt::format("{}/class/infiniband/{}/ports/{}", sys, device, port);
  std::vector<Counter> counters;
  read_counters(tree, notes, base + "/counters", counters);
  read_counters(tree, notes, base + "/hw_counters", counters);
  return counters;
}

void read_sysfs_rdma(FileTree& tree, Machine& machine, const std::string& directory) {
  auto names = tree.list(directory);
  std::ranges::sort(names, text::natural_less);
  if (names.size() > kRdmaLimit.most) {
    leave_out(machine, kRdmaLimit);
    names.resize(kRdmaLimit.most);
  }
  for (const auto& name : names) {
    // A link whose target was not captured still names the device and its function.
    const auto entry = directory + "/" + name;
    if (is_directory(entry + "/ports") || (read_link(entry) && FileTree::pci_function(entry)))
      read_device(tree, machine, directory, name);
  }
}

}  // namespace fairway::topology
