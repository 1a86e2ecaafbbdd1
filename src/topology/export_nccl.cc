#include "topology/load.h"

#ifdef FAIRWAY_HAVE_PUGIXML

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include <fmt/format.h>
#include <pugixml.hpp>

#include "topology/devices.h"
#include "topology/pci.h"
#include "topology/text.h"

namespace fairway::topology {
namespace {

// "b8ce:f603:00a1:b2c3" as a number; none for zero and for what is no GUID.
std::optional<std::uint64_t> guid_number(const Fact<std::string>& guid) {
  std::string digits;
  for (const char c : guid.value_or("")) {
    if (c != ':') digits += c;
  }
  if (digits.starts_with("0x")) digits.erase(0, 2);
  const auto number = digits.size() <= 16 ? text::to_hex(digits) : std::nullopt;
  return number && *number != 0 ? number : std::nullopt;
}

class NcclWriter {
 public:
  explicit NcclWriter(const Machine& machine) : machine_(machine) {}

  Result<Exported> write() {
    const bool any = std::ranges::any_of(machine_.pci, [](const PciDevice& d) { return d.host_bridge.valid(); });
    if (!any) {
      return Status(
          ErrorCode::unsupported,
          "an NCCL topology is a PCI tree, and this machine's is unknown: take a snapshot on the machine itself");
    }
    amd_ = std::ranges::any_of(machine_.gpus, [](const Gpu& gpu) { return gpu.vendor.value_or("") == "AMD"; });
    find_devices();
    auto system = document_.append_child("system");
    system.append_attribute("version") = amd_ ? "2" : "1";
    write_nodes(system);
    say_losses();
    std::ostringstream text;
    document_.save(text, "  ", pugi::format_default | pugi::format_no_declaration);
    out_.text = text.str();
    return std::move(out_);
  }

 private:
  void lose(std::string subject, std::string text) {
    out_.lost.push_back({NoteKind::lost, std::move(subject), std::move(text)});
  }

  void find_devices() {
    for (std::uint32_t i = 0; i < machine_.gpus.size(); ++i) {
      if (machine_.gpus[i].pci) gpu_at_[machine_.gpus[i].pci.index] = i;
    }
    for (std::uint32_t i = 0; i < machine_.nics.size(); ++i) {
      if (!machine_.nics[i].functions.empty()) nics_at_[machine_.nics[i].functions.front().index].push_back(i);
    }
    for (std::uint32_t i = 0; i < machine_.pci.size(); ++i) {
      const bool kept = gpu_at_.contains(i) || nics_at_.contains(i);
      std::size_t depth = 0;
      for (auto at = Ref<PciDevice>(std::size_t{i}); kept && at && depth++ <= kMaxPciDepth;
           at = machine_.pci[at.index].parent) {
        carries_.insert(at.index);
      }
    }
    for (std::uint32_t i = 0; i < machine_.pci.size(); ++i) {
      if (!carries_.contains(i)) continue;
      // NCCL has switches, but not their ports: skip root ports and downstream ports.
      auto above = machine_.pci[i].parent;
      while (above && !is_node(machine_.pci[above.index])) above = machine_.pci[above.index].parent;
      if (is_node(machine_.pci[i])) below_[above ? static_cast<std::int64_t>(above.index) : -1].push_back(i);
    }
  }

  static bool is_node(const PciDevice& device) {
    return device.kind != PciKind::root_port && device.kind != PciKind::switch_downstream;
  }

  void write_nodes(pugi::xml_node system) {
    // One <cpu> for each NUMA node; -1 if the node is unknown.
    std::map<std::int64_t, std::vector<std::uint32_t>> roots;
    for (const auto top : below_[-1]) {
      const auto numa = numa_of(machine_, {NodeKind::pci, top});
      roots[numa ? static_cast<std::int64_t>(*numa) : -1].push_back(top);
    }
    for (const auto& node : machine_.numa_nodes) roots.try_emplace(node.os_index);
    for (const auto& [numa, tops] : roots) {
      auto cpu = system.append_child("cpu");
      cpu.append_attribute("numaid") = std::to_string(numa).c_str();
      const auto ref = numa >= 0 ? find_numa(machine_, static_cast<std::uint32_t>(numa)) : Ref<NumaNode>{};
      if (ref && machine_.numa_nodes[ref.index].cpus) {
        cpu.append_attribute("affinity") = machine_.numa_nodes[ref.index].cpus->to_mask().c_str();
      }
      if (machine_.architecture) cpu.append_attribute("arch") = machine_.architecture->c_str();
      if (machine_.cpu_vendor) cpu.append_attribute("vendor") = machine_.cpu_vendor->c_str();
      if (machine_.cpu_family) cpu.append_attribute("familyid") = std::to_string(*machine_.cpu_family).c_str();
      if (machine_.cpu_model_number)
        cpu.append_attribute("modelid") = std::to_string(*machine_.cpu_model_number).c_str();
      for (const auto top : tops) write_pci(cpu, top, 0);
    }
    if (roots.contains(-1))
      lose("NUMA", "devices whose NUMA node is unknown stand below numaid -1, which NCCL takes as node 0");
  }

  void write_pci(pugi::xml_node parent, std::uint32_t index, std::size_t depth) {
    const auto& device = machine_.pci[index];
    auto pci = parent.append_child("pci");
    pci.append_attribute("busid") = device.bus_id.to_string().c_str();
    const bool a_switch = device.kind != PciKind::endpoint;
    pci.append_attribute("class") =
        fmt::format("0x{:06x}", a_switch ? 0x060400 : device.class_code.value_or(0)).c_str();
    const auto id = [&pci](const char* name, const Fact<std::uint32_t>& value) {
      if (value) pci.append_attribute(name) = fmt::format("0x{:04x}", *value).c_str();
    };
    id("vendor", device.vendor_id);
    id("device", device.device_id);
    id("subsystem_vendor", device.subsystem_vendor_id);
    id("subsystem_device", device.subsystem_device_id);
    write_link(pci, device);
    if (const auto gpu = gpu_at_.find(index); gpu != gpu_at_.end()) write_gpu(pci, gpu->second);
    if (const auto nics = nics_at_.find(index); nics != nics_at_.end()) write_nics(pci, nics->second);
    if (depth > kMaxPciDepth) return;
    const auto children = below_.find(static_cast<std::int64_t>(index));
    if (children == below_.end()) return;
    for (const auto child : children->second) write_pci(pci, child, depth + 1);
  }

  // NCCL multiplies speed by width. If only the product is known, write it as lanes of Gen3.
  void write_link(pugi::xml_node pci, const PciDevice& device) {
    const auto& link = device.link;
    if (is_virtual(machine_) && claims_least(device)) {
      lose(device.bus_id.to_string(), "2.5 GT/s x1 is what emulated links claim: left out, and NCCL takes its default");
      return;
    }
    if (link.speed_gts && link.width && *link.speed_gts > 0 && *link.width > 0) {
      pci.append_attribute("link_speed") = fmt::format("{:.1f} GT/s PCIe", *link.speed_gts).c_str();
      pci.append_attribute("link_width") = std::to_string(*link.width).c_str();
      return;
    }
    const auto gbs = current_gbs(link);
    const std::uint32_t lanes = 16;
    for (const double gts : {2.5, 5.0, 8.0, 16.0, 32.0, 64.0}) {
      if (gbs && std::abs(pcie_gbs(gts, lanes) - *gbs) < 0.02 * *gbs) {
        pci.append_attribute("link_speed") = fmt::format("{:.1f} GT/s PCIe", gts).c_str();
        pci.append_attribute("link_width") = std::to_string(lanes).c_str();
        lose(device.bus_id.to_string(),
             "only the product of speed and width is known: written as 16 lanes of that rate");
        return;
      }
    }
    lose(device.bus_id.to_string(), "its link's speed and width are unknown: left out, and NCCL takes its default");
  }

  void write_gpu(pugi::xml_node pci, std::uint32_t index) {
    const auto& gpu = machine_.gpus[index];
    auto element = pci.append_child("gpu");
    // Without them NCCL asks the driver.
    if (is_numbered(gpu)) element.append_attribute("dev") = std::to_string(gpu.ordinal).c_str();
    if (gpu.architecture && gpu.architecture->starts_with("sm_")) {
      element.append_attribute("sm") = gpu.architecture->substr(3).c_str();
    } else if (gpu.architecture && gpu.architecture->starts_with("gfx")) {
      element.append_attribute("gcn") = gpu.architecture->c_str();
    } else {
      lose(gpu_name(machine_, gpu), "its architecture is unknown: NCCL asks the driver for it");
    }
    if (is_numbered(gpu)) element.append_attribute("rank") = std::to_string(gpu.ordinal).c_str();
    if (gpu.gpudirect_rdma) element.append_attribute("gdr") = *gpu.gpudirect_rdma ? "1" : "0";
    const NodeRef self{NodeKind::gpu, index};
    std::uint32_t unplaced = 0;
    std::uint32_t to_hidden_switches = 0;  // without a bus id: one line, as NCCL takes them as one fabric
    for (const auto& link : machine_.links) {
      if (link.a != self && link.b != self) continue;
      const auto other = link.a == self ? link.b : link.a;
      const auto count = link.active ? *link.active : link.count.value_or(0);
      if (link.kind == LinkKind::c2c && link.gbs_per_link && count > 0) {
        auto line = element.append_child("c2c");
        line.append_attribute("bw") = fmt::format("{:.0f}", *link.gbs_per_link * 1000).c_str();
        line.append_attribute("count") = std::to_string(count).c_str();
        continue;
      }
      if (link.kind == LinkKind::c2c || count == 0) {
        lose(gpu_name(machine_, gpu), "a link of unknown count or rate is left out");
        continue;
      }
      const auto place = pci_of(machine_, other);
      if (!place && other.kind != NodeKind::nv_switch) {
        ++unplaced;
        continue;
      }
      if (!place) {
        to_hidden_switches += count;
        continue;
      }
      auto line = element.append_child(link.kind == LinkKind::xgmi ? "xgmi" : "nvlink");
      line.append_attribute("target") = machine_.pci[place.index].bus_id.to_string().c_str();
      line.append_attribute("count") = std::to_string(count).c_str();
      const char* kind = other.kind == NodeKind::nv_switch ? "0x068000"
                         : link.kind == LinkKind::xgmi     ? "0x120000"
                                                           : "0x030200";
      line.append_attribute("tclass") = kind;
    }
    if (to_hidden_switches > 0) write_hidden_switches(element, to_hidden_switches);
    if (unplaced > 0) lose(gpu_name(machine_, gpu), "links to ends without a bus id are left out");
  }

  // Any target of the switch class stands for the NVSwitch fabric in NCCL.
  static void write_hidden_switches(pugi::xml_node gpu, std::uint32_t count) {
    auto line = gpu.append_child("nvlink");
    line.append_attribute("target") = "ffff:ff:1f.0";
    line.append_attribute("count") = std::to_string(count).c_str();
    line.append_attribute("tclass") = "0x068000";
  }

  void write_nics(pugi::xml_node pci, const std::vector<std::uint32_t>& nics) {
    auto element = pci.append_child("nic");
    for (const auto index : nics) {
      const auto& nic = machine_.nics[index];
      if (!nic.rdma) continue;
      auto net = element.append_child("net");
      net.append_attribute("name") = nic.name.c_str();
      net.append_attribute("dev") = std::to_string(index).c_str();
      const auto gbps = nic_capacity_gbps(machine_, nic);
      if (gbps) {
        net.append_attribute("speed") = fmt::format("{:.0f}", *gbps * 1000).c_str();
      } else {
        lose(nic.name, "its rate is unknown: NCCL asks the device");
      }
      const auto& rdma = machine_.rdma[nic.rdma.index];
      const auto up = std::ranges::find_if(
          rdma.ports, [](const RdmaPort& port) { return port.state.value_or("ACTIVE") == "ACTIVE"; });
      const auto number = up != rdma.ports.end() ? up->number : rdma.ports.empty() ? 1U : rdma.ports.front().number;
      net.append_attribute("port") = std::to_string(number).c_str();
      // NCCL reads a number in hex; by it it tells which NICs are ports of one card. Left out, it asks the device.
      if (const auto guid = guid_number(rdma.system_guid ? rdma.system_guid : rdma.node_guid))
        net.append_attribute("guid") = fmt::format("0x{:016x}", *guid).c_str();
      for (const auto& attribute : rdma.attributes) {
        const bool most = attribute.name == "maxconn" || attribute.name == "max_qp";
        if (most && attribute.value) net.append_attribute("maxconn") = attribute.value->c_str();
      }
      if (nic.gpudirect_rdma) net.append_attribute("gdr") = *nic.gpudirect_rdma ? "1" : "0";
      if (nic.bond) lose(nic.name, "a bond becomes one port of its legs' sum: that one flow uses one leg is lost");
    }
    if (!element.first_child()) pci.remove_child(element);
  }

  void say_losses() {
    lose("",
         "sockets, host bridges, switch ports, memory sizes, interfaces, GIDs, counters and where each fact came from");
    lose("", "NODE becomes PHB: the format has no host bridges");
    for (const auto& gpu : machine_.gpus) {
      if (!gpu.pci || !machine_.pci[gpu.pci.index].host_bridge)
        lose(gpu_name(machine_, gpu), "has no known place in the tree and is left out");
    }
    for (const auto& nic : machine_.nics) {
      if (nic.rdma && (nic.functions.empty() || !machine_.pci[nic.functions.front().index].host_bridge)) {
        lose(nic.name, "has no known place in the tree and is left out");
      }
    }
  }

  const Machine& machine_;
  pugi::xml_document document_;
  Exported out_;
  bool amd_ = false;
  std::map<std::uint32_t, std::uint32_t> gpu_at_;
  std::map<std::uint32_t, std::vector<std::uint32_t>> nics_at_;
  std::set<std::uint32_t> carries_;
  std::map<std::int64_t, std::vector<std::uint32_t>> below_;
};

}  // namespace

Result<Exported> export_nccl_xml(const Machine& machine) {
  return NcclWriter(machine).write();
}

}  // namespace fairway::topology

#else

namespace fairway::topology {
Result<Exported> export_nccl_xml(const Machine&) {
  return Status(ErrorCode::unsupported, "this build has no pugixml: NCCL topology files cannot be written");
}
}  // namespace fairway::topology

#endif
