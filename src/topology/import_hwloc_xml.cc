// size: one walk over the tree, read top to bottom
#include "topology/load.h"

#ifdef FAIRWAY_HAVE_PUGIXML

#include <cmath>
#include <map>
#include <set>

#include "topology/catalog.h"
#include "topology/pci.h"
#include "topology/xml.h"

namespace fairway::topology {
namespace {

constexpr auto kHwlocXml = Source::hwloc_xml;

// What an object's children inherit.
struct Place {
  Ref<Package> package;
  Fact<std::uint32_t> numa;  // of the nearest object that is near one NUMA node
  Ref<HostBridge> root;
  Ref<PciDevice> device;
  std::size_t depth = 0;
};

class HwlocReader {
 public:
  HwlocReader(std::string_view content, const std::string& name) : file_(content, name), name_(name) {}

  Result<Machine> read() {
    if (auto status = file_.parse(); !status) return status;
    const auto topology = file_.document().child("topology");
    if (!topology) return Status(ErrorCode::invalid_argument, name_ + ": has no <topology> element: not hwloc XML");
    const auto version = text::leading_double(attribute(topology, "version"));
    if (!version || *version < 2.0) {
      return Status(ErrorCode::unsupported,
                    name_ + ": hwloc XML of version 1; rewrite it as version 2 with lstopo --whole-io -i FILE NEW.xml");
    }
    bits_ = *version >= 3.0;
    machine_.name = std::string(name_.substr(name_.rfind('/') + 1));
    for (const auto object : topology.children("object")) {
      if (auto status = read_object(object, {}); !status) return status;
    }
    for (const auto node : topology.children()) {
      const std::string_view element = node.name();
      if (element == "distances2" || element == "distances2hetero") read_distances(node);
    }
    classify_bridges(machine_);
    add_note(
        machine_, NoteKind::unknown, "",
        "hwloc gives a PCIe link as one rate: generation and width, and what the link could do at best, stay unknown");
    complete(machine_);
    if (machine_.pci.empty() && machine_.gpus.empty() && machine_.nics.empty() && machine_.numa_nodes.empty() &&
        machine_.packages.empty()) {
      return Status(ErrorCode::invalid_argument, name_ + ": holds no machine: no device, NUMA node or socket in it");
    }
    if (auto status = validate(machine_); !status) return status.with_context(name_);
    return std::move(machine_);
  }

 private:
  Status read_object(pugi::xml_node object, Place place) {
    // Caches and cores nest too, hence more than the PCI depth.
    if (++place.depth > 4 * kMaxPciDepth) return file_.error(object, "objects nest too deep");
    const auto type = attribute(object, "type");
    if (const auto nodes = CpuSet::parse_mask(attribute(object, "nodeset"));
        nodes && !attribute(object, "nodeset").empty()) {
      place.numa = nearest_node(*nodes);
    }
    Status status;
    if (type == "Machine" || type == "System") {
      read_machine(object);
    } else if (type == "Package" || type == "Socket") {
      place.package = read_package(object);
    } else if (type == "NUMANode") {
      status = read_numa(object, place);
    } else if (type == "Bridge") {
      status = read_bridge(object, place);
    } else if (type == "PCIDev") {
      status = read_pci(object, PciKind::endpoint, place);
    } else if (type == "OSDev") {
      read_os_device(object, place);
    }
    if (!status) return status;
    for (const auto child : object.children("object")) {
      if (auto inner = read_object(child, place); !inner) return inner;
    }
    return {};
  }

  // The node of a set: the only one, or the only one with CPUs of its own, where the others are memory alone (CXL, HBM,
  // a Grace GPU's).
  Fact<std::uint32_t> nearest_node(const CpuSet& nodes) {
    if (nodes.count() == 1) return {nodes.ranges().front().first, kHwlocXml};
    Fact<std::uint32_t> found;
    for (const auto node : nodes_with_cpus()) {
      if (!nodes.contains(node)) continue;
      if (found) return {};
      found.set(node, kHwlocXml);
    }
    return found;
  }

  // NUMA nodes with CPUs of their own. hwloc gives memory alone the CPUs that it is near, so of nodes with equal sets
  // the lowest has them.
  const std::set<std::uint32_t>& nodes_with_cpus() {
    if (nodes_read_) return with_cpus_;
    nodes_read_ = true;
    std::map<std::string, std::uint32_t> lowest;
    for (const auto& found : file_.document().select_nodes("//object[@type='NUMANode']")) {
      const auto index = text::to_u32(attribute(found.node(), "os_index"));
      const std::string cpus(attribute(found.node(), "cpuset"));
      if (!index || cpus.find_first_not_of("0x,") == std::string::npos) continue;
      const auto [first, fresh] = lowest.try_emplace(cpus, *index);
      if (!fresh) first->second = std::min(first->second, *index);
    }
    for (const auto& [cpus, index] : lowest) with_cpus_.insert(index);
    return with_cpus_;
  }

  template <class F>
  static void each_info(pugi::xml_node object, F f) {
    for (const auto info : object.children("info")) f(attribute(info, "name"), attribute(info, "value"));
  }

  void read_machine(pugi::xml_node object) {
    each_info(object, [this](std::string_view key, std::string_view value) {
      const auto text = text::quote(value, 120);
      if (key == "DMIProductName") machine_.product.set(text, kHwlocXml);
      if (key == "Architecture") machine_.architecture.set(text, kHwlocXml);
      if (key == "OSRelease") machine_.kernel.set(text, kHwlocXml);
      if (key == "HostName") machine_.host_name.set(text, kHwlocXml);
    });
  }

  Ref<Package> read_package(pugi::xml_node object) {
    Package package;
    package.os_index =
        text::to_u32(attribute(object, "os_index")).value_or(static_cast<std::uint32_t>(machine_.packages.size()));
    if (const auto cpus = CpuSet::parse_mask(attribute(object, "cpuset"))) package.cpus.set(*cpus, kHwlocXml);
    each_info(object, [&package](std::string_view key, std::string_view value) {
      if (key == "CPUVendor") package.vendor.set(text::quote(value), kHwlocXml);
      if (key == "CPUModel") package.model.set(text::quote(value, 120), kHwlocXml);
      const auto number = text::to_u32(value);
      if (key == "CPUFamilyNumber" && number) package.family.set(*number, kHwlocXml);
      if (key == "CPUModelNumber" && number) package.model_number.set(*number, kHwlocXml);
    });
    machine_.packages.push_back(std::move(package));
    return Ref<Package>(machine_.packages.size() - 1);
  }

  Status read_numa(pugi::xml_node object, const Place& place) {
    const auto os_index = text::to_u32(attribute(object, "os_index"));
    if (!os_index || *os_index > 4095) return file_.error(object, "a NUMANode has no usable os_index");
    if (find_numa(machine_, *os_index))
      return file_.error(object, fmt::format("NUMA node {} appears twice", *os_index));
    auto& node = machine_.numa_nodes.emplace_back();
    node.os_index = *os_index;
    node.package = place.package;
    if (!nodes_with_cpus().contains(*os_index)) {
      node.cpus.set({}, kHwlocXml);
    } else if (const auto cpus = CpuSet::parse_mask(attribute(object, "cpuset"))) {
      node.cpus.set(*cpus, kHwlocXml);
    }
    if (const auto bytes = text::to_unsigned(attribute(object, "local_memory")))
      node.memory_bytes.set(*bytes, kHwlocXml);
    return {};
  }

  Status read_bridge(pugi::xml_node object, Place& place) {
    if (!attribute(object, "bridge_type").starts_with("0-")) return read_pci(object, PciKind::bridge, place);
    // "0000:[4e-67]"
    const auto range = attribute(object, "bridge_pci");
    const auto parts = text::split(range, ':');
    HostBridge bridge;
    const auto domain = text::to_hex(parts[0]);
    const auto buses = parts.size() == 2 ? text::split(parts[1], '-') : std::vector<std::string_view>{};
    std::optional<std::uint64_t> first;
    std::optional<std::uint64_t> last;
    if (buses.size() == 2 && buses[0].starts_with('[') && buses[1].ends_with(']')) {
      first = text::to_hex(buses[0].substr(1));
      last = text::to_hex(buses[1].substr(0, buses[1].size() - 1));
    }
    if (!domain || *domain > 0xffffffffU || !first || !last || *first > *last || *last > 0xff) {
      return file_.error(object, fmt::format("bridge_pci \"{}\" is not domain:[bus-bus]", text::quote(range)));
    }
    bridge.domain = static_cast<std::uint32_t>(*domain);
    bridge.bus = static_cast<std::uint8_t>(*first);
    bridge.last_bus = static_cast<std::uint8_t>(*last);
    bridge.numa_node = place.numa;
    if (machine_.host_bridges.size() >= kMaxPciDevices) return file_.error(object, "too many host bridges");
    place.root = Ref<HostBridge>(machine_.host_bridges.size());
    place.device = {};
    machine_.host_bridges.push_back(bridge);
    return {};
  }

  // "0302 [10de:1db8] [10de:131d] a1 00": class, ids, subsystem ids, revision and, in newer files, programming
  // interface.
  static void read_pci_type(std::string_view input, PciDevice& device) {
    const auto words = text::words(input);
    if (words.empty()) return;
    if (const auto kind = text::to_hex(words[0]); kind && *kind <= 0xffff) {
      device.class_code.set(static_cast<std::uint32_t>(*kind << 8), kHwlocXml);
    }
    const auto ids = [](std::string_view word, Fact<std::uint32_t>& vendor, Fact<std::uint32_t>& id) {
      if (word.size() != 11 || word.front() != '[' || word.back() != ']' || word[5] != ':') return;
      const auto v = text::to_hex(word.substr(1, 4));
      const auto d = text::to_hex(word.substr(6, 4));
      if (!v || !d || (*v == 0 && *d == 0)) return;
      vendor.set(static_cast<std::uint32_t>(*v), kHwlocXml);
      id.set(static_cast<std::uint32_t>(*d), kHwlocXml);
    };
    if (words.size() > 1) ids(words[1], device.vendor_id, device.device_id);
    if (words.size() > 2) ids(words[2], device.subsystem_vendor_id, device.subsystem_device_id);
  }

  Status read_pci(pugi::xml_node object, PciKind kind, Place& place) {
    if (machine_.pci.size() >= kMaxPciDevices) {
      return file_.error(object, fmt::format("more than {} PCI devices: no machine has so many", kMaxPciDevices));
    }
    PciDevice device;
    const auto bus = BusId::parse(attribute(object, "pci_busid"));
    if (!bus) {
      return file_.error(object, fmt::format("pci_busid \"{}\" is not domain:bus:device.function",
                                             text::quote(attribute(object, "pci_busid"))));
    }
    device.bus_id = *bus;
    if (!seen_.insert(*bus).second) {
      add_note(machine_, NoteKind::conflict, bus->to_string(),
               fmt::format("appears twice, again in line {}: the second keeps its place, under a bus id of its own",
                           file_.line_of(object)));
      device.bus_id = spare_bus_id(seen_);
    }
    device.kind = kind;
    device.parent = place.device;
    device.host_bridge = place.root;
    read_pci_type(attribute(object, "pci_type"), device);
    if (const auto rate = text::to_double(attribute(object, "pci_link_speed")); rate && *rate >= 0 && *rate < 1e6) {
      device.link.gbs.set(*rate, kHwlocXml);
    }
    each_info(object, [&device](std::string_view key, std::string_view value) {
      if (key == "PCIVendor") device.vendor_name.set(text::quote(value, 120), kHwlocXml);
      if (key == "PCIDevice") device.device_name.set(text::quote(value, 120), kHwlocXml);
    });
    place.device = Ref<PciDevice>(machine_.pci.size());
    by_index_[std::string(attribute(object, "gp_index"))] = place.device;
    machine_.pci.push_back(std::move(device));
    if (attribute(object, "subtype") == "NVSwitch") machine_.nv_switches.push_back({place.device});
    return {};
  }

  // hwloc 2 numbers the kinds: 1 GPU, 2 network, 3 OpenFabrics, 5 coprocessor. hwloc 3 has a bit for each, and a device
  // may be several: 4 GPU, 8 coprocessor, 16 network, 32 OpenFabrics; 1 is storage and 2 memory.
  [[nodiscard]] bool is_kind(std::uint32_t kind, std::uint32_t number, std::uint32_t bit) const {
    return bits_ ? (kind & bit) != 0 : kind == number;
  }

  void read_os_device(pugi::xml_node object, const Place& place) {
    const auto kind = text::to_u32(attribute(object, "osdev_type")).value_or(0);
    const auto name = text::quote(attribute(object, "name"));
    if (!place.device || name.empty()) return;
    by_index_[std::string(attribute(object, "gp_index"))] = place.device;
    const auto& device = machine_.pci[place.device.index];
    if (is_gpu(device)) {
      read_gpu(object, name, place);
    } else if (is_kind(kind, 3, 32)) {
      read_rdma(object, name, place);
    } else if (is_kind(kind, 2, 16)) {
      auto& interface = machine_.interfaces.emplace_back();
      interface.name = name;
      interface.kind = InterfaceKind::physical;
      interface.pci = place.device;
      each_info(object, [&interface](std::string_view key, std::string_view value) {
        if (key == "Address") interface.mac.set(text::quote(value), kHwlocXml);
      });
    }
  }

  void read_gpu(pugi::xml_node object, const std::string& name, const Place& place) {
    Gpu* gpu = nullptr;
    for (auto& known : machine_.gpus) {
      if (known.pci == place.device) gpu = &known;
    }
    // Only NVML's number is that of nvidia-smi.
    const auto ordinal = name.starts_with("nvml") ? text::to_u32(std::string_view(name).substr(4)) : std::nullopt;
    if (gpu == nullptr) {
      if (!ordinal || *ordinal > 65535 || find_gpu(machine_, *ordinal)) return;
      machine_.gpus.emplace_back();
      gpu = &machine_.gpus.back();
      gpu->ordinal = *ordinal;
      gpu->pci = place.device;
    }
    each_info(object, [gpu](std::string_view key, std::string_view value) {
      if (key == "GPUModel" && !gpu->model) gpu->model.set(text::quote(value), kHwlocXml);
      if (key == "NVIDIASerial") gpu->serial.set(text::quote(value), kHwlocXml);
      if (key == "NVIDIAUUID") gpu->uuid.set(text::quote(value), kHwlocXml);
    });
  }

  void read_rdma(pugi::xml_node object, const std::string& name, const Place& place) {
    if (find_rdma(machine_, name)) return;
    RdmaDevice rdma;
    rdma.name = name;
    std::map<std::uint32_t, RdmaPort> ports;
    each_info(object, [&](std::string_view key, std::string_view value) {
      if (key == "NodeGUID") rdma.node_guid.set(text::quote(value), kHwlocXml);
      if (key == "SysImageGUID") rdma.system_guid.set(text::quote(value), kHwlocXml);
      if (!key.starts_with("Port")) return;
      const auto number = text::leading_unsigned(key.substr(4));
      if (!number || *number == 0 || *number > 255) return;
      auto& port = ports[static_cast<std::uint32_t>(*number)];
      port.number = static_cast<std::uint32_t>(*number);
      if (key.ends_with("State")) port.state.set(value == "4" ? "ACTIVE" : value == "1" ? "DOWN" : "INIT", kHwlocXml);
      const auto lid = text::to_hex(value);
      if (key.ends_with("LID") && lid && *lid <= 0xffff) port.lid.set(static_cast<std::uint32_t>(*lid), kHwlocXml);
    });
    for (auto& [number, port] : ports) rdma.ports.push_back(std::move(port));
    auto& nic = machine_.nics.emplace_back();
    nic.name = name;
    nic.rdma = Ref<RdmaDevice>(machine_.rdma.size());
    nic.functions.push_back(place.device);
    machine_.rdma.push_back(std::move(rdma));
  }

  void read_distances(pugi::xml_node element) {
    std::vector<std::string> indexes;
    std::vector<std::uint64_t> values;
    for (const auto list : element.children("indexes")) {
      for (const auto word : text::words(list.child_value())) indexes.emplace_back(word);
    }
    for (const auto list : element.children("u64values")) {
      for (const auto word : text::words(list.child_value())) values.push_back(text::to_unsigned(word).value_or(0));
    }
    if (indexes.empty() || indexes.size() > 4096 || values.size() != indexes.size() * indexes.size()) {
      add_note(machine_, NoteKind::unreadable, file_.place(element),
               "a distance matrix without the values it announces");
      return;
    }
    const auto name = attribute(element, "name");
    if (name == "NUMALatency" && attribute(element, "indexing") == "os") read_latencies(indexes, values);
    if (name == "NVLinkBandwidth") read_nvlinks(indexes, values);
  }

  void read_latencies(const std::vector<std::string>& indexes, const std::vector<std::uint64_t>& values) {
    const auto n = indexes.size();
    if (n != machine_.numa_nodes.size()) return;
    // Rows go by the nodes' numbers, in whatever order both lists have them.
    std::vector<Ref<NumaNode>> order;
    for (const auto& one : indexes) {
      const auto os_index = text::to_u32(one);
      order.push_back(os_index ? find_numa(machine_, *os_index) : Ref<NumaNode>{});
      if (!order.back()) return;
    }
    for (std::size_t r = 0; r < n; ++r) {
      std::vector<std::uint32_t> row(n, 255);
      for (std::size_t c = 0; c < n; ++c)
        row[order[c].index] = static_cast<std::uint32_t>(std::min<std::uint64_t>(values[r * n + c], 255));
      machine_.numa_nodes[order[r].index].distances.set(std::move(row), kHwlocXml);
    }
  }

  // MB/s per direction between two ends, over all links between them.
  void read_nvlinks(const std::vector<std::string>& indexes, const std::vector<std::uint64_t>& values) {
    const auto n = indexes.size();
    std::vector<Ref<PciDevice>> devices(n);
    for (std::size_t i = 0; i < n; ++i) {
      const auto colon = indexes[i].find(':');
      const auto found = by_index_.find(colon == std::string::npos ? indexes[i] : indexes[i].substr(colon + 1));
      if (found != by_index_.end()) devices[i] = found->second;
    }
    std::map<std::uint32_t, NodeRef> ends;
    for (std::uint32_t i = 0; i < machine_.pci.size(); ++i) {
      if (is_gpu(machine_.pci[i])) gpus_[i] = true;
    }
    complete_gpus();
    for (std::uint32_t i = 0; i < machine_.gpus.size(); ++i) ends[machine_.gpus[i].pci.index] = {NodeKind::gpu, i};
    for (std::uint32_t i = 0; i < machine_.nv_switches.size(); ++i) {
      ends[machine_.nv_switches[i].pci.index] = {NodeKind::nv_switch, i};
    }
    for (std::size_t r = 0; r < n; ++r) {
      for (std::size_t c = r + 1; c < n; ++c) {
        const auto mbs = values[r * n + c];
        const auto a = ends.find(devices[r].index);
        const auto b = ends.find(devices[c].index);
        if (mbs == 0 || mbs > 100'000'000 || a == ends.end() || b == ends.end()) continue;
        auto& link = machine_.links.emplace_back();
        link.a = a->second;
        link.b = b->second;
        // A link has the rate of its GPU's generation: 50 GB/s of NVLink 5. Where the model is unknown, 20 GB/s (NVLink
        // 1) or 25 (NVLink 2 to 4): the one that divides the sum, if only one does.
        const bool first = mbs % 25000 != 0 && mbs % 20000 == 0;
        const auto known = link_mbs(a->second);
        const std::uint64_t per_link = known != 0 ? known : first ? 20000 : 25000;
        if (mbs % per_link == 0) {
          link.count.set(static_cast<std::uint32_t>(mbs / per_link), Source::derived);
          link.gbs_per_link.set(static_cast<double>(per_link) / 1000.0, Source::derived);
        } else {
          link.count.set(1, Source::derived);
          link.gbs_per_link.set(static_cast<double>(mbs) / 1000.0, kHwlocXml);
        }
      }
    }
    add_note(
        machine_, NoteKind::inferred, "NVLink",
        "hwloc gives the rate between two ends; the number of links is that rate over that of one link of the GPU's "
        "generation");
  }

  // MB/s of one NVLink of that GPU, by its name or PCI ids; 0 where the catalogue has none.
  std::uint64_t link_mbs(NodeRef gpu) const {
    if (gpu.kind != NodeKind::gpu) return 0;
    const auto& one = machine_.gpus[gpu.index];
    const auto& device = machine_.pci[one.pci.index];
    auto name = pci_device_name(device.vendor_id.value_or(0), device.device_id.value_or(0));
    if (!name && one.model) name = *one.model;
    if (!name && device.device_name) name = *device.device_name;
    const auto* generation = name ? find_gpu_generation(*name) : nullptr;
    if (generation == nullptr || generation->nvlink == 0) return 0;
    const auto gbs = catalogue_link_gbs(LinkKind::nvlink, generation->nvlink, *name);
    return gbs ? static_cast<std::uint64_t>(*gbs * 1000) : 0;
  }

  // GPUs without NVML's number, by bus id: links refer to them before complete() runs.
  void complete_gpus() {
    std::map<BusId, std::uint32_t> missing;
    for (const auto& [index, yes] : gpus_) missing[machine_.pci[index].bus_id] = index;
    std::uint32_t next = 0;
    for (const auto& gpu : machine_.gpus) {
      missing.erase(machine_.pci[gpu.pci.index].bus_id);
      next = std::max(next, gpu.ordinal + 1);
    }
    for (const auto& [bus, index] : missing) {
      auto& gpu = machine_.gpus.emplace_back();
      gpu.ordinal = next++;
      gpu.pci = Ref<PciDevice>(static_cast<std::size_t>(index));
    }
    std::ranges::stable_sort(machine_.gpus, {}, &Gpu::ordinal);
  }

  XmlFile file_;
  std::string name_;
  bool bits_ = false;  // the kinds of OS devices are bits: hwloc 3
  bool nodes_read_ = false;
  std::set<std::uint32_t> with_cpus_;
  Machine machine_;
  std::set<BusId> seen_;
  std::map<std::string, Ref<PciDevice>> by_index_;
  std::map<std::uint32_t, bool> gpus_;
};

}  // namespace

Result<Machine> read_hwloc_xml(std::string_view text, const std::string& name) {
  return HwlocReader(text, name).read();
}

}  // namespace fairway::topology

#else

namespace fairway::topology {
Result<Machine> read_hwloc_xml(std::string_view, const std::string& name) {
  return Status(ErrorCode::unsupported, name + ": this build has no pugixml: hwloc XML cannot be read");
}
}  // namespace fairway::topology

#endif
