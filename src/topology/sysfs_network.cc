#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "topology/sysfs.h"
#include "topology/text.h"

namespace fairway::topology {
namespace {

constexpr std::uint64_t kArpLoopback = 772;  // ARPHRD_LOOPBACK

InterfaceKind kind_of(FileTree& tree, const std::string& name, const std::string& base, bool has_device) {
  if (tree.number(base + "/type") == kArpLoopback) return InterfaceKind::loopback;
  if (exists(base + "/bonding")) return InterfaceKind::bond;
  if (exists(base + "/bridge")) return InterfaceKind::bridge;
  if (exists(base + "/tun_flags")) return InterfaceKind::tun;
  if (const auto uevent = tree.text(base + "/uevent")) {
    for (const auto line : text::lines(*uevent)) {
      if (line == "DEVTYPE=vlan") return InterfaceKind::vlan;
      if (line == "DEVTYPE=bond") return InterfaceKind::bond;
      if (line == "DEVTYPE=bridge") return InterfaceKind::bridge;
      if (line == "DEVTYPE=macvlan" || line == "DEVTYPE=ipvlan") return InterfaceKind::macvlan;
      if (line == "DEVTYPE=vrf") return InterfaceKind::other;
      if (line == "DEVTYPE=vxlan" || line == "DEVTYPE=geneve" || line == "DEVTYPE=wireguard")
        return InterfaceKind::tunnel;
    }
  }
  if (has_device) return InterfaceKind::physical;
  // macvlan and ipvlan name what is below them by a link lower_NAME, and have no kind of their own there.
  for (const auto& entry : tree.list(base)) {
    if (entry.starts_with("lower_")) return InterfaceKind::macvlan;
  }
  if (name.starts_with("veth")) return InterfaceKind::veth;
  if (name.starts_with("ifb") || name.starts_with("dummy")) return InterfaceKind::dummy;
  // The peer of a veth has another index or another namespace; a plain virtual device links to itself.
  const auto own = tree.number(base + "/ifindex");
  const auto other = tree.number(base + "/iflink");
  if (own && other && *own != *other && *other != 0) return InterfaceKind::veth;
  if (other == 0U) return InterfaceKind::tunnel;
  return InterfaceKind::other;
}

void read_interface(FileTree& tree, Machine& machine, const std::string& name) {
  const auto base = tree.sys("class/net/" + name);
  auto& interface = machine.interfaces.emplace_back();
  interface.name = text::quote(name);
  const bool has_device = exists(base + "/device");
  interface.kind = kind_of(tree, name, base, has_device);
  if (has_device) {
    if (const auto bus = FileTree::pci_function(base + "/device")) interface.pci = find_pci(machine, *bus);
    if (const auto driver = FileTree::link_name(base + "/device/driver")) interface.driver.set(*driver, Source::sysfs);
    const auto node = tree.text(base + "/device/numa_node");
    const auto value = node ? text::to_u32(*node) : std::nullopt;
    if (value && *value <= 4095) interface.numa_node.set(*value, Source::sysfs);
  }
  if (const auto master = FileTree::link_name(base + "/master"))
    interface.master.set(text::quote(*master), Source::sysfs);
  if (const auto state = tree.text(base + "/operstate"))
    interface.state.set(text::lower(text::quote(*state)), Source::sysfs);
  if (const auto carrier = tree.number(base + "/carrier")) interface.carrier.set(*carrier == 1, Source::sysfs);
  tree.fill(interface.mtu, base + "/mtu");
  // Mb/s; -1 if unknown, an error while the link is down. Loopback and virtual interfaces have none.
  const auto speed = tree.text(base + "/speed");
  const auto mbps = speed ? text::to_double(*speed) : std::nullopt;
  if (mbps && *mbps > 0 && *mbps < 1e8 && *mbps != 4294967295.0)
    interface.speed_gbps.set(*mbps / 1000.0, Source::sysfs);
  if (interface.kind != InterfaceKind::loopback) tree.fill(interface.mac, base + "/address");
}

// Legs from sysfs, for a captured tree without /proc.
void read_sysfs_bond(FileTree& tree, Machine& machine, Ref<NetInterface> ref) {
  const auto base = tree.sys("class/net/" + machine.interfaces[ref.index].name + "/bonding/");
  Bond bond;
  bond.interface = ref;
  if (const auto mode = tree.text(base + "mode")) {
    bond.mode.set(text::quote(mode->substr(0, mode->find(' '))), Source::sysfs);
  }
  if (const auto policy = tree.text(base + "xmit_hash_policy")) {
    bond.hash_policy.set(text::quote(policy->substr(0, policy->find(' '))), Source::sysfs);
  }
  if (const auto active = tree.text(base + "active_slave"); active && !active->empty())
    bond.active_leg.set(text::quote(*active), Source::sysfs);
  if (const auto names = tree.text(base + "slaves")) {
    for (const auto name : text::words(*names)) {
      const auto leg_ref = find_interface(machine, name);
      if (!leg_ref) continue;
      const auto& interface = machine.interfaces[leg_ref.index];
      auto& leg = bond.legs.emplace_back();
      leg.interface = leg_ref;
      leg.up = interface.carrier;
      leg.speed_gbps = interface.speed_gbps;
    }
  }
  machine.bonds.push_back(std::move(bond));
}

// What everybody may read of a bond in sysfs and /proc says to root alone: its aggregators, and how links are watched.
void add_sysfs_aggregators(FileTree& tree, Machine& machine, Bond& bond) {
  const auto base = tree.sys("class/net/" + machine.interfaces[bond.interface.index].name + "/bonding/");
  if (!bond.active_aggregator) tree.fill(bond.active_aggregator, base + "ad_aggregator");
  if (!bond.watch_ms) {
    const auto mii = tree.number(base + "miimon");
    const auto arp = tree.number(base + "arp_interval");
    if (mii) bond.watch_ms.set(static_cast<std::uint32_t>(std::max(*mii, arp.value_or(0))), Source::sysfs);
  }
  for (auto& leg : bond.legs) {
    const auto path = tree.sys("class/net/" + machine.interfaces[leg.interface.index].name + "/bonding_slave/");
    if (!leg.aggregator) tree.fill(leg.aggregator, path + "ad_aggregator_id");
  }
}

// "IEEE 802.3ad Dynamic link aggregation" and its siblings to the kernel's short names.
std::string short_mode(std::string_view words) {
  if (words.find("802.3ad") != words.npos) return "802.3ad";
  if (words.find("active-backup") != words.npos) return "active-backup";
  if (words.find("round-robin") != words.npos) return "balance-rr";
  if (words.find("xor") != words.npos) return "balance-xor";
  if (words.find("broadcast") != words.npos) return "broadcast";
  if (words.find("transmit") != words.npos) return "balance-tlb";
  if (words.find("adaptive") != words.npos) return "balance-alb";
  return text::quote(words);
}

Ref<NetInterface> interface_named(Machine& machine, const std::string& name, InterfaceKind kind) {
  if (const auto known = find_interface(machine, name)) return known;
  auto& interface = machine.interfaces.emplace_back();
  interface.name = name;
  interface.kind = kind;
  return Ref<NetInterface>(machine.interfaces.size() - 1);
}

}  // namespace

namespace {

void read_one_bond(std::string_view content, const std::string& bond_name, Source source, Machine& machine) {
  Bond bond;
  bond.interface = interface_named(machine, bond_name, InterfaceKind::bond);
  machine.interfaces[bond.interface.index].kind = InterfaceKind::bond;
  BondLeg* leg = nullptr;
  for (const auto line : text::lines(content)) {
    const auto colon = line.find(':');
    if (colon == line.npos) continue;
    const auto key = text::trim(line.substr(0, colon));
    const auto value = text::trim(line.substr(colon + 1));
    const auto number = text::to_u32(value);
    if (key == "Slave Interface") {
      if (bond.legs.size() >= 256) break;
      bond.legs.emplace_back();
      leg = &bond.legs.back();
      leg->interface = interface_named(machine, text::quote(value), InterfaceKind::physical);
      machine.interfaces[leg->interface.index].master.learn(bond_name, source);
    } else if (key == "Bonding Mode") {
      bond.mode.set(short_mode(value), source);
    } else if (key == "Transmit Hash Policy") {
      bond.hash_policy.set(text::quote(value.substr(0, value.find(' '))), source);
    } else if (key == "Currently Active Slave") {
      bond.active_leg.set(text::quote(value), source);
    } else if (key == "MII Polling Interval (ms)" && number) {
      bond.watch_ms.set(std::max(*number, bond.watch_ms.value_or(0)), source);
    } else if (key == "ARP Polling Interval (ms)" && number) {
      bond.watch_ms.set(std::max(*number, bond.watch_ms.value_or(0)), source);
    } else if (key == "MII Status") {
      (leg != nullptr ? leg->up : bond.up).set(value == "up", source);
    } else if (key == "Aggregator ID" && number) {
      (leg != nullptr ? leg->aggregator : bond.active_aggregator).learn(*number, source);
    } else if (key == "Speed" && leg != nullptr) {
      const auto mbps = text::leading_double(value);  // "200000 Mbps"; "Unknown"
      if (mbps && *mbps > 0 && *mbps < 1e8) leg->speed_gbps.set(*mbps / 1000.0, source);
    } else if (key == "Link Failure Count" && leg != nullptr && number) {
      leg->link_failures.set(*number, source);
    }
  }
  for (auto& one : bond.legs) {
    auto& speed = machine.interfaces[one.interface.index].speed_gbps;
    if (!speed) speed = one.speed_gbps;
  }
  machine.bonds.push_back(std::move(bond));
}

// The master of the first leg of a bond's text that is known.
std::string master_in(std::string_view content, const Machine& machine) {
  constexpr std::string_view kLeg = "Slave Interface:";
  for (const auto line : text::lines(content)) {
    if (!line.starts_with(kLeg)) continue;
    const auto leg = find_interface(machine, text::trim(line.substr(kLeg.size())));
    if (leg && machine.interfaces[leg.index].master) return *machine.interfaces[leg.index].master;
  }
  return {};
}

}  // namespace

bool read_bonding(std::string_view content, const std::string& bond_name, Source source, Machine& machine) {
  if (content.find("Bonding Driver") == content.npos && content.find("Bonding Mode:") == content.npos) return false;
  // `cat /proc/net/bonding/*` has several, each from its driver's line on; they are named by their legs.
  constexpr std::string_view kHead = "Ethernet Channel Bonding Driver";
  std::vector<std::string_view> parts;
  for (auto rest = content; !rest.empty();) {
    const auto next = rest.find(kHead, rest.starts_with(kHead) ? kHead.size() : 0);
    if (next != 0) parts.push_back(rest.substr(0, next));
    rest = next == rest.npos ? std::string_view{} : rest.substr(next);
  }
  std::erase_if(parts, [](std::string_view part) { return part.find("Slave Interface:") == part.npos; });
  if (parts.size() < 2) {
    read_one_bond(content, bond_name, source, machine);
    return true;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    auto name = master_in(parts[i], machine);
    if (name.empty()) name = i == 0 ? bond_name : fmt::format("{}+{}", bond_name, i);
    read_one_bond(parts[i], name, source, machine);
  }
  return true;
}

void read_sysfs_network(FileTree& tree, Machine& machine) {
  auto names = tree.list(tree.sys("class/net"));
  std::ranges::sort(names, text::natural_less);
  for (const auto& name : names) {
    if (name == "bonding_masters") continue;
    if (machine.interfaces.size() >= kInterfaceLimit.most) {
      leave_out(machine, kInterfaceLimit);
      break;
    }
    read_interface(tree, machine, name);
  }
  for (std::size_t i = 0, n = machine.interfaces.size(); i < n; ++i) {
    if (machine.interfaces[i].kind != InterfaceKind::bond) continue;
    const auto name = machine.interfaces[i].name;
    const auto file = tree.has_proc() ? tree.text(tree.proc("net/bonding/" + name)) : std::nullopt;
    if (!file || !read_bonding(*file, name, Source::procfs, machine)) {
      read_sysfs_bond(tree, machine, Ref<NetInterface>(i));
    }
    add_sysfs_aggregators(tree, machine, machine.bonds.back());
  }
}

}  // namespace fairway::topology
