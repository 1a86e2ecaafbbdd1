#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "topology/commands/command_text.h"
#include "topology/pci.h"
#include "topology/sysfs.h"
#include "topology/text.h"

// `ls -l` of a class or bus folder of /sys: each link's target is the device's path through the PCI tree,
// "mlx5_0 -> ../../devices/pci0000:20/0000:20:01.0/0000:21:00.0/infiniband/mlx5_0".
namespace fairway::topology {
namespace {

constexpr auto kSysfs = Source::sysfs;

struct Target {
  std::uint32_t domain = 0;
  std::uint8_t root_bus = 0;
  std::vector<BusId> way;  // from the root port down to the function
  bool is_virtual = false;
  std::string_view rdma;       // the device's name, where the link is one's
  std::string_view interface;  // the same of a network interface
};

std::optional<Target> parse_target(std::string_view text) {
  const auto parts = text::split(text, '/');
  const auto devices = std::ranges::find(parts, "devices");
  if (devices == parts.end() || devices + 1 == parts.end()) return {};
  Target target;
  const auto root = *(devices + 1);
  target.is_virtual = root == "virtual";
  if (!target.is_virtual) {
    const auto bus = root_bus(root);
    if (!bus) return {};
    target.domain = bus->first;
    target.root_bus = bus->second;
  }
  for (auto part = devices + 2; part < parts.end(); ++part) {
    const auto bus = BusId::parse(*part);
    if (bus && std::ranges::find(target.way, *bus) != target.way.end()) return {};
    if (bus) target.way.push_back(*bus);
    if (part + 1 == parts.end()) break;
    if (*part == "infiniband") target.rdma = *(part + 1);
    if (*part == "net") target.interface = *(part + 1);
  }
  if (target.way.size() > kMaxPciDepth) return {};
  return target;
}

class LinkReader {
 public:
  LinkReader(const std::string& place, Machine& machine)
      : place_(place),
        machine_(machine),
        devices_(machine, machine.rdma, kRdmaLimit),
        interfaces_(machine, machine.interfaces, kInterfaceLimit) {
    for (std::size_t i = 0; i < machine.nics.size(); ++i) {
      if (machine.nics[i].rdma) nics_.try_emplace(machine.nics[i].rdma.index, i);
    }
    for (std::size_t i = 0; i < machine.pci.size(); ++i) index_[machine.pci[i].bus_id] = Ref<PciDevice>(i);
    for (std::size_t i = 0; i < machine.host_bridges.size(); ++i) {
      const auto& bridge = machine.host_bridges[i];
      roots_[{bridge.domain, bridge.bus}] = Ref<HostBridge>(i);
    }
  }

  [[nodiscard]] std::size_t read() const { return read_; }

  void read_line(std::string_view line) {
    const auto arrow = line.find(" -> ");
    const auto target = arrow == line.npos ? std::nullopt : parse_target(text::trim(line.substr(arrow + 4)));
    if (!target) return;
    ++read_;
    if (target->is_virtual) {
      if (!target->rdma.empty()) {
        if (auto* device = devices_.find_or_add(target->rdma)) device->software.learn(true, kSysfs);
      }
      return;
    }
    // From a list of all devices take only those that other outputs name.
    const bool wanted = !target->rdma.empty() || !target->interface.empty();
    if (target->way.empty() || (!wanted && !index_.contains(target->way.back()))) return;
    const auto function = place_function(*target);
    if (!function) return;
    if (!target->rdma.empty()) join_rdma(target->rdma, function);
    if (!target->interface.empty()) join_interface(target->interface, function);
  }

 private:
  Ref<PciDevice> place_function(const Target& target) {
    const auto [found, fresh] =
        roots_.try_emplace({target.domain, target.root_bus}, Ref<HostBridge>(machine_.host_bridges.size()));
    if (fresh) {
      auto& bridge = machine_.host_bridges.emplace_back();
      bridge.domain = target.domain;
      bridge.bus = bridge.last_bus = target.root_bus;
    }
    const auto root = found->second;
    Ref<PciDevice> parent;
    for (std::size_t i = 0; i < target.way.size(); ++i) {
      auto& place = index_[target.way[i]];
      if (!place) {
        if (machine_.pci.size() >= kMaxPciDevices) {
          leave_out(machine_, kPciDeviceLimit);
          return {};
        }
        place = Ref<PciDevice>(machine_.pci.size());
        machine_.pci.emplace_back().bus_id = target.way[i];
      }
      auto& device = machine_.pci[place.index];
      if (!device.host_bridge && !device.parent) {
        device.host_bridge = root;
        device.parent = parent;
      } else if (device.parent != parent || (device.host_bridge && device.host_bridge != root)) {
        add_note(machine_, NoteKind::conflict, device.bus_id.to_string(),
                 fmt::format("{} shows it at two places of the PCI tree: the first is kept", place_));
        return {};
      }
      if (i + 1 < target.way.size()) device.kind = PciKind::bridge;
      parent = place;
      auto& last = machine_.host_bridges[root.index].last_bus;
      last = std::max(last, device.bus_id.bus);
    }
    return parent;
  }

  void join_rdma(std::string_view name, Ref<PciDevice> function) {
    auto* const device = devices_.find_or_add(name);
    if (device == nullptr) return;
    device->software.learn(false, kSysfs);
    const auto ref = Ref<RdmaDevice>(static_cast<std::size_t>(device - machine_.rdma.data()));
    const auto [known, fresh] = nics_.try_emplace(ref.index, machine_.nics.size());
    if (!fresh) {
      auto& functions = machine_.nics[known->second].functions;
      if (functions.empty()) functions.push_back(function);
      return;
    }
    auto& nic = machine_.nics.emplace_back();
    nic.name = device->name;
    nic.rdma = ref;
    nic.functions.push_back(function);
  }

  void join_interface(std::string_view name, Ref<PciDevice> function) {
    auto& pci = machine_.pci[function.index];
    pci.class_code.learn(pci.class_code.value_or(0x020000), kSysfs);
    const auto before = machine_.interfaces.size();
    auto* const interface = interfaces_.find_or_add(name);
    if (interface == nullptr) return;
    if (machine_.interfaces.size() > before) interface->kind = InterfaceKind::physical;
    interface->pci = function;
  }

  std::string place_;
  Machine& machine_;
  RdmaByName devices_;
  InterfaceByName interfaces_;
  std::map<std::uint32_t, std::size_t> nics_;  // by their RDMA devices
  std::size_t read_ = 0;
  std::map<BusId, Ref<PciDevice>> index_;
  std::map<std::pair<std::uint32_t, std::uint8_t>, Ref<HostBridge>> roots_;
};

// "/sys/class/net/eth0/speed:100000": the path ends at the first colon of its last part.
struct FileLine {
  std::string_view path, value;
};
std::optional<FileLine> file_line(std::string_view line) {
  line = text::trim(line);
  if (!line.starts_with("/sys/") && !is_sysfs_path(line.substr(0, line.find_first_of(" \t")))) return {};
  const auto path_end = std::min(line.find_first_of(" \t"), line.size());
  const auto last = line.substr(0, path_end).rfind('/') + 1;
  const auto colon = line.find(':', last);
  if (colon >= path_end || colon + 1 >= line.size() || BusId::parse(line.substr(last, path_end - last))) return {};
  return FileLine{line.substr(0, colon), text::trim(line.substr(colon + 1))};
}

// Devices of one reading of files, by name and bus id.
struct FileReading {
  explicit FileReading(Machine& of)
      : machine(of), rdma(of, of.rdma, kRdmaLimit), interfaces(of, of.interfaces, kInterfaceLimit) {}
  Ref<PciDevice> function(const BusId& bus) {
    for (; indexed < machine.pci.size(); ++indexed)
      functions.try_emplace(machine.pci[indexed].bus_id, Ref<PciDevice>(indexed));
    if (const auto found = functions.find(bus); found != functions.end()) return found->second;
    if (machine.pci.size() >= kMaxPciDevices) {
      leave_out(machine, kPciDeviceLimit);
      return {};
    }
    machine.pci.emplace_back().bus_id = bus;
    return Ref<PciDevice>(machine.pci.size() - 1);
  }

  Machine& machine;
  RdmaByName rdma;
  InterfaceByName interfaces;
  std::map<BusId, Ref<PciDevice>> functions;
  std::size_t indexed = 0;
};

bool read_interface_file(std::string_view name, std::string_view field, std::string_view value, FileReading& to) {
  const auto number = text::to_u32(value);
  const bool speed = field == "speed" && text::to_signed(value);
  const bool carrier = field == "carrier" && number && *number < 2;
  const bool mtu = field == "mtu" && number;
  if (!speed && !carrier && !mtu && field != "operstate") return false;
  auto* const interface = to.interfaces.find_or_add(name);
  if (interface == nullptr) return false;
  // A driver that knows no speed says -1.
  if (speed && number && *number > 0 && *number < 10000000) interface->speed_gbps.learn(*number / 1e3, kSysfs);
  if (carrier) interface->carrier.learn(*number == 1, kSysfs);
  if (mtu) interface->mtu.learn(*number, kSysfs);
  if (field == "operstate") interface->state.learn(text::quote(value), kSysfs);
  return true;
}

bool read_function_file(const BusId& bus, std::string_view field, std::string_view value, FileReading& to) {
  const auto gts = field.ends_with("_link_speed") ? text::leading_double(value) : std::nullopt;
  const auto lanes = field.ends_with("_link_width") ? text::to_u32(value) : std::nullopt;
  const auto node = field == "numa_node" ? text::to_signed(value) : std::nullopt;
  const auto hex = field == "vendor" || field == "device" || field == "class" ? text::to_hex(value) : std::nullopt;
  const bool known = (gts && *gts > 0 && *gts < 1000) || (lanes && *lanes <= 64) || node || (hex && *hex <= 0xffffff);
  if (!known) return false;
  const auto found = to.function(bus);
  if (!found) return false;
  auto& device = to.machine.pci[found.index];
  const bool most = field.starts_with("max_");
  if (gts) (most ? device.link.max_speed_gts : device.link.speed_gts).learn(*gts, kSysfs);
  if (lanes) (most ? device.link.max_width : device.link.width).learn(*lanes, kSysfs);
  if (node && *node >= 0 && *node <= 4095) device.numa_node.learn(static_cast<std::uint32_t>(*node), kSysfs);
  if (hex) {
    (field == "vendor"   ? device.vendor_id
     : field == "device" ? device.device_id
                         : device.class_code)
        .learn(static_cast<std::uint32_t>(*hex), kSysfs);
  }
  return true;
}

// The same device has paths in class/ and in devices/.
bool read_file_line(const FileLine& line, FileReading& to) {
  const auto parts = text::split(line.path, '/');
  const bool below = !line.path.starts_with('/');  // a folder of /sys
  if (below && parts.size() > 3 && parts[1] == "ports")
    return read_port_file(parts[0], line.path.substr(parts[0].size() + 1), line.value, to.machine, to.rdma);
  if (const auto bus = BusId::parse(parts[0]); below && bus && parts.size() == 2)
    return read_function_file(*bus, parts[1], line.value, to);
  for (std::size_t i = parts.size(); i-- > 2;) {
    const auto& name = parts[i];
    if (name.find_first_of("*?[{") != name.npos) return false;
    const auto above = parts[i - 1];
    if (i + 1 >= parts.size()) continue;
    const auto* const rest = parts[i + 1].data();
    const auto file = line.path.substr(static_cast<std::size_t>(rest - line.path.data()));
    if (above == "infiniband") return read_port_file(name, file, line.value, to.machine, to.rdma);
    if (above == "net") return read_interface_file(name, file, line.value, to);
    const auto bus = BusId::parse(name);
    if (bus && i + 2 == parts.size()) return read_function_file(*bus, file, line.value, to);
  }
  return false;
}

}  // namespace

bool is_sysfs_file(std::string_view line) {
  return file_line(line).has_value();
}

bool is_sysfs_path(std::string_view word) {
  if (word.starts_with("./")) word.remove_prefix(2);
  const auto parts = text::split(word, '/');
  if (parts.size() > 3 && !parts[0].empty() && parts[1] == "ports" && text::to_u32(parts[2]))
    return parts[0].find_first_of(".*?\"'(") == word.npos;
  constexpr std::string_view kFields[] = {"current_link_", "max_link_", "numa_node", "vendor", "device", "class"};
  return parts.size() == 2 && parts[0].size() == 12 && BusId::parse(parts[0]) &&
         std::ranges::any_of(kFields, [&](auto field) { return parts[1].starts_with(field); });
}

std::size_t read_sysfs_files(const Output& output, Machine& machine) {
  FileReading to(machine);
  std::size_t read = 0;
  std::vector<std::string_view> values;
  for (const auto line : text::lines(output.text)) {
    const auto own = file_line(line);
    if (own && read_file_line(*own, to)) ++read;
    if (!own && !text::trim(line).empty()) values.push_back(text::trim(line));
  }
  // `cat` of one file, or of several that its command names one by one.
  std::vector<std::string_view> paths;
  for (const auto word : text::words(std::string_view(output.command).substr(0, output.command.find_first_of("|;>")))) {
    if (word.starts_with("/sys/") || is_sysfs_path(word)) paths.push_back(word);
  }
  for (std::size_t i = 0; i < values.size() && values.size() == paths.size(); ++i) {
    if (read_file_line({paths[i], values[i]}, to)) ++read;
  }
  return read;
}

bool is_sysfs_link(std::string_view line) {
  const auto arrow = line.find(" -> ");
  return arrow != line.npos && parse_target(text::trim(line.substr(arrow + 4))).has_value();
}

std::size_t read_sysfs_links(std::string_view content, const std::string& place, Machine& machine) {
  LinkReader reader(place, machine);
  for (const auto line : text::lines(content)) reader.read_line(line);
  classify_bridges(machine);
  return reader.read();
}

}  // namespace fairway::topology
