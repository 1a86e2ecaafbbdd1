#include "topology/export.h"

#ifdef FAIRWAY_HAVE_PUGIXML

#include <algorithm>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <pugixml.hpp>

namespace fairway::topology {
namespace {

// hwloc's mask: words of 32 bits with 0x, highest first.
std::string hwloc_mask(const CpuSet& set) {
  std::string out;
  const auto mask = set.to_mask();
  for (std::size_t at = 0; at < mask.size(); at += 9) {
    if (!out.empty()) out += ',';
    out += "0x" + mask.substr(at, 8);
  }
  return out;
}

class HwlocWriter {
 public:
  explicit HwlocWriter(const Machine& machine) : machine_(machine) {}

  Result<Exported> write() {
    for (const auto& node : machine_.numa_nodes) {
      if (!node.cpus) {
        return Status(
            ErrorCode::unsupported,
            fmt::format("the CPUs of NUMA node {} are unknown, and hwloc XML cannot say that", node.os_index));
      }
      for (const auto& range : node.cpus->ranges()) all_cpus_.add(range.first, range.last);
      all_nodes_.add(node.os_index, node.os_index);
    }
    if (machine_.numa_nodes.empty() || all_cpus_.empty()) {
      return Status(ErrorCode::unsupported, "no NUMA node with CPUs is known, and hwloc XML cannot do without");
    }
    auto doctype = document_.append_child(pugi::node_doctype);
    doctype.set_value("topology SYSTEM \"hwloc2.dtd\"");
    auto topology = document_.append_child("topology");
    topology.append_attribute("version") = "2.0";
    auto root = object(topology, "Machine", all_cpus_, all_nodes_);
    root.append_attribute("os_index") = "0";
    info(root, "DMIProductName", machine_.product);
    info(root, "Architecture", machine_.architecture);
    info(root, "OSRelease", machine_.kernel);
    for (std::size_t i = 0; i < machine_.pci.size(); ++i) {
      if (machine_.pci[i].parent) children_[machine_.pci[i].parent.index].push_back(static_cast<std::uint32_t>(i));
    }
    write_packages(root);
    write_bridges(root, {});
    say_losses();
    std::ostringstream text;
    document_.save(text, "  ", pugi::format_default, pugi::encoding_utf8);
    out_.text = text.str();
    return std::move(out_);
  }

 private:
  pugi::xml_node object(pugi::xml_node parent, const char* type, const CpuSet& cpus, const CpuSet& nodes) {
    auto node = parent.append_child("object");
    node.append_attribute("type") = type;
    const auto cpu_mask = hwloc_mask(cpus);
    const auto node_mask = hwloc_mask(nodes);
    node.append_attribute("cpuset") = cpu_mask.c_str();
    node.append_attribute("complete_cpuset") = cpu_mask.c_str();
    node.append_attribute("nodeset") = node_mask.c_str();
    node.append_attribute("complete_nodeset") = node_mask.c_str();
    node.append_attribute("gp_index") = std::to_string(next_++).c_str();
    return node;
  }

  pugi::xml_node io(pugi::xml_node parent, const char* type) {
    auto node = parent.append_child("object");
    node.append_attribute("type") = type;
    node.append_attribute("gp_index") = std::to_string(next_++).c_str();
    return node;
  }

  static void info(pugi::xml_node node, const char* name, const Fact<std::string>& value) {
    if (!value) return;
    auto element = node.append_child("info");
    element.append_attribute("name") = name;
    element.append_attribute("value") = value->c_str();
  }

  void write_packages(pugi::xml_node root) {
    for (std::size_t p = 0; p < machine_.packages.size(); ++p) {
      const auto& package = machine_.packages[p];
      CpuSet nodes;
      for (const auto& node : machine_.numa_nodes) {
        if (node.package.index == p) nodes.add(node.os_index, node.os_index);
      }
      if (!package.cpus || nodes.empty()) continue;
      auto element = object(root, "Package", *package.cpus, nodes);
      element.append_attribute("os_index") = std::to_string(package.os_index).c_str();
      info(element, "CPUVendor", package.vendor);
      info(element, "CPUModel", package.model);
      for (const auto& node : machine_.numa_nodes) {
        if (node.package.index != p) continue;
        write_numa(element, node);
        if (nodes.count() == 1) {
          write_bridges(element, node.os_index);
          written_.push_back(node.os_index);
        }
      }
      if (nodes.count() > 1)
        lose(fmt::format("package {}", package.os_index),
             "its PCI devices stand below the machine: which of its NUMA nodes each is near is lost");
    }
    for (const auto& node : machine_.numa_nodes) {
      if (node.package) continue;
      // A group stands in for the socket that nobody knows, so that devices keep their node.
      CpuSet own;
      own.add(node.os_index, node.os_index);
      auto group = object(root, "Group", *node.cpus, own);
      group.append_attribute("kind") = "0";
      group.append_attribute("subkind") = "0";
      write_numa(group, node);
      write_bridges(group, node.os_index);
      written_.push_back(node.os_index);
    }
  }

  void write_numa(pugi::xml_node parent, const NumaNode& node) {
    CpuSet own;
    own.add(node.os_index, node.os_index);
    auto element = object(parent, "NUMANode", *node.cpus, own);
    element.append_attribute("os_index") = std::to_string(node.os_index).c_str();
    if (node.memory_bytes) element.append_attribute("local_memory") = std::to_string(*node.memory_bytes).c_str();
  }

  // The host bridges of one NUMA node; of none, those not written yet.
  void write_bridges(pugi::xml_node parent, std::optional<std::uint32_t> numa) {
    for (std::uint32_t i = 0; i < machine_.host_bridges.size(); ++i) {
      const auto& bridge = machine_.host_bridges[i];
      const bool known =
          bridge.numa_node && std::find(written_.begin(), written_.end(), *bridge.numa_node) != written_.end();
      if (numa ? bridge.numa_node.value != numa : known) continue;
      auto element = io(parent, "Bridge");
      element.append_attribute("bridge_type") = "0-1";
      element.append_attribute("depth") = "0";
      element.append_attribute("bridge_pci") =
          fmt::format("{:04x}:[{:02x}-{:02x}]", bridge.domain, bridge.bus, bridge.last_bus).c_str();
      for (std::uint32_t k = 0; k < machine_.pci.size(); ++k) {
        const auto& device = machine_.pci[k];
        if (!device.parent && device.host_bridge.index == i) write_device(element, k, 1);
      }
    }
  }

  void write_device(pugi::xml_node parent, std::uint32_t index, std::size_t depth) {
    const auto& device = machine_.pci[index];
    const bool bridge = device.kind != PciKind::endpoint;
    auto element = io(parent, bridge ? "Bridge" : "PCIDev");
    if (bridge) {
      element.append_attribute("bridge_type") = "1-1";
      element.append_attribute("depth") = std::to_string(depth).c_str();
      element.append_attribute("bridge_pci") =
          fmt::format("{:04x}:[{:02x}-{:02x}]", device.bus_id.domain, first_bus(index), last_bus(index, 0)).c_str();
    }
    element.append_attribute("pci_busid") = device.bus_id.to_string().c_str();
    element.append_attribute("pci_type") =
        fmt::format("{:04x} [{:04x}:{:04x}] [{:04x}:{:04x}] 00",
                    (bridge ? 0x060400U : device.class_code.value_or(0)) >> 8, device.vendor_id.value_or(0),
                    device.device_id.value_or(0), device.subsystem_vendor_id.value_or(0),
                    device.subsystem_device_id.value_or(0))
            .c_str();
    element.append_attribute("pci_link_speed") = fmt::format("{:.6f}", current_gbs(device.link).value_or(0)).c_str();
    info(element, "PCIVendor", device.vendor_name);
    info(element, "PCIDevice", device.device_name);
    for (const auto& gpu : machine_.gpus) {
      if (gpu.pci.index == index && gpu.vendor.value_or("") == "NVIDIA") {
        auto os = io(element, "OSDev");
        os.append_attribute("name") = fmt::format("nvml{}", gpu.ordinal).c_str();
        os.append_attribute("osdev_type") = "1";
        info(os, "GPUModel", gpu.model);
      }
    }
    for (const auto& nic : machine_.nics) {
      if (nic.functions.empty() || nic.functions.front().index != index || !nic.rdma) continue;
      auto os = io(element, "OSDev");
      os.append_attribute("name") = nic.name.c_str();
      os.append_attribute("osdev_type") = "3";
    }
    for (const auto& interface : machine_.interfaces) {
      if (interface.pci.index != index) continue;
      auto os = io(element, "OSDev");
      os.append_attribute("name") = interface.name.c_str();
      os.append_attribute("osdev_type") = "2";
    }
    const auto below = children_.find(index);
    if (below == children_.end() || depth > kMaxPciDepth) return;
    for (const auto child : below->second) write_device(element, child, depth + 1);
  }

  std::uint32_t first_bus(std::uint32_t index) const {
    const auto below = children_.find(index);
    return below == children_.end() ? machine_.pci[index].bus_id.bus : machine_.pci[below->second.front()].bus_id.bus;
  }
  std::uint32_t last_bus(std::uint32_t index, std::size_t depth) const {
    std::uint32_t last = machine_.pci[index].bus_id.bus;
    const auto below = children_.find(index);
    if (below == children_.end() || depth > kMaxPciDepth) return last;
    for (const auto child : below->second) last = std::max(last, last_bus(child, depth + 1));
    return last;
  }

  void lose(std::string subject, std::string text) {
    out_.lost.push_back({NoteKind::lost, std::move(subject), std::move(text)});
  }

  void say_losses() {
    lose("", "CPU cores and caches: no fact of this model");
    lose("", "generation and width of PCIe links (only their product), and what they could do at best");
    if (std::any_of(machine_.pci.begin(), machine_.pci.end(),
                    [](const PciDevice& d) { return d.kind == PciKind::pci_switch; })) {
      lose("", "that a bridge stands for a whole switch: its ports are unknown, and PXB may read as PIX");
    }
    if (!machine_.links.empty()) lose("", "NVLink and xGMI links");
    if (!machine_.bonds.empty()) lose("", "bonds, their modes and legs");
    if (!machine_.rdma.empty()) lose("", "port rates, states, GIDs, limits and counters of RDMA devices");
    if (!machine_.matrix.empty()) lose("", "the recorded matrix");
    for (const auto& gpu : machine_.gpus) {
      if (!gpu.pci || !machine_.pci[gpu.pci.index].host_bridge)
        lose(fmt::format("GPU{}", gpu.ordinal), "has no known place in the tree and is left out");
    }
    for (const auto& nic : machine_.nics) {
      if (nic.functions.empty()) lose(nic.name, "has no known place in the tree and is left out");
    }
  }

  const Machine& machine_;
  pugi::xml_document document_;
  Exported out_;
  CpuSet all_cpus_;
  CpuSet all_nodes_;
  std::map<std::uint32_t, std::vector<std::uint32_t>> children_;
  std::vector<std::uint32_t> written_;  // NUMA nodes whose bridges stand below them
  std::uint64_t next_ = 1;
};

}  // namespace

Result<Exported> export_hwloc_xml(const Machine& machine) {
  return HwlocWriter(machine).write();
}

}  // namespace fairway::topology

#else

namespace fairway::topology {
Result<Exported> export_hwloc_xml(const Machine&) {
  return Status(ErrorCode::unsupported, "this build has no pugixml: hwloc XML cannot be written");
}
}  // namespace fairway::topology

#endif
