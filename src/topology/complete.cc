#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "topology/catalog.h"
#include "topology/machine.h"
#include "topology/pci.h"
#include "topology/text.h"

namespace fairway::topology {
namespace {

// The most NVLinks of a GPU of any generation. If a row of a captured matrix sums to more, the links end in NVSwitches
// and are shown several times.
constexpr std::uint32_t kMostLinksOfAGpu = 18;

void carry_roots_down(Machine& machine) {
  for (auto& device : machine.pci) {
    auto above = device.parent;
    for (std::size_t depth = 0; !device.host_bridge && above && depth < kMaxPciDepth; ++depth) {
      device.host_bridge = machine.pci[above.index].host_bridge;
      above = machine.pci[above.index].parent;
    }
  }
  // A bridge without a recorded node takes the node that all devices below it share.
  std::vector<Fact<std::uint32_t>> common(machine.host_bridges.size());
  std::vector<bool> agree(machine.host_bridges.size(), true);
  for (const auto& device : machine.pci) {
    if (!device.host_bridge || !device.numa_node) continue;
    const auto i = device.host_bridge.index;
    if (!common[i].learn(*device.numa_node, device.numa_node.source)) agree[i] = false;
  }
  for (std::size_t i = 0; i < machine.host_bridges.size(); ++i) {
    auto& numa = machine.host_bridges[i].numa_node;
    if (!numa && agree[i]) numa = common[i];
    // With one node firmware often says -1.
    if (!numa && machine.numa_nodes.size() == 1) numa.set(machine.numa_nodes.front().os_index, Source::derived);
  }
}

void make_gpus(Machine& machine) {
  std::set<std::uint32_t> taken;
  std::uint32_t next = 0;
  for (const auto& gpu : machine.gpus) {
    if (gpu.pci) taken.insert(gpu.pci.index);
    next = std::max(next, gpu.ordinal + 1);
  }
  for (std::size_t i = 0; i < machine.pci.size(); ++i) {
    const auto& device = machine.pci[i];
    if (!is_gpu(device) || taken.contains(static_cast<std::uint32_t>(i))) continue;
    auto& gpu = machine.gpus.emplace_back();
    gpu.ordinal = next++;
    gpu.pci = Ref<PciDevice>(i);
  }
  for (auto& gpu : machine.gpus) {
    if (!gpu.pci) continue;
    const auto& device = machine.pci[gpu.pci.index];
    const auto vendor = device.vendor_id.value_or(0);
    const auto source = device.vendor_id.source;
    if (!gpu.vendor && vendor == kVendorNvidia) gpu.vendor.set("NVIDIA", source);
    if (!gpu.vendor && vendor == kVendorAmd) gpu.vendor.set("AMD", source);
    const bool other = vendor == kVendorHabana || vendor == kVendorMetax;
    if (!gpu.vendor && other) gpu.vendor.set(vendor == kVendorHabana ? "Habana" : "MetaX", source);
    if (other) {
      add_note(
          machine, NoteKind::unknown, device.bus_id.to_string(),
          "an accelerator of a kind that Fairway does not know: its links to others are not read, and no rule about "
          "GPUs applies");
    }
    if (!gpu.model && device.device_name) gpu.model = device.device_name;
    if (!gpu.cpus && device.local_cpus) gpu.cpus = device.local_cpus;
  }
}

void order_gpus(Machine& machine) {
  std::vector<std::uint32_t> order(machine.gpus.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, [&machine](std::uint32_t a, std::uint32_t b) {
    return machine.gpus[a].ordinal < machine.gpus[b].ordinal;
  });
  std::vector<std::uint32_t> place(order.size());
  std::vector<Gpu> sorted;
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
    sorted.push_back(std::move(machine.gpus[order[i]]));
  }
  machine.gpus = std::move(sorted);
  const auto move_node = [&place](NodeRef& node) {
    if (node.kind == NodeKind::gpu && node.index < place.size()) node.index = place[node.index];
  };
  for (auto& end : machine.matrix.ends) move_node(end);
  for (auto& link : machine.links) {
    move_node(link.a);
    move_node(link.b);
  }
  for (auto& peer : machine.peers) {
    if (peer.from && peer.from.index < place.size()) peer.from.index = place[peer.from.index];
    if (peer.to && peer.to.index < place.size()) peer.to.index = place[peer.to.index];
  }
}

void make_nv_switches(Machine& machine) {
  std::set<std::uint32_t> taken;
  for (const auto& nv_switch : machine.nv_switches) taken.insert(nv_switch.pci.index);
  for (std::size_t i = 0; i < machine.pci.size(); ++i) {
    if (is_nv_switch(machine.pci[i]) && !taken.contains(static_cast<std::uint32_t>(i))) {
      machine.nv_switches.push_back({Ref<PciDevice>(i)});
    }
  }
}

template <class T>
void add_unique(std::vector<Ref<T>>& list, Ref<T> item) {
  if (item && std::ranges::find(list, item) == list.end()) list.push_back(item);
}

// Where interfaces and bonds are, looked up once for all NICs.
struct Index {
  std::map<std::string_view, Ref<NetInterface>> interfaces;
  std::map<std::uint32_t, Ref<Bond>> bonds;                       // by their interface
  std::map<std::uint32_t, std::vector<Ref<NetInterface>>> below;  // interfaces of a PCI function

  explicit Index(const Machine& machine) {
    for (std::size_t i = 0; i < machine.interfaces.size(); ++i) {
      const auto& interface = machine.interfaces[i];
      interfaces.try_emplace(interface.name, Ref<NetInterface>(i));
      if (interface.pci) below[interface.pci.index].emplace_back(i);
    }
    for (std::size_t i = 0; i < machine.bonds.size(); ++i) {
      if (machine.bonds[i].interface) bonds.try_emplace(machine.bonds[i].interface.index, Ref<Bond>(i));
    }
  }
};

// Interfaces of a NIC by its RDMA ports.
void join_interfaces(const Machine& machine, const Index& index, Nic& nic) {
  if (!nic.rdma) return;
  std::set<std::string> names;
  for (const auto& port : machine.rdma[nic.rdma.index].ports) {
    if (port.interface) names.insert(*port.interface);
    for (const auto& gid : port.gids) {
      if (gid.interface) names.insert(*gid.interface);
    }
  }
  for (const auto& name : names) {
    const auto found = index.interfaces.find(name);
    if (found == index.interfaces.end()) continue;
    const auto interface = found->second;
    if (const auto bond = index.bonds.find(interface.index); bond != index.bonds.end()) {
      nic.bond = bond->second;
      for (const auto& leg : machine.bonds[bond->second.index].legs) add_unique(nic.interfaces, leg.interface);
    } else if (machine.interfaces[interface.index].kind == InterfaceKind::physical ||
               machine.interfaces[interface.index].kind == InterfaceKind::unknown) {
      add_unique(nic.interfaces, interface);
    }
  }
  for (const auto interface : nic.interfaces) {
    // An interface that already has a function of another card would join the wrong one; bonds may span cards.
    if (nic.functions.empty() || nic.bond) add_unique(nic.functions, machine.interfaces[interface.index].pci);
  }
}

void make_nics(Machine& machine) {
  const Index index(machine);
  std::set<std::uint32_t> have_nic;
  for (const auto& nic : machine.nics) {
    if (nic.rdma) have_nic.insert(nic.rdma.index);
  }
  for (std::size_t i = 0; i < machine.rdma.size(); ++i) {
    if (have_nic.contains(static_cast<std::uint32_t>(i))) continue;
    auto& nic = machine.nics.emplace_back();
    nic.name = machine.rdma[i].name;
    nic.rdma = Ref<RdmaDevice>(i);
  }
  for (auto& nic : machine.nics) join_interfaces(machine, index, nic);

  std::set<std::uint32_t> covered;
  for (const auto& nic : machine.nics) {
    if (nic.rdma && machine.rdma[nic.rdma.index].software.value_or(false)) continue;
    for (const auto function : nic.functions) covered.insert(function.index);
  }
  for (std::size_t i = 0; i < machine.pci.size(); ++i) {
    if (!is_network(machine.pci[i]) || covered.contains(static_cast<std::uint32_t>(i))) continue;
    auto& nic = machine.nics.emplace_back();
    nic.functions.push_back(Ref<PciDevice>(i));
    const auto below = index.below.find(static_cast<std::uint32_t>(i));
    nic.name = below == index.below.end() ? machine.pci[i].bus_id.to_string()
                                          : machine.interfaces[below->second.front().index].name;
  }
  for (auto& nic : machine.nics) {
    if (nic.functions.empty()) continue;
    const auto& device = machine.pci[nic.functions.front().index];
    if (!nic.model && device.device_name) nic.model = device.device_name;
    for (const auto function : nic.functions) {
      const auto below = index.below.find(function.index);
      if (nic.bond || below == index.below.end()) continue;
      for (const auto interface : below->second) add_unique(nic.interfaces, interface);
    }
  }
}

void order_nics(Machine& machine) {
  std::map<std::uint32_t, std::ptrdiff_t> captured;
  for (std::size_t i = 0; i < machine.matrix.ends.size(); ++i) {
    const auto end = machine.matrix.ends[i];
    if (end.kind == NodeKind::nic) captured.try_emplace(end.index, static_cast<std::ptrdiff_t>(i));
  }
  const auto rank = [&](std::uint32_t i) {
    const auto found = captured.find(i);
    const auto& nic = machine.nics[i];
    const bool software = nic.rdma && machine.rdma[nic.rdma.index].software.value_or(false);
    const int group = found != captured.end() ? 0 : nic.rdma && !software ? 1 : software ? 3 : 2;
    const auto place = group == 0 ? found->second : std::ptrdiff_t{0};
    const auto bus = group == 2 && !nic.functions.empty() ? machine.pci[nic.functions.front().index].bus_id : BusId{};
    return std::tuple(group, place, bus);
  };
  std::vector<std::uint32_t> order(machine.nics.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::vector<std::tuple<int, std::ptrdiff_t, BusId>> ranks;
  for (const auto i : order) ranks.push_back(rank(i));
  std::ranges::stable_sort(order, [&](std::uint32_t a, std::uint32_t b) {
    if (ranks[a] != ranks[b]) return ranks[a] < ranks[b];
    return text::natural_less(machine.nics[a].name, machine.nics[b].name);
  });
  std::vector<std::uint32_t> place(order.size());
  std::vector<Nic> sorted;
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
    sorted.push_back(std::move(machine.nics[order[i]]));
  }
  for (auto& end : machine.matrix.ends) {
    if (end.kind == NodeKind::nic) end.index = place[end.index];
  }
  machine.nics = std::move(sorted);
}

// Beside a Grace CPU stands one Hopper (GH200) or stand two Blackwells (GB200, GB300), whose NVLink is the fifth.
bool is_grace_blackwell(const Machine& machine) {
  std::set<std::uint32_t> nodes;
  return std::ranges::any_of(machine.links, [&nodes](const DeviceLink& link) {
    return link.kind == LinkKind::c2c && link.b.kind == NodeKind::numa_node && !nodes.insert(link.b.index).second;
  });
}

// NVLinks that only a captured matrix shows.
void infer_links(Machine& machine) {
  const auto& matrix = machine.matrix;
  if (has_gpu_links(machine) || matrix.empty()) return;
  const auto n = matrix.ends.size();
  std::uint32_t most = 0;
  std::vector<std::uint32_t> widest(n, 0);
  for (std::size_t r = 0; r < n; ++r) {
    std::uint32_t sum = 0;
    for (std::size_t c = 0; c < n; ++c) {
      const auto& cell = matrix.cells[r * n + c];
      if (cell.kind != PathKind::nvlink || matrix.ends[r].kind != NodeKind::gpu) continue;
      sum += cell.links;
      widest[r] = std::max(widest[r], cell.links);
    }
    most = std::max(most, sum);
  }
  if (most == 0) return;
  const bool blackwell = is_grace_blackwell(machine);
  const auto add = [&machine, blackwell](NodeRef a, NodeRef b, std::uint32_t count) {
    auto& link = machine.links.emplace_back();
    link.a = a;
    link.b = b;
    link.count.set(count, Source::derived);
    if (blackwell) link.generation.set(5, Source::derived);
  };
  if (most > kMostLinksOfAGpu) {
    machine.nv_switches.push_back({});
    const NodeRef fabric{NodeKind::nv_switch, static_cast<std::uint32_t>(machine.nv_switches.size() - 1)};
    for (std::size_t r = 0; r < n; ++r) {
      if (widest[r] > 0) add(matrix.ends[r], fabric, widest[r]);
    }
    add_note(
        machine, NoteKind::inferred, "NVSwitch",
        fmt::format("the matrix shows up to {} NVLinks of one GPU and no GPU has more than {}: they end in NVSwitches, "
                    "drawn as one because the matrix cannot say how many there are",
                    most, kMostLinksOfAGpu));
    return;
  }
  for (std::size_t r = 0; r < n; ++r) {
    for (std::size_t c = r + 1; c < n; ++c) {
      const auto& cell = matrix.cells[r * n + c];
      if (cell.kind == PathKind::nvlink) add(matrix.ends[r], matrix.ends[c], cell.links);
    }
  }
  add_note(machine, NoteKind::inferred, "NVLink",
           "the matrix cannot say whether its NVLinks are direct or pass NVSwitches: taken as direct");
}

// A leg without a signal is down, whatever a bond says that does not look. And of legs in several aggregators those of
// one carry nothing: the kernel uses the larger group.
void settle_bonds(Machine& machine) {
  for (auto& bond : machine.bonds) {
    std::map<std::uint32_t, std::size_t> groups;
    for (auto& leg : bond.legs) {
      const auto& carrier = machine.interfaces[leg.interface.index].carrier;
      if (carrier && !*carrier && leg.up.value_or(true)) leg.up.set(false, carrier.source);
      if (leg.aggregator && leg.up.value_or(true)) ++groups[*leg.aggregator];
    }
    if (bond.active_aggregator || groups.size() < 2) continue;
    const auto most =
        std::ranges::max_element(groups, [](const auto& a, const auto& b) { return a.second < b.second; });
    bond.active_aggregator.set(most->first, Source::derived);
    add_note(machine, NoteKind::inferred, node_name(machine, {NodeKind::interface, bond.interface.index}),
             fmt::format("its legs are in {} aggregators, and which one is active only root may read: {} is taken",
                         groups.size(), most->first));
  }
}

// Without a word on the hypervisor: virtio devices, and a discrete GPU or NIC directly on the root bus, where hardware
// has a root port between. (Cards of clouds give virtio to bare metal too, so that alone is no proof.)
void infer_guest(Machine& machine) {
  if (machine.virtual_machine) return;
  const bool virtio = std::ranges::any_of(
      machine.pci, [](const PciDevice& device) { return device.vendor_id.value_or(0) == kVendorVirtio; });
  const bool flat = std::ranges::any_of(machine.pci, [](const PciDevice& device) {
    const auto vendor = device.vendor_id.value_or(0);
    return device.kind == PciKind::endpoint && !device.parent && device.bus_id.bus == 0 &&
           (vendor == kVendorNvidia || vendor == kVendorMellanox);
  });
  if (!virtio || !flat) return;
  machine.virtual_machine.set("virtio", Source::derived);
  add_note(machine, NoteKind::inferred, "",
           "virtio devices, and passed-through ones directly on bus 00: taken for a virtual machine");
}

// Models that sit beside a Grace CPU have NVLink-C2C to it, though few sources say so.
void infer_c2c(Machine& machine) {
  for (std::uint32_t i = 0; i < machine.gpus.size(); ++i) {
    const auto* generation = machine.gpus[i].model ? find_gpu_generation(*machine.gpus[i].model) : nullptr;
    if (generation == nullptr || generation->c2c_gbs == 0 || c2c_gbs(machine, i)) continue;
    const auto numa = numa_of(machine, {NodeKind::gpu, i});
    auto node = numa ? find_numa(machine, *numa) : Ref<NumaNode>{};
    if (!node && machine.numa_nodes.size() == 1) node = Ref<NumaNode>(std::size_t{0});
    if (!node) continue;
    auto& link = machine.links.emplace_back();
    link.kind = LinkKind::c2c;
    link.a = {NodeKind::gpu, i};
    link.b = {NodeKind::numa_node, node.index};
    link.count.set(1, Source::catalogue);
    link.gbs_per_link.set(generation->c2c_gbs, Source::catalogue);
  }
}

}  // namespace

bool has_gpu_links(const Machine& machine) {
  return std::ranges::any_of(machine.links, [](const DeviceLink& link) { return link.kind != LinkKind::c2c; });
}

void complete(Machine& machine) {
  sort_pci(machine);
  if (!machine.packages.empty()) {
    const auto& package = machine.packages.front();
    if (!machine.cpu_vendor) machine.cpu_vendor = package.vendor;
    if (!machine.cpu_family) machine.cpu_family = package.family;
    if (!machine.cpu_model_number) machine.cpu_model_number = package.model_number;
  }
  carry_roots_down(machine);
  infer_guest(machine);
  name_devices(machine);
  make_gpus(machine);
  make_nv_switches(machine);
  order_gpus(machine);
  settle_bonds(machine);
  make_nics(machine);
  order_nics(machine);
  infer_links(machine);
  infer_c2c(machine);
  fill_link_rates(machine);
}

}  // namespace fairway::topology
