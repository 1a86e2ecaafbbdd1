// size: one walk over the file, read top to bottom
#include "topology/load.h"

#ifdef FAIRWAY_HAVE_PUGIXML

#include <algorithm>
#include <map>
#include <set>

#include "topology/catalog.h"
#include "topology/pci.h"
#include "topology/xml.h"

namespace fairway::topology {
namespace {

// An <nvlink> or <xgmi> element of a GPU; joined once all devices are known.
struct LinkLine {
  std::uint32_t gpu = 0;
  BusId target;
  LinkKind kind = LinkKind::nvlink;
  std::uint32_t count = 0;
  bool to_switch = false;
  std::size_t line = 0;
};

// NCCL's class of what is at the other end of a link (nvml wrapper: bridges of other kind are NVSwitches).
constexpr std::uint32_t kNvSwitchClass = 0x068000;

class NcclReader {
 public:
  NcclReader(std::string_view content, const std::string& name) : file_(content, name), name_(name) {}

  Result<Machine> read() {
    if (auto status = file_.parse(); !status) return status;
    const auto system = file_.document().child("system");
    if (!system) return Status(ErrorCode::invalid_argument, name_ + ": has no <system> element: not an NCCL topology");
    machine_.name = std::string(name_.substr(name_.rfind('/') + 1));
    // RCCL writes version 2 and gfx names; a link named xgmi is RCCL's too.
    source_ = attribute(system, "version") == "2" ? Source::rccl_xml : Source::nccl_xml;
    // With NVLink between hosts NCCL writes the CPUs of all of them, each with its host's hash: read is the first host.
    std::string_view host;
    std::set<std::string_view> others;
    for (const auto node : system.children()) {
      if (std::string_view(node.name()) == "cpu") {
        const auto hash = attribute(node, "host_hash");
        if (host.empty()) host = hash;
        if (!hash.empty() && hash != host) {
          others.insert(hash);
          continue;
        }
        if (auto status = read_cpu(node); !status) return status;
      } else if (node.type() == pugi::node_element) {
        skip(node);
      }
    }
    if (!others.empty()) {
      add_note(machine_, NoteKind::lost, "",
               fmt::format("the file is of {} hosts that NVLink joins: read is the first, {}", others.size() + 1,
                           text::quote(host)));
    }
    join_links();
    const bool classless =
        std::ranges::none_of(machine_.pci, [](const PciDevice& device) { return device.class_code.known(); });
    if (!machine_.pci.empty() && machine_.gpus.empty() && classless) {
      add_note(
          machine_, NoteKind::unknown, "",
          fmt::format("its {} PCI devices have no class: which of them are GPUs and which NICs NCCL asks the machine",
                      machine_.pci.size()));
    }
    add_note(machine_, NoteKind::unknown, "",
             "this format names neither sockets nor host bridges, so NODE shows as PHB, and a switch is one node "
             "without its ports");
    complete(machine_);
    if (machine_.pci.empty() && machine_.gpus.empty() && machine_.nics.empty() && machine_.numa_nodes.empty() &&
        machine_.packages.empty()) {
      return Status(ErrorCode::invalid_argument, name_ + ": holds no machine: no device, NUMA node or socket in it");
    }
    if (auto status = validate(machine_); !status) return status.with_context(name_);
    return std::move(machine_);
  }

 private:
  void skip(pugi::xml_node node) {
    add_note(machine_, NoteKind::unknown, file_.place(node),
             fmt::format("<{}> is not understood here and was left out", text::quote(node.name())));
  }

  Status read_cpu(pugi::xml_node cpu) {
    HostBridge bridge;
    bridge.folded = true;
    numa_ = {};
    const auto numa = text::to_signed(attribute(cpu, "numaid"));
    if (numa && *numa >= 0 && *numa <= 4095) {
      const auto os_index = static_cast<std::uint32_t>(*numa);
      if (find_numa(machine_, os_index)) {
        return file_.error(
            cpu, fmt::format("NUMA node {} appears twice; a file of several hosts is not one machine", os_index));
      }
      NumaNode node;
      node.os_index = os_index;
      if (const auto affinity = attribute(cpu, "affinity"); !affinity.empty()) {
        const auto cpus = CpuSet::parse_mask(affinity);
        if (!cpus) return file_.error(cpu, fmt::format("affinity \"{}\" is not a CPU mask", text::quote(affinity)));
        node.cpus.set(*cpus, source_);
      }
      numa_ = {NodeKind::numa_node, static_cast<std::uint32_t>(machine_.numa_nodes.size())};
      machine_.numa_nodes.push_back(std::move(node));
      bridge.numa_node.set(os_index, source_);
    } else {
      add_note(machine_, NoteKind::unknown, file_.place(cpu), "<cpu> has no usable numaid: the NUMA node is unknown");
    }
    if (const auto arch = attribute(cpu, "arch"); !arch.empty()) learn(machine_.architecture, arch);
    if (const auto vendor = attribute(cpu, "vendor"); !vendor.empty()) learn(machine_.cpu_vendor, vendor);
    if (const auto v = text::to_u32(attribute(cpu, "familyid"))) machine_.cpu_family.learn(*v, source_);
    if (const auto v = text::to_u32(attribute(cpu, "modelid"))) machine_.cpu_model_number.learn(*v, source_);

    const Ref<HostBridge> root(machine_.host_bridges.size());
    machine_.host_bridges.push_back(bridge);
    bool first = true;
    for (const auto node : cpu.children()) {
      const std::string_view element = node.name();
      if (element == "pci") {
        if (const auto bus = BusId::parse(attribute(node, "busid")); bus && first) {
          machine_.host_bridges.back().domain = bus->domain;
          machine_.host_bridges.back().bus = machine_.host_bridges.back().last_bus = bus->bus;
          first = false;
        }
        if (auto status = read_pci(node, {}, root, 0); !status) return status;
      } else if (element == "nic") {
        if (auto status = read_nic(node, {}, bridge.numa_node); !status) return status;
      } else if (node.type() == pugi::node_element) {
        skip(node);
      }
    }
    return {};
  }

  void learn(Fact<std::string>& fact, std::string_view value) { fact.learn(text::quote(value), source_); }

  Status read_pci(pugi::xml_node pci, Ref<PciDevice> parent, Ref<HostBridge> root, std::size_t depth) {
    if (depth >= kMaxPciDepth) return file_.error(pci, fmt::format("PCI devices nest more than {} deep", kMaxPciDepth));
    if (machine_.pci.size() >= kMaxPciDevices) {
      return file_.error(pci, fmt::format("more than {} PCI devices: no machine has so many", kMaxPciDevices));
    }
    PciDevice device;
    const auto bus_text = attribute(pci, "busid");
    const auto bus = BusId::parse(bus_text);
    if (!bus)
      return file_.error(pci, fmt::format("busid \"{}\" is not domain:bus:device.function", text::quote(bus_text)));
    device.bus_id = *bus;
    if (!seen_.insert(*bus).second) {
      add_note(machine_, NoteKind::conflict, bus->to_string(),
               fmt::format("appears twice, again in line {}: the second keeps its place, under a bus id of its own",
                           file_.line_of(pci)));
      device.bus_id = spare_bus_id(seen_);
    }
    device.parent = parent;
    device.host_bridge = root;
    const auto learn_hex = [&](Fact<std::uint32_t>& fact, const char* name, std::uint64_t limit) {
      const auto value = attribute_hex(pci, name, limit);
      // Hand-written virtual switches have ffff for their ids.
      if (value && !(limit == 0xffff && *value == 0xffff)) fact.set(*value, source_);
    };
    learn_hex(device.class_code, "class", 0xffffff);
    learn_hex(device.vendor_id, "vendor", 0xffff);
    learn_hex(device.device_id, "device", 0xffff);
    learn_hex(device.subsystem_vendor_id, "subsystem_vendor", 0xffff);
    learn_hex(device.subsystem_device_id, "subsystem_device", 0xffff);
    read_link(pci, device.link);
    if (is_pci_bridge(device.class_code.value_or(0)) || pci.child("pci")) device.kind = PciKind::pci_switch;

    const Ref<PciDevice> self(machine_.pci.size());
    machine_.pci.push_back(std::move(device));
    for (const auto child : pci.children()) {
      const std::string_view element = child.name();
      Status status;
      if (element == "pci") {
        status = read_pci(child, self, root, depth + 1);
      } else if (element == "gpu") {
        status = read_gpu(child, self);
      } else if (element == "nic") {
        status = read_nic(child, self, {});
      } else if (child.type() == pugi::node_element) {
        skip(child);
      }
      if (!status) return status;
    }
    return {};
  }

  void read_link(pugi::xml_node pci, PcieLink& link) {
    const auto speed = attribute(pci, "link_speed");
    const auto width = attribute(pci, "link_width");
    if (const auto gts = text::leading_double(speed); gts && *gts >= 0 && *gts <= 1000) {
      link.speed_gts.set(*gts, source_);
    } else if (!speed.empty()) {
      add_note(machine_, NoteKind::unreadable, file_.place(pci),
               fmt::format("link_speed \"{}\" is not a speed", text::quote(speed)));
    }
    if (const auto lanes = text::to_u32(width); lanes && *lanes <= 64) {
      link.width.set(*lanes, source_);
    } else if (!width.empty()) {
      add_note(machine_, NoteKind::unreadable, file_.place(pci),
               fmt::format("link_width \"{}\" is not a width", text::quote(width)));
    }
  }

  Status read_gpu(pugi::xml_node element, Ref<PciDevice> pci) {
    Gpu gpu;
    if (machine_.gpus.size() >= kMaxGpus) return file_.error(element, fmt::format("more than {} GPUs", kMaxGpus));
    const auto dev = text::to_u32(attribute(element, "dev"));
    if (!dev || *dev > 65535) return file_.error(element, "<gpu> has no usable dev number");
    if (const auto known = find_gpu(machine_, *dev)) {
      // MLOPart: a GPU cut into devices by the place of its memory, each with a rank of its own and the same links.
      if (machine_.gpus[known.index].pci != pci) return file_.error(element, fmt::format("GPU {} appears twice", *dev));
      add_note(machine_, NoteKind::remark, fmt::format("GPU{}", *dev),
               "is cut into several CUDA devices (MLOPart): shown as one");
      return {};
    }
    gpu.ordinal = *dev;
    gpu.pci = pci;
    if (const auto gcn = attribute(element, "gcn"); !gcn.empty()) {
      gpu.architecture.set(text::quote(gcn), source_);
      source_ = Source::rccl_xml;
    } else if (const auto sm = text::to_u32(attribute(element, "sm")); sm && *sm < 1000) {
      gpu.architecture.set(fmt::format("sm_{}", *sm), source_);
    }
    if (const auto gdr = attribute(element, "gdr"); gdr == "0" || gdr == "1")
      gpu.gpudirect_rdma.set(gdr == "1", source_);
    const auto index = static_cast<std::uint32_t>(machine_.gpus.size());
    machine_.gpus.push_back(std::move(gpu));
    for (const auto child : element.children()) {
      const std::string_view name = child.name();
      if (name == "c2c") {
        read_c2c(child, index);
        continue;
      }
      if (name != "nvlink" && name != "xgmi") {
        if (child.type() == pugi::node_element) skip(child);
        continue;
      }
      LinkLine line;
      line.gpu = index;
      line.kind = name == "xgmi" ? LinkKind::xgmi : LinkKind::nvlink;
      line.line = file_.line_of(child);
      line.to_switch = attribute_hex(child, "tclass", 0xffffff) == kNvSwitchClass && name == "nvlink";
      const auto count = text::to_u32(attribute(child, "count"));
      const auto target = BusId::parse(attribute(child, "target"));
      if (!count || *count > 1024) return file_.error(child, "a link's count is no small number");
      line.count = *count;
      if (target) {
        line.target = *target;
      } else if (!line.to_switch) {
        return file_.error(child,
                           fmt::format("target \"{}\" is not a bus id", text::quote(attribute(child, "target"))));
      }
      links_.push_back(line);
    }
    return {};
  }

  // NVLink-C2C to the CPU: MB/s of a link, and how many.
  void read_c2c(pugi::xml_node element, std::uint32_t gpu) {
    const auto mbs = text::to_double(attribute(element, "bw"));
    const auto count = text::to_u32(attribute(element, "count"));
    if (numa_.kind == NodeKind::none || !mbs || *mbs <= 0 || *mbs > 1e7 || !count || *count == 0 || *count > 64)
      return skip(element);
    auto& link = machine_.links.emplace_back();
    link.kind = LinkKind::c2c;
    link.a = {NodeKind::gpu, gpu};
    link.b = numa_;
    link.count.set(*count, source_);
    link.gbs_per_link.set(*mbs / 1000.0, source_);
  }

  Status read_nic(pugi::xml_node element, Ref<PciDevice> pci, const Fact<std::uint32_t>& numa) {
    for (const auto child : element.children()) {
      if (std::string_view(child.name()) != "net") {
        if (child.type() == pugi::node_element) skip(child);
        continue;
      }
      Nic nic;
      nic.name = text::quote(attribute(child, "name"));
      if (nic.name.empty()) return file_.error(child, "<net> has no name");
      if (machine_.nics.size() >= kMaxPciDevices) return file_.error(child, "too many <net> elements");
      if (!net_names_.insert(nic.name).second) {
        if (!add_port(child, nic.name, pci)) return file_.error(child, fmt::format("net {} appears twice", nic.name));
        continue;
      }
      if (pci) nic.functions.push_back(pci);
      nic.numa_node = numa;
      if (const auto gdr = attribute(child, "gdr"); gdr == "0" || gdr == "1")
        nic.gpudirect_rdma.set(gdr == "1", source_);
      Fact<double> rate;
      const auto speed = text::to_double(attribute(child, "speed"));  // Mb/s
      if (speed && *speed > 0 && *speed <= 1e8) rate.set(*speed / 1000.0, source_);
      if (is_socket(nic.name)) {
        NetInterface interface;
        interface.name = nic.name;
        interface.kind = InterfaceKind::physical;
        interface.pci = pci;
        interface.speed_gbps = rate;
        nic.interfaces.emplace_back(machine_.interfaces.size());
        machine_.interfaces.push_back(std::move(interface));
      } else {
        RdmaDevice rdma;
        rdma.name = nic.name;
        if (const auto guid = attribute(child, "guid"); !guid.empty()) rdma.node_guid.set(text::quote(guid), source_);
        auto& port = rdma.ports.emplace_back();
        port.number = text::to_u32(attribute(child, "port")).value_or(1);
        port.rate_gbps = rate;
        if (const auto most = attribute(child, "maxconn"); !most.empty()) {
          rdma.attributes.push_back({"maxconn", {text::quote(most), source_}});
        }
        nic.rdma = Ref<RdmaDevice>(machine_.rdma.size());
        machine_.rdma.push_back(std::move(rdma));
      }
      machine_.nics.push_back(std::move(nic));
    }
    return {};
  }

  // The second port of an RDMA device: the same name below the same function, with another number.
  bool add_port(pugi::xml_node net, const std::string& name, Ref<PciDevice> pci) {
    for (const auto& nic : machine_.nics) {
      const bool here = pci ? !nic.functions.empty() && nic.functions.front() == pci : nic.functions.empty();
      if (nic.name != name || !nic.rdma || !here) continue;
      auto& ports = machine_.rdma[nic.rdma.index].ports;
      RdmaPort port;
      port.number = text::to_u32(attribute(net, "port")).value_or(1);
      for (const auto& known : ports) {
        if (known.number == port.number) return false;
      }
      const auto speed = text::to_double(attribute(net, "speed"));
      if (speed && *speed > 0 && *speed <= 1e8) port.rate_gbps.set(*speed / 1000.0, source_);
      ports.push_back(std::move(port));
      return true;
    }
    return false;
  }

  // NCCL's socket transport writes interfaces; all others are verbs or plugin devices.
  static bool is_socket(std::string_view name) {
    for (const std::string_view prefix : {"eth", "en", "bond", "reth", "usb", "wl"}) {
      if (name.starts_with(prefix)) return true;
    }
    return false;
  }

  void join_links() {
    std::map<BusId, NodeRef> ends;
    for (std::uint32_t i = 0; i < machine_.gpus.size(); ++i) {
      ends[machine_.pci[machine_.gpus[i].pci.index].bus_id] = {NodeKind::gpu, i};
    }
    std::map<std::tuple<NodeRef, NodeRef, LinkKind>, std::uint32_t> joined;  // both ends to the place in machine_.links
    for (const auto& line : links_) {
      const NodeRef gpu{NodeKind::gpu, line.gpu};
      const auto place = fmt::format("{}:{}", name_, line.line);
      if (line.to_switch && !ends.contains(line.target)) {
        PciDevice device;
        device.bus_id = line.target;
        device.class_code.set(kNvSwitchClass, source_);
        NvSwitch nv_switch;
        if (seen_.insert(line.target).second) {
          nv_switch.pci = Ref<PciDevice>(machine_.pci.size());
          machine_.pci.push_back(std::move(device));
        }
        ends[line.target] = {NodeKind::nv_switch, static_cast<std::uint32_t>(machine_.nv_switches.size())};
        machine_.nv_switches.push_back(nv_switch);
      }
      const auto other = ends.find(line.target);
      if (other == ends.end() || other->second == gpu) {
        add_note(machine_, NoteKind::unknown, place,
                 fmt::format("GPU{} links to {}, which is no GPU or NVSwitch of this file: left out",
                             machine_.gpus[line.gpu].ordinal, line.target.to_string()));
        continue;
      }
      const auto key = std::tuple(std::min(gpu, other->second), std::max(gpu, other->second), line.kind);
      const auto [found, fresh] = joined.try_emplace(key, static_cast<std::uint32_t>(machine_.links.size()));
      if (!fresh) {
        const auto& first = machine_.links[found->second];
        if (*first.count != line.count) {
          add_note(machine_, NoteKind::conflict, place,
                   fmt::format("{} and {} disagree on their links: {} kept, {} dropped", node_name(machine_, first.a),
                               node_name(machine_, first.b), *first.count, line.count));
        }
        continue;
      }
      auto& link = machine_.links.emplace_back();
      link.kind = line.kind;
      link.a = gpu;
      link.b = other->second;
      link.count.set(line.count, source_);
      // NCCL counts the links that are up. A GPU has none only before the fabric is trained, or when all are down.
      if (line.count == 0) {
        link.active.set(0, source_);
        if (const auto all = links_of(line.gpu)) link.count.set(all, Source::catalogue);
      }
    }
  }

  // How many NVLinks GPUs of this model have; 0 where the catalogue does not know it.
  std::uint32_t links_of(std::uint32_t gpu) const {
    const auto& device = machine_.pci[machine_.gpus[gpu].pci.index];
    const auto name = pci_device_name(device.vendor_id.value_or(0), device.device_id.value_or(0));
    const auto* model = name ? find_gpu_generation(*name) : nullptr;
    return model == nullptr ? 0 : model->nvlinks;
  }

  XmlFile file_;
  std::string name_;
  NodeRef numa_;  // of the CPU that is being read
  Source source_ = Source::nccl_xml;
  Machine machine_;
  std::set<BusId> seen_;
  std::set<std::string> net_names_;
  std::vector<LinkLine> links_;
};

}  // namespace

Result<Machine> read_nccl_xml(std::string_view text, const std::string& name) {
  return NcclReader(text, name).read();
}

}  // namespace fairway::topology

#else

namespace fairway::topology {
Result<Machine> read_nccl_xml(std::string_view, const std::string& name) {
  return Status(ErrorCode::unsupported,
                name + ": this build has no pugixml: NCCL and RCCL topology files cannot be read");
}
}  // namespace fairway::topology

#endif
