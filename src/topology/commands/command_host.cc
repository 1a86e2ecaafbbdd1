#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "topology/commands/command_text.h"
#include "topology/text.h"

// What tools say of the host and its interfaces: lscpu, numactl, ethtool, ip.
namespace fairway::topology {
namespace {

NumaNode* node_numbered(Machine& machine, std::uint32_t number) {
  if (const auto known = find_numa(machine, number)) return &machine.numa_nodes[known.index];
  if (number >= kNumaLimit.most) {
    leave_out(machine, kNumaLimit);
    return nullptr;
  }
  machine.numa_nodes.emplace_back().os_index = number;
  return &machine.numa_nodes.back();
}

// Nodes in the order of their numbers; others refer to them by number or by place.
bool may_add_nodes(const Machine& machine) {
  return std::ranges::none_of(machine.numa_nodes, [](const NumaNode& node) { return node.distances.known(); });
}

}  // namespace

// "Model name:  Intel(R) Xeon(R) ...", "NUMA node0 CPU(s):  0-47,96-143"
std::size_t read_lscpu(std::string_view content, const std::string&, Machine& machine) {
  constexpr auto kLscpu = Source::procfs;
  std::size_t read = 0;
  for (const auto line : text::lines(content)) {
    const auto colon = line.find(':');
    if (colon == line.npos) continue;
    const auto key = text::trim(line.substr(0, colon));
    const auto value = text::trim(line.substr(colon + 1));
    const auto number = text::to_u32(value);
    ++read;
    if (key == "Architecture") {
      machine.architecture.learn(text::quote(value), kLscpu);
    } else if (key == "Vendor ID") {
      machine.cpu_vendor.learn(text::quote(value), kLscpu);
    } else if (key == "CPU family" && number) {
      machine.cpu_family.learn(*number, kLscpu);
    } else if (key == "Model" && number) {
      machine.cpu_model_number.learn(*number, kLscpu);
    } else if (key == "Hypervisor vendor") {
      machine.virtual_machine.learn(text::quote(value), kLscpu);
    } else if (key.starts_with("NUMA node") && key.ends_with(" CPU(s)")) {
      const auto node = text::to_u32(key.substr(9, key.size() - 16));
      const auto cpus = CpuSet::parse_list(value);
      auto* known = node && may_add_nodes(machine) ? node_numbered(machine, *node) : nullptr;
      if (known != nullptr && cpus && !cpus->empty()) known->cpus.learn(*cpus, kLscpu);
    } else {
      --read;
    }
  }
  return read;
}

// "node 0 cpus: 0-47 96-143" (or a list with blanks), "node 1 size: 0 MB", and the table of distances.
std::size_t read_numactl(std::string_view content, const std::string& place, Machine& machine) {
  constexpr auto kNumactl = Source::sysfs;
  std::size_t read = 0;
  if (!may_add_nodes(machine)) {
    // Another source gave them whole.
    for (const auto line : text::lines(content))
      read += line.starts_with("node ") && line.find(" cpus:") != line.npos ? 1 : 0;
    return read;
  }
  std::vector<std::uint32_t> columns;
  bool distances = false;
  std::vector<std::pair<std::uint32_t, std::vector<std::uint32_t>>> rows;
  for (const auto line : text::lines(content)) {
    const auto words = text::words(line);
    if (words.size() < 2) continue;
    if (line.starts_with("node distances")) {
      distances = true;
    } else if (distances && words[0] == "node") {
      for (std::size_t i = 1; i < words.size(); ++i) columns.push_back(text::to_u32(words[i]).value_or(4096));
    } else if (distances && words[0].ends_with(':')) {
      const auto node = text::to_u32(words[0].substr(0, words[0].size() - 1));
      std::vector<std::uint32_t> row;
      for (std::size_t i = 1; i < words.size(); ++i) row.push_back(text::to_u32(words[i]).value_or(0));
      if (node && row.size() == columns.size()) rows.emplace_back(*node, std::move(row));
    } else if (words[0] == "node" && words.size() > 2) {
      const auto number = text::to_u32(words[1]);
      auto* node = number ? node_numbered(machine, *number) : nullptr;
      if (node == nullptr) continue;
      if (words[2] == "cpus:") {
        ++read;
        CpuSet cpus;
        for (std::size_t i = 3; i < words.size(); ++i) {
          const auto some = CpuSet::parse_list(words[i]);
          for (std::size_t r = 0; some && r < some->ranges().size(); ++r)
            cpus.add(some->ranges()[r].first, some->ranges()[r].last);
        }
        if (!cpus.empty()) node->cpus.learn(cpus, kNumactl);
      } else if (words[2] == "size:" && words.size() > 3) {
        const auto size = text::to_unsigned(words[3]);
        if (size && *size < (1ULL << 40U)) node->memory_bytes.learn(*size << 20U, kNumactl);
        if (size && *size == 0)
          add_note(machine, NoteKind::remark, fmt::format("NUMA node {}", *number),
                   place + ": it has no memory, so all memory of its devices is on another node");
      }
    }
  }
  // Distances go by the order of the nodes.
  if (columns.size() != machine.numa_nodes.size()) return read;
  for (const auto& [number, row] : rows) {
    const auto node = find_numa(machine, number);
    if (!node) continue;
    std::vector<std::uint32_t> ordered;
    for (const auto& other : machine.numa_nodes) {
      const auto at = std::ranges::find(columns, other.os_index);
      if (at != columns.end()) ordered.push_back(row[static_cast<std::size_t>(at - columns.begin())]);
    }
    if (ordered.size() == machine.numa_nodes.size())
      machine.numa_nodes[node.index].distances.learn(std::move(ordered), kNumactl);
  }
  return read;
}

// "Settings for eth0:", "Speed: 100000Mb/s", "Link detected: yes"
std::size_t read_ethtool(std::string_view content, const std::string&, Machine& machine) {
  constexpr auto kEthtool = Source::netlink;
  InterfaceByName interfaces(machine, machine.interfaces, kInterfaceLimit);
  NetInterface* interface = nullptr;  // until the next is added
  std::size_t read = 0;
  for (const auto line : text::lines(content)) {
    const auto trimmed = text::trim(line);
    if (trimmed.starts_with("Settings for ")) {
      auto word = trimmed.substr(13);
      if (word.ends_with(':')) word.remove_suffix(1);
      interface = interfaces.find_or_add(word);
      read += interface == nullptr ? 0 : 1;
      continue;
    }
    if (interface == nullptr) continue;
    auto& one = *interface;
    if (trimmed.starts_with("Speed: ")) {
      const auto mbps = text::leading_double(trimmed.substr(7));
      if (mbps && *mbps > 0 && *mbps < 1e8) one.speed_gbps.learn(*mbps / 1000, kEthtool);
    } else if (trimmed.starts_with("Link detected: ")) {
      one.carrier.learn(trimmed.ends_with("yes"), kEthtool);
    }
  }
  return read;
}

namespace {

// `ip` does not print what is below an interface: guess the kind from name and flags.
InterfaceKind kind_from(std::string_view name, std::string_view flags, bool has_peer) {
  const auto has = [flags](std::string_view flag) { return flags.find(flag) != flags.npos; };
  if (has("LOOPBACK") || name == "lo") return InterfaceKind::loopback;
  if (has("MASTER")) return InterfaceKind::bond;
  if (name.starts_with("docker") || name.starts_with("br-") || name.starts_with("virbr") || name.starts_with("cni")) {
    return InterfaceKind::bridge;
  }
  if (name.starts_with("veth")) return InterfaceKind::veth;
  if (name.starts_with("tun") || name.starts_with("tap")) return InterfaceKind::tun;
  if (name.starts_with("dummy") || name.starts_with("ifb")) return InterfaceKind::dummy;
  if (name.starts_with("vxlan") || name.starts_with("flannel") || name.starts_with("wg")) return InterfaceKind::tunnel;
  if (name.find('.') != name.npos && has_peer) return InterfaceKind::vlan;
  if (has("SLAVE")) return InterfaceKind::physical;
  return InterfaceKind::unknown;
}

// One of "<BROADCAST,MASTER,UP>".
bool has_flag(std::string_view flags, std::string_view flag) {
  while (flags.starts_with('<')) flags.remove_prefix(1);
  while (flags.ends_with('>')) flags.remove_suffix(1);
  const auto all = text::split(flags, ',');
  return std::ranges::find(all, flag) != all.end();
}

// "vethd5122f5@if18": the name and whether it has a peer.
std::pair<std::string, bool> split_peer(std::string_view word) {
  const auto at = word.find('@');
  return {text::quote(word.substr(0, at)), at != word.npos};
}

void learn_state(NetInterface& interface, std::string_view word, Source source) {
  interface.state.learn(text::lower(text::quote(word)), source);
}

}  // namespace

std::size_t read_ip_link(std::string_view content, const std::string&, Machine& machine) {
  InterfaceByName interfaces(machine, machine.interfaces, kInterfaceLimit);
  NetInterface* current = nullptr;  // until the next is added
  std::size_t read = 0;
  std::set<std::string> masters;  // interfaces with the flag MASTER
  std::set<std::string> bonded;   // those of them that a port with the flag SLAVE belongs to
  for (auto line : text::lines(content)) {
    // -o writes one line for each, with \ in place of line ends; behind it are details of other words.
    line = line.substr(0, line.find('\\'));
    const auto words = text::words(line);
    if (words.size() < 2) continue;
    const bool heading = words.size() > 3 && words[0].ends_with(':') && words[2].starts_with('<');
    if (!heading) {
      if (current != nullptr && words[0].starts_with("link/") && words[0] != "link/loopback") {
        current->mac.learn(text::quote(words[1]), Source::ip_link);
      }
      continue;
    }
    const auto [name, has_peer] = split_peer(words[1].substr(0, words[1].size() - 1));
    current = interfaces.find_or_add(name);
    if (current == nullptr) continue;
    ++read;
    if (current->kind == InterfaceKind::unknown) current->kind = kind_from(name, words[2], has_peer);
    if (has_flag(words[2], "MASTER")) masters.insert(name);
    current->carrier.learn(words[2].find("LOWER_UP") != words[2].npos, Source::ip_link);
    for (std::size_t i = 3; i + 1 < words.size(); ++i) {
      const auto value = words[i + 1];
      if (words[i] == "mtu") {
        const auto mtu = text::to_u32(value);
        if (mtu) current->mtu.learn(*mtu, Source::ip_link);
      } else if (words[i] == "master") {
        current->master.learn(text::quote(value), Source::ip_link);
        if (has_flag(words[2], "SLAVE")) bonded.insert(text::quote(value));
      } else if (words[i] == "state") {
        learn_state(*current, value, Source::ip_link);
      }
    }
  }
  // A VRF has the flag too; the ports of a bond have one of their own.
  std::set<std::string> with_ports;
  for (const auto& interface : machine.interfaces) {
    if (interface.master) with_ports.insert(*interface.master);
  }
  for (auto& interface : machine.interfaces) {
    if (masters.contains(interface.name) && with_ports.contains(interface.name) && !bonded.contains(interface.name) &&
        interface.kind == InterfaceKind::bond)
      interface.kind = InterfaceKind::other;
  }
  return read;
}

std::size_t read_ip_brief(std::string_view content, const std::string&, Machine& machine) {
  InterfaceByName interfaces(machine, machine.interfaces, kInterfaceLimit);
  std::size_t read = 0;
  for (const auto line : text::lines(content)) {
    const auto words = text::words(line);
    if (words.size() < 2) continue;
    const auto [name, has_peer] = split_peer(words[0]);
    auto* const interface = interfaces.find_or_add(name);
    if (interface == nullptr) continue;
    ++read;
    if (interface->kind == InterfaceKind::unknown) interface->kind = kind_from(name, "", has_peer);
    learn_state(*interface, words[1], Source::ip_addr);
    std::vector<std::string> addresses;
    // `ip -br link` has a MAC and flags here instead.
    for (std::size_t i = 2; i < words.size(); ++i) {
      if (words[i].find('/') != words[i].npos) addresses.push_back(text::quote(words[i]));
    }
    const bool link_listing = words.size() > 2 && addresses.empty();
    if (link_listing) continue;
    interface->has_address.learn(!addresses.empty(), Source::ip_addr);
    if (!addresses.empty()) interface->addresses.learn(std::move(addresses), Source::ip_addr);
  }
  return read;
}

}  // namespace fairway::topology
