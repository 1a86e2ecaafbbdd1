#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "topology/bridges.h"
#include "topology/command_text.h"
#include "topology/sysfs.h"
#include "topology/text.h"

// `ls -l` of a class or bus folder of /sys: each link's target is the device's path through the PCI tree,
// "mlx5_0 -> ../../devices/pci0000:20/0000:20:01.0/0000:21:00.0/infiniband/mlx5_0".
namespace fairway::topology {
namespace {

constexpr auto kSysfs = Source::sysfs;
constexpr std::size_t kMaxLinks = 65536;

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
  const auto devices = std::find(parts.begin(), parts.end(), "devices");
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
    if (bus && std::find(target.way.begin(), target.way.end(), *bus) != target.way.end()) return {};
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
  LinkReader(const std::string& place, Machine& machine) : place_(place), machine_(machine) {
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
        if (auto* device = rdma_named(target->rdma)) device->software.learn(true, kSysfs);
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
      HostBridge bridge;
      bridge.domain = target.domain;
      bridge.bus = bridge.last_bus = target.root_bus;
      machine_.host_bridges.push_back(bridge);
    }
    const auto root = found->second;
    Ref<PciDevice> parent;
    for (std::size_t i = 0; i < target.way.size(); ++i) {
      auto& place = index_[target.way[i]];
      if (!place) {
        if (machine_.pci.size() >= kMaxPciDevices) return {};
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

  RdmaDevice* rdma_named(std::string_view name) {
    const auto quoted = text::quote(name);
    if (const auto known = find_rdma(machine_, quoted)) return &machine_.rdma[known.index];
    if (machine_.rdma.size() >= kMaxLinks) return nullptr;
    machine_.rdma.emplace_back().name = quoted;
    return &machine_.rdma.back();
  }

  void join_rdma(std::string_view name, Ref<PciDevice> function) {
    auto* device = rdma_named(name);
    if (device == nullptr) return;
    device->software.learn(false, kSysfs);
    const auto ref = Ref<RdmaDevice>(static_cast<std::size_t>(device - machine_.rdma.data()));
    for (auto& nic : machine_.nics) {
      if (nic.rdma != ref) continue;
      if (nic.functions.empty()) nic.functions.push_back(function);
      return;
    }
    Nic nic;
    nic.name = device->name;
    nic.rdma = ref;
    nic.functions.push_back(function);
    machine_.nics.push_back(std::move(nic));
  }

  void join_interface(std::string_view name, Ref<PciDevice> function) {
    auto& pci = machine_.pci[function.index];
    pci.class_code.learn(pci.class_code.value_or(0x020000), kSysfs);
    const auto quoted = text::quote(name);
    auto known = find_interface(machine_, quoted);
    if (!known) {
      if (machine_.interfaces.size() >= kMaxLinks) return;
      known = Ref<NetInterface>(machine_.interfaces.size());
      machine_.interfaces.emplace_back().name = quoted;
      machine_.interfaces.back().kind = InterfaceKind::physical;
    }
    machine_.interfaces[known.index].pci = function;
  }

  std::string place_;
  Machine& machine_;
  std::size_t read_ = 0;
  std::map<BusId, Ref<PciDevice>> index_;
  std::map<std::pair<std::uint32_t, std::uint8_t>, Ref<HostBridge>> roots_;
};

}  // namespace

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
