#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "topology/command_text.h"
#include "topology/text.h"

namespace fairway::topology {
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
  return std::find(all.begin(), all.end(), flag) != all.end();
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
