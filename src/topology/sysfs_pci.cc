#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include <fmt/format.h>

#include "topology/file.h"
#include "topology/pci.h"
#include "topology/sysfs.h"
#include "topology/text.h"

namespace fairway::topology {
namespace {

constexpr std::uint32_t kUnknownClass = 0xffffffff;

class PciReader {
 public:
  PciReader(FileTree& tree, Machine& machine) : tree_(tree), machine_(machine) {}

  void read() {
    const auto base = tree_.sys("bus/pci/devices");
    if (machine_.pci.empty()) {
      const auto names = tree_.list(base);
      for (const auto& name : names) {
        const auto target = read_link(base + "/" + name);
        add_path(target ? *target : name, base + "/" + name);
      }
      // A capture may have the tree without the bus directory.
      if (names.empty()) walk_devices();
      classify_bridges(machine_);
      drop_empty_bridges(machine_);
    }
    sort_pci(machine_);
    for (std::size_t i = 0; i < machine_.pci.size(); ++i) {
      read_facts(machine_.pci[i], path_of(machine_.pci[i].bus_id, base));
    }
    for (const auto& device : machine_.pci) {
      if (!device.host_bridge) continue;
      auto& last = machine_.host_bridges[device.host_bridge.index].last_bus;
      last = std::max(last, device.bus_id.bus);
    }
  }

 private:
  std::string path_of(const BusId& bus, const std::string& base) const {
    const auto found = where_.find(bus);
    return found != where_.end() ? found->second : base + "/" + bus.to_string();
  }

  // ".../pci0000:4e/0000:4e:00.0/0000:4f:00.0": the bridges above a device are in its path.
  void add_path(std::string_view target, const std::string& directory) {
    if (!tree_.status.is_ok()) return;
    Ref<HostBridge> root;
    Ref<PciDevice> parent;
    std::set<BusId> above;
    const auto parts = text::split(target, '/');
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (const auto bus = root_bus(parts[i])) {
        root = host_bridge(bus->first, bus->second);
        parent = {};
        continue;
      }
      const auto bus_id = BusId::parse(parts[i]);
      if (!bus_id) continue;
      if (!above.insert(*bus_id).second) {
        add_note(machine_, NoteKind::unreadable, bus_id->to_string(),
                 "lies below itself in sysfs: what is below was left out");
        return;
      }
      const auto known = index_.find(*bus_id);
      if (known != index_.end()) {
        parent = known->second;
        continue;
      }
      const bool last = i + 1 == parts.size();
      if (machine_.pci.size() >= kMaxPciDevices) {
        tree_.status = Status(ErrorCode::out_of_range,
                              fmt::format("more than {} PCI devices: no machine has so many", kMaxPciDevices));
        return;
      }
      const auto here = directory_above(directory, parts.size() - 1 - i);
      const auto class_code = tree_.hex(here + "/class").value_or(kUnknownClass);
      const auto vendor = tree_.hex(here + "/vendor").value_or(0);
      if (!is_kept(class_code, vendor) && last) return;
      PciDevice device;
      device.bus_id = *bus_id;
      device.parent = parent;
      device.host_bridge = root;
      if (is_pci_bridge(class_code)) device.kind = PciKind::bridge;
      parent = Ref<PciDevice>(machine_.pci.size());
      index_[*bus_id] = parent;
      where_[*bus_id] = here;
      machine_.pci.push_back(std::move(device));
    }
  }

  // The directory `up` levels above a device's real one.
  static std::string directory_above(const std::string& directory, std::size_t up) {
    std::string path = directory;
    for (std::size_t i = 0; i < up; ++i) path += "/..";
    return path;
  }

  Ref<HostBridge> host_bridge(std::uint32_t domain, std::uint8_t bus) {
    const auto [found, fresh] = roots_.try_emplace({domain, bus}, Ref<HostBridge>(machine_.host_bridges.size()));
    if (fresh) {
      auto& bridge = machine_.host_bridges.emplace_back();
      bridge.domain = domain;
      bridge.bus = bridge.last_bus = bus;
    }
    return found->second;
  }

  void walk_devices() {
    std::vector<std::pair<std::string, std::size_t>> open;  // path below devices/, depth
    for (const auto& name : tree_.list(tree_.sys("devices"))) {
      if (root_bus(name)) open.emplace_back(name, 0);
    }
    while (!open.empty() && tree_.status.is_ok()) {
      const auto [path, depth] = open.back();
      open.pop_back();
      if (depth > kMaxPciDepth) continue;
      for (const auto& name : tree_.list(tree_.sys("devices/" + path))) {
        if (!BusId::parse(name) && !root_bus(name)) continue;
        const auto below = path + "/" + name;
        if (BusId::parse(name)) add_path(below, tree_.sys("devices/" + below));
        open.emplace_back(below, depth + 1);
      }
    }
  }

  void read_facts(PciDevice& device, const std::string& path) {
    tree_.fill_hex(device.class_code, path + "/class");
    tree_.fill_hex(device.vendor_id, path + "/vendor");
    tree_.fill_hex(device.device_id, path + "/device");
    tree_.fill_hex(device.subsystem_vendor_id, path + "/subsystem_vendor");
    tree_.fill_hex(device.subsystem_device_id, path + "/subsystem_device");
    if (const auto node = tree_.text(path + "/numa_node")) {
      const auto value = text::to_u32(*node);  // "-1": the firmware does not say
      if (value && *value <= 4095) device.numa_node.learn(*value, Source::sysfs);
    }
    read_speed(device.link.speed_gts, path + "/current_link_speed");
    read_speed(device.link.max_speed_gts, path + "/max_link_speed");
    read_width(device.link.width, path + "/current_link_width");
    read_width(device.link.max_width, path + "/max_link_width");
    if (device.kind != PciKind::endpoint) return;
    if (const auto driver = FileTree::link_name(path + "/driver")) device.driver.learn(*driver, Source::sysfs);
    if (!is_gpu(device) && !is_network(device)) return;
    if (is_network(device)) read_purpose(device, path);
    if (const auto list = tree_.text(path + "/local_cpulist")) {
      if (const auto cpus = CpuSet::parse_list(*list)) device.local_cpus.learn(*cpus, Source::sysfs);
    }
    if (is_gpu(device)) read_gpu(device, path);
  }

  // Vital product data, which root may read: a vendor's keyword "SMDL=SW_MNG".
  void read_purpose(PciDevice& device, const std::string& path) {
    if (device.vendor_id.value_or(0) != kVendorMellanox) return;
    const auto vpd = read_file(path + "/vpd", 4096);
    const auto at = vpd ? vpd->find("SMDL=") : std::string::npos;
    if (!vpd || at == std::string::npos) return;
    auto end = at + 5;
    while (end < vpd->size() && ((*vpd)[end] == '_' || std::isalnum(static_cast<unsigned char>((*vpd)[end])) != 0))
      ++end;
    device.purpose.learn(vpd->substr(at + 5, end - at - 5), Source::sysfs);
  }

  // "32.0 GT/s PCIe" or "Unknown"; virtual devices lack the file.
  void read_speed(Fact<double>& fact, const std::string& path) {
    const auto content = tree_.text(path);
    const auto gts = content ? text::leading_double(*content) : std::nullopt;
    if (gts && *gts >= 0 && *gts <= 1000) fact.learn(*gts, Source::sysfs);
  }

  // The kernel prints 255 if it could not read the width.
  void read_width(Fact<std::uint32_t>& fact, const std::string& path) {
    const auto lanes = tree_.number(path);
    if (lanes && *lanes <= 64) fact.learn(static_cast<std::uint32_t>(*lanes), Source::sysfs);
  }

  void read_gpu(const PciDevice& device, const std::string& path) {
    Gpu gpu;
    gpu.pci = find_pci(machine_, device.bus_id);
    gpu.ordinal = static_cast<std::uint32_t>(machine_.gpus.size());
    if (device.vendor_id.value_or(0) == kVendorNvidia) {
      if (const auto resource = tree_.text(path + "/resource")) {
        if (const auto bytes = largest_window(*resource); bytes > 0) gpu.bar1_bytes.set(bytes, Source::sysfs);
      }
      if (tree_.has_proc()) read_driver(gpu, device.bus_id);
    }
    machine_.gpus.push_back(std::move(gpu));
  }

  // Line n of `resource` is BAR n: first, last, flags. The window into a GPU's memory is the largest prefetchable one
  // of its first five: BAR 1 up to Ampere; from Hopper on BAR 0 has 64 bits, and the window is BAR 2.
  static std::uint64_t largest_window(std::string_view resource) {
    constexpr std::uint64_t kPrefetch = 0x2000;  // IORESOURCE_PREFETCH
    std::uint64_t most = 0;
    const auto bars = text::lines(resource);
    for (std::size_t i = 0; i < bars.size() && i < 5; ++i) {
      const auto words = text::words(bars[i]);
      if (words.size() != 3) continue;
      const auto first = text::to_hex(words[0]);
      const auto last = text::to_hex(words[1]);
      const auto flags = text::to_hex(words[2]);
      if (!first || !last || !flags || *last <= *first) continue;
      // Registers of 16 to 64 MiB are no window; some captures have no flags.
      const bool window = (*flags & kPrefetch) != 0 || (*flags == 0 && i == 1);
      if (window) most = std::max(most, *last - *first + 1);
    }
    return most;
  }

  void read_driver(Gpu& gpu, const BusId& bus_id) {
    const auto content = tree_.text(tree_.proc("driver/nvidia/gpus/" + bus_id.to_string() + "/information"));
    if (!content) return;
    for (const auto line : text::lines(*content)) {
      const auto colon = line.find(':');
      if (colon == line.npos) continue;
      const auto value = text::quote(text::trim(line.substr(colon + 1)));
      if (line.starts_with("Model")) gpu.model.set(value, Source::procfs);
      if (line.starts_with("GPU UUID")) gpu.uuid.set(value, Source::procfs);
    }
  }

  FileTree& tree_;
  Machine& machine_;
  std::map<BusId, Ref<PciDevice>> index_;
  std::map<BusId, std::string> where_;
  std::map<std::pair<std::uint32_t, std::uint8_t>, Ref<HostBridge>> roots_;
};

}  // namespace

std::optional<std::pair<std::uint32_t, std::uint8_t>> root_bus(std::string_view part) {
  if (!part.starts_with("pci")) return {};
  const auto fields = text::split(part.substr(3), ':');
  if (fields.size() != 2 || fields[1].size() != 2) return {};
  const auto domain = text::to_hex(fields[0]);
  const auto bus = text::to_hex(fields[1]);
  if (!domain || !bus || *domain > 0xffffffffU || *bus > 0xff) return {};
  return std::pair(static_cast<std::uint32_t>(*domain), static_cast<std::uint8_t>(*bus));
}

bool is_kept(std::uint32_t class_code, std::uint32_t vendor_id) {
  if (class_code == kUnknownClass || is_pci_bridge(class_code)) return true;
  const auto base = class_code >> 16;
  // Storage, network, display, processing accelerators; NVSwitches are bridges of another sort (0680).
  return base == 0x01 || base == 0x02 || base == 0x03 || base == 0x12 ||
         ((class_code >> 8) == 0x0680 && vendor_id == kVendorNvidia);
}

void drop_empty_bridges(Machine& machine) {
  std::vector<bool> used(machine.pci.size(), false);
  for (std::size_t i = 0; i < machine.pci.size(); ++i) {
    if (machine.pci[i].kind != PciKind::endpoint) continue;
    std::size_t depth = 0;
    for (auto at = Ref<PciDevice>(i); at && !used[at.index] && depth++ <= kMaxPciDepth;
         at = machine.pci[at.index].parent) {
      used[at.index] = true;
    }
  }
  std::vector<Ref<PciDevice>> place(machine.pci.size());
  std::vector<PciDevice> kept;
  for (std::size_t i = 0; i < machine.pci.size(); ++i) {
    if (!used[i]) continue;
    place[i] = Ref<PciDevice>(kept.size());
    kept.push_back(std::move(machine.pci[i]));
  }
  for (auto& device : kept) {
    if (device.parent) device.parent = place[device.parent.index];
  }
  machine.pci = std::move(kept);
  // Also remove host bridges without devices.
  std::vector<Ref<HostBridge>> root_place(machine.host_bridges.size());
  std::vector<HostBridge> roots;
  for (const auto& device : machine.pci) {
    if (!device.host_bridge || root_place[device.host_bridge.index]) continue;
    root_place[device.host_bridge.index] = Ref<HostBridge>(roots.size());
    roots.push_back(machine.host_bridges[device.host_bridge.index]);
  }
  for (auto& device : machine.pci) {
    if (device.host_bridge) device.host_bridge = root_place[device.host_bridge.index];
  }
  machine.host_bridges = std::move(roots);
}

void read_sysfs_pci(FileTree& tree, Machine& machine) {
  PciReader(tree, machine).read();
}

}  // namespace fairway::topology
