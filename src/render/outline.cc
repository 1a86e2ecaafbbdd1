#include "render/outline.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "render/links.h"
#include "render/outline_devices.h"
#include "render/phrases.h"

namespace fairway::render {
namespace {

using topology::Machine;
using topology::NodeKind;
using topology::NodeRef;
using topology::PciKind;

class Outliner {
 public:
  explicit Outliner(const Machine& machine) : machine_(machine), devices_(machine) {
    below_.resize(machine.pci.size());
    for (std::uint32_t i = 0; i < machine.pci.size(); ++i) {
      const topology::PciDevice& device = machine.pci[i];
      if (device.parent) {
        below_[device.parent.index].push_back(i);
      } else if (device.host_bridge) {
        tops_[device.host_bridge.index].push_back(i);
      }
    }
  }

  Outline build() {
    std::vector<Box> homeless;
    for (std::uint32_t i = 0; i < machine_.host_bridges.size(); ++i) {
      Box bridge = host_bridge(i);
      if (bridge.children.empty() && bridge.others.empty()) continue;
      const auto& numa = machine_.host_bridges[i].numa_node;
      (numa ? by_numa_[*numa] : homeless).push_back(std::move(bridge));
    }
    Outline out;
    for (std::uint32_t i = 0; i < machine_.packages.size(); ++i) out.roots.push_back(package(i));
    for (std::uint32_t i = 0; i < machine_.numa_nodes.size(); ++i) {
      if (!machine_.numa_nodes[i].package) out.roots.push_back(numa_node(i));
    }
    // Bridges may name a node that is not recorded.
    for (auto& [os_index, bridges] : by_numa_) {
      Box box = make_box(BoxKind::numa, {}, fmt::format("NUMA node {}", os_index));
      box.children = std::move(bridges);
      out.roots.push_back(std::move(box));
    }
    if (!homeless.empty()) adopt(out, std::move(homeless));
    place_rest(machine_, devices_, out);
    return out;
  }

 private:
  // With one place everything is there; with several the place is unknown.
  static void adopt(Outline& out, std::vector<Box> homeless) {
    if (out.roots.size() == 1 && (out.roots[0].children.empty() || out.roots[0].children[0].kind != BoxKind::numa)) {
      for (Box& box : homeless) out.roots[0].children.push_back(std::move(box));
      return;
    }
    Box box = make_box(BoxKind::machine, {}, out.roots.empty() ? "Machine" : "NUMA node unknown");
    box.children = std::move(homeless);
    out.roots.push_back(std::move(box));
  }

  Box package(std::uint32_t index) {
    const topology::Package& package = machine_.packages[index];
    Box box = make_box(BoxKind::package, {NodeKind::package, index}, fmt::format("Socket {}", package.os_index));
    box.model = package.model ? short_cpu_model(*package.model) : "";
    if (package.cpus) box.place = count(package.cpus->count(), "CPU");
    for (std::uint32_t i = 0; i < machine_.numa_nodes.size(); ++i) {
      if (machine_.numa_nodes[i].package.index == index) box.children.push_back(numa_node(i));
    }
    // If a socket has one node, one box shows both.
    if (box.children.size() == 1 && box.children[0].kind == BoxKind::numa) {
      Box node = std::move(box.children[0]);
      box.place += fmt::format("{}{}{}", box.place.empty() ? "" : " · ", node.name,
                               node.model.empty() ? "" : " · " + node.model);
      box.node = node.node;
      box.children = std::move(node.children);
    }
    return box;
  }

  Box numa_node(std::uint32_t index) {
    const topology::NumaNode& node = machine_.numa_nodes[index];
    Box box = make_box(BoxKind::numa, {NodeKind::numa_node, index}, fmt::format("NUMA node {}", node.os_index));
    box.model = node.memory_bytes ? gibibytes(*node.memory_bytes) : "";
    if (node.cpus && !node.cpus->empty() && !node.package) box.place = fmt::format("CPUs {}", node.cpus->to_list());
    const auto found = by_numa_.find(node.os_index);
    if (found != by_numa_.end()) {
      box.children = std::move(found->second);
      by_numa_.erase(found);
    }
    return box;
  }

  Box host_bridge(std::uint32_t index) {
    const topology::HostBridge& bridge = machine_.host_bridges[index];
    Box box = make_box(BoxKind::host_bridge, {NodeKind::host_bridge, index}, bridge.folded ? "PCIe" : "Host bridge");
    box.place = bridge.folded ? "" : fmt::format("{:04x}:{:02x}", bridge.domain, bridge.bus);
    std::map<std::string, std::size_t> others;
    const auto found = tops_.find(index);
    if (found != tops_.end()) {
      for (const std::uint32_t top : found->second) expand(top, box.children, others);
    }
    box.others = describe_others(others);
    return box;
  }

  // The boxes that a PCI function becomes: none, one, or those of what lies below it.
  void expand(std::uint32_t index, std::vector<Box>& boxes, std::map<std::string, std::size_t>& others) {
    const topology::PciDevice& device = machine_.pci[index];
    const std::vector<NodeRef>& owners = devices_.at(index);
    for (const NodeRef owner : owners) {
      if (topology::pci_of(machine_, owner).index == index) boxes.push_back(devices_.box(owner));
    }
    const bool is_switch = device.kind == PciKind::switch_upstream || device.kind == PciKind::pci_switch;
    if (is_switch) {
      Box box = devices_.box({NodeKind::pci, index});
      std::map<std::string, std::size_t> inside;
      for (const std::uint32_t child : below_[index]) expand(child, box.children, inside);
      if (box.children.empty()) {
        for (const auto& [what, times] : inside) others[what] += times;
        return;
      }
      box.others = describe_others(inside);
      boxes.push_back(std::move(box));
      return;
    }
    for (const std::uint32_t child : below_[index]) expand(child, boxes, others);
    if (owners.empty() && below_[index].empty() && device.kind == PciKind::endpoint) ++others[kind_word(device)];
  }

  static std::string kind_word(const topology::PciDevice& device) {
    const std::uint32_t code = device.class_code.value_or(0) >> 8U;
    if (code == 0x0108) return "NVMe";
    if (code >> 8U == 0x01) return "disk controller";
    return "other";
  }

  static std::string describe_others(const std::map<std::string, std::size_t>& others) {
    std::string out;
    for (const auto& [what, times] : others) {
      const bool is_plural = times > 1 && what != "NVMe";
      out += fmt::format("{}{} {}{}", out.empty() ? "" : ", ", times, what, is_plural ? "s" : "");
    }
    return out;
  }

  const Machine& machine_;
  DeviceBoxes devices_;
  std::vector<std::vector<std::uint32_t>> below_;
  std::map<std::uint32_t, std::vector<std::uint32_t>> tops_;  // by host bridge
  std::map<std::uint32_t, std::vector<Box>> by_numa_;         // host bridges, by NumaNode::os_index
};

}  // namespace

Box make_box(BoxKind kind, NodeRef node, std::string name) {
  Box box;
  box.kind = kind;
  box.node = node;
  box.name = std::move(name);
  return box;
}

Outline outline(const Machine& machine) {
  return Outliner(machine).build();
}

namespace {

std::string link_text(const Box& box, const TextStyle& style) {
  if (!box.gbs && box.link_words.empty()) return {};
  std::string out = box.link_words;
  if (box.gbs) out += fmt::format("{}{} GB/s", out.empty() ? "" : " ", rate(box.gbs));
  if (box.health == Health::reduced && box.max_gbs && box.gbs) {
    return style.ink(Ink::poor, fmt::format("{}, of {} at its best", out, rate(box.max_gbs)));
  }
  return style.ink(Ink::faint, out);
}

std::string line_of(const Box& box, const TextStyle& style) {
  std::string out = style.ink(box.muted ? Ink::faint : Ink::bold, box.name);
  for (const std::string& part : {box.model, box.place}) {
    if (!part.empty() && part != box.name) out += "  " + part;
  }
  const std::string link = link_text(box, style);
  if (!link.empty()) out += "  " + link;
  if (box.health == Health::down) out += "  " + style.ink(Ink::bad, "down");
  if (!box.ports.empty()) {
    out += "  bond of";
    for (const BondPort& port : box.ports) {
      out += fmt::format(" {}{}", port.name, port.up && !*port.up ? style.ink(Ink::bad, "(down)") : "");
    }
  }
  if (box.inferred) out += style.ink(Ink::faint, "  (from the recorded classes)");
  if (!box.others.empty()) out += style.ink(Ink::faint, "  + " + box.others);
  return out;
}

void add_lines(const std::vector<Box>& boxes, const std::string& indent, const TextStyle& style, std::string& out) {
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    const bool is_last = i + 1 == boxes.size();
    out += indent + (is_last ? "`- " : "|- ") + line_of(boxes[i], style) + "\n";
    add_lines(boxes[i].children, indent + (is_last ? "   " : "|  "), style, out);
  }
}

}  // namespace

std::string tree_text(const topology::Machine& machine, const TextStyle& style) {
  const Outline boxes = outline(machine);
  std::string out = style.ink(Ink::bold, machine.name.empty() ? "Machine" : machine.name) + "\n";
  add_lines(boxes.roots, "", style, out);
  const std::vector<std::string> links = link_lines(machine);
  if (!links.empty()) out += "Links between devices\n";
  for (std::size_t i = 0; i < links.size(); ++i) out += (i + 1 == links.size() ? "`- " : "|- ") + links[i] + "\n";
  return out;
}

std::string tree_text(const topology::Fabric& fabric, const TextStyle& style) {
  std::string out;
  for (const topology::Machine& machine : fabric.machines) out += tree_text(machine, style) + "\n";
  if (fabric.cables.empty()) return out;
  out += "Cables\n";
  const auto end_name = [&fabric](const topology::CableEnd& end) {
    if (end.is_switch) return fabric.switches[end.index].name;
    const topology::Machine& machine = fabric.machines[end.machine];
    return fmt::format("{} {}", machine.name, machine.nics[end.index].name);
  };
  for (std::size_t i = 0; i < fabric.cables.size(); ++i) {
    const topology::Cable& cable = fabric.cables[i];
    out += fmt::format("{}{} -- {}{}\n", i + 1 == fabric.cables.size() ? "`- " : "|- ", end_name(cable.a),
                       end_name(cable.b), cable.gbps ? "  " + gigabits(*cable.gbps) : "");
  }
  return out;
}

}  // namespace fairway::render
