#include <algorithm>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "topology/assess.h"
#include "topology/pci.h"
#include "topology/text.h"

// Which ports may carry bulk traffic, and which NIC is the best for a memory.
namespace fairway::topology {
namespace {

std::string gbps_text(const Fact<double>& gbps) {
  return gbps ? fmt::format("{:g} Gb/s", *gbps) : "unknown rate";
}

Ref<Nic> nic_of(const Machine& machine, std::uint32_t rdma) {
  for (std::size_t i = 0; i < machine.nics.size(); ++i) {
    if (machine.nics[i].rdma.index == rdma) return Ref<Nic>(i);
  }
  return {};
}

// Mellanox and Amazon functions carry bulk traffic; a virtio function is a management port.
bool is_virtio(const Machine& machine, const NetInterface& interface) {
  if (interface.driver && interface.driver->starts_with("virtio")) return true;
  return interface.pci && machine.pci[interface.pci.index].vendor_id.value_or(0) == kVendorVirtio;
}

// A ConnectX that manages NVLink: on a machine with EFA, which carries the traffic there, or behind the same switch as
// an NVSwitch.
std::string management_reason(const Machine& machine, const Nic& nic) {
  if (nic.functions.empty()) return {};
  const auto& own = machine.pci[nic.functions.front().index];
  if (own.vendor_id.value_or(0) != kVendorMellanox) return {};
  // The fabric manager's start script looks for this word too.
  if (own.purpose.value_or("") == "SW_MNG") return "no rail: its product data says SW_MNG: it manages NVLink";
  const bool efa = std::ranges::any_of(machine.pci, [](const PciDevice& device) {
    return device.vendor_id.value_or(0) == kVendorAmazon && is_rdma_function(device);
  });
  if (efa) return "no rail: a ConnectX beside EFA: it manages NVLink, and EFA carries the traffic";
  const auto upper_switch = [&](Ref<PciDevice> at) {
    for (std::size_t depth = 0; at && depth <= kMaxPciDepth; ++depth, at = machine.pci[at.index].parent) {
      const auto kind = machine.pci[at.index].kind;
      if (kind == PciKind::switch_upstream || kind == PciKind::pci_switch) return at;
    }
    return Ref<PciDevice>{};
  };
  const auto above = upper_switch(own.parent);
  const bool beside_gpu = above && std::ranges::any_of(machine.gpus, [&](const Gpu& gpu) {
                            return gpu.pci && upper_switch(machine.pci[gpu.pci.index].parent) == above;
                          });
  for (const auto& nv_switch : machine.nv_switches) {
    if (!above || beside_gpu || !nv_switch.pci) continue;
    if (upper_switch(machine.pci[nv_switch.pci.index].parent) == above)
      return "no rail: a ConnectX behind the switch of the NVSwitches: it manages NVLink";
  }
  return {};
}

// Google's machines have no RDMA: the adapters behind the GPUs' switches carry GPU traffic by TCP (GPUDirect-TCPX).
bool is_tcpx(const Machine& machine, Ref<PciDevice> function) {
  if (!function) return false;
  const auto& own = machine.pci[function.index];
  if (own.vendor_id.value_or(0) != kVendorGoogle) return false;
  std::set<std::uint32_t> above;
  for (auto at = own.parent; at && above.insert(at.index).second;) at = machine.pci[at.index].parent;
  return std::ranges::any_of(machine.gpus, [&](const Gpu& gpu) {
    std::size_t depth = 0;
    for (auto at = gpu.pci; at && depth++ <= kMaxPciDepth; at = machine.pci[at.index].parent) {
      if (above.contains(at.index)) return true;
    }
    return false;
  });
}

constexpr std::string_view kTcpx =
    "rail for TCP only: a Google adapter below a GPU's switch (GPUDirect-TCPX); its rate is not recorded";

// `nic` is the device's.
RailVerdict judge_rdma(const Machine& machine, std::uint32_t index, Ref<Nic> nic) {
  const auto& device = machine.rdma[index];
  RailVerdict verdict{{NodeKind::rdma, index}, false, {}};
  if (device.software.value_or(false)) {
    const auto below = device.ports.empty() ? Fact<std::string>{} : device.ports.front().interface;
    verdict.reason = fmt::format("no rail: a soft-RoCE device: the CPU moves every byte{}",
                                 below ? " over " + *below : std::string());
    return verdict;
  }
  const auto up = std::ranges::find_if(device.ports,
                                       [](const RdmaPort& port) { return port.state.value_or("ACTIVE") == "ACTIVE"; });
  if (!device.ports.empty() && up == device.ports.end()) {
    verdict.reason = fmt::format("no rail: its port is {}", *device.ports.front().state);
    return verdict;
  }
  // libibverbs lists devices that carry neither InfiniBand nor Ethernet, and no program can use them. (EFA says
  // "Unspecified".)
  if (up != device.ports.end() && up->link_layer && *up->link_layer == "Unknown") {
    verdict.reason = "no rail: its link layer is Unknown: neither InfiniBand nor Ethernet";
    return verdict;
  }
  if (auto reason = nic ? management_reason(machine, machine.nics[nic.index]) : std::string(); !reason.empty()) {
    verdict.reason = std::move(reason);
    return verdict;
  }
  const auto capacity = nic ? nic_capacity_gbps(machine, machine.nics[nic.index]) : Fact<double>{};
  const auto one_flow = nic ? nic_one_flow_gbps(machine, machine.nics[nic.index]) : Fact<double>{};
  if (capacity && *capacity < 10.0) {
    verdict.reason = fmt::format("no rail: {} is too slow for bulk traffic", gbps_text(capacity));
    return verdict;
  }
  verdict.rail = true;
  const auto& layer = up != device.ports.end() ? up->link_layer : Fact<std::string>{};
  const auto fabric = !layer                 ? std::string("RDMA")
                      : *layer == "Ethernet" ? (device.transport.value_or("") == "iWARP" ? "iWARP" : "RoCE")
                                             : *layer;
  verdict.reason = fmt::format("rail: {} at {}", fabric, gbps_text(capacity));
  const auto legs =
      nic && machine.nics[nic.index].bond ? machine.bonds[machine.nics[nic.index].bond.index].legs.size() : 0;
  if (legs > 1)
    verdict.reason += fmt::format(", a bond of {} legs of which one flow uses one ({})", legs, gbps_text(one_flow));
  if (device.ports.empty() || !up->state) verdict.reason += "; whether its port is up is not recorded";
  return verdict;
}

// Whether it is a NIC with an RDMA device that sends through the interface.
bool owns(const Machine& machine, const Nic& nic, std::uint32_t interface) {
  if (!nic.rdma || machine.rdma[nic.rdma.index].software.value_or(false)) return false;
  return (nic.bond && machine.bonds[nic.bond.index].interface.index == interface) ||
         std::ranges::find(nic.interfaces, Ref<NetInterface>(std::size_t{interface})) != nic.interfaces.end();
}
Ref<Nic> owner_of(const Machine& machine, std::uint32_t interface) {
  for (std::size_t i = 0; i < machine.nics.size(); ++i) {
    if (owns(machine, machine.nics[i], interface)) return Ref<Nic>(i);
  }
  return {};
}

// `owner` is the first of those.
RailVerdict judge_interface(const Machine& machine, std::uint32_t index, Ref<Nic> owner) {
  const auto& interface = machine.interfaces[index];
  RailVerdict verdict{{NodeKind::interface, index}, false, {}};
  const auto no = [&verdict](std::string reason) {
    verdict.reason = "no rail: " + std::move(reason);
    return verdict;
  };
  switch (interface.kind) {
    case InterfaceKind::loopback: return no("the loopback never leaves the host");
    case InterfaceKind::bridge: return no("a software bridge, for containers or virtual machines");
    case InterfaceKind::veth: return no("one end of a veth pair, of a container");
    case InterfaceKind::tun: return no("a tun or tap device: a program is behind it");
    case InterfaceKind::tunnel: return no("a tunnel: every packet is wrapped by the CPU");
    case InterfaceKind::dummy: return no("a dummy device: nothing is behind it");
    case InterfaceKind::vlan: return no("a VLAN: the interface below it counts");
    case InterfaceKind::macvlan: return no("a macvlan or ipvlan: the interface below it counts");
    case InterfaceKind::other: return no("a virtual interface without a device below it");
    case InterfaceKind::bond:
    case InterfaceKind::physical:
    case InterfaceKind::unknown: break;
  }
  if (interface.state.value_or("") == "down" || (interface.carrier && !*interface.carrier))
    return no("the link is down");
  if (owner) {
    const auto& nic = machine.nics[owner.index];
    const bool bonded = nic.bond && machine.bonds[nic.bond.index].interface.index == index;
    verdict.rail = judge_rdma(machine, nic.rdma.index, nic_of(machine, nic.rdma.index)).rail;
    verdict.reason = fmt::format("{}: {} {}", verdict.rail ? "rail" : "no rail",
                                 bonded     ? "the bond of"
                                 : nic.bond ? "a leg of"
                                            : "the interface of",
                                 machine.rdma[nic.rdma.index].name);
    return verdict;
  }
  if (is_virtio(machine, interface)) return no("a virtio port: the hypervisor's or the card's management network");
  // A VRF only routes: its ports count themselves.
  const auto master = interface.master ? find_interface(machine, *interface.master) : Ref<NetInterface>{};
  const bool is_vrf = master && machine.interfaces[master.index].kind == InterfaceKind::other;
  if (interface.master && interface.kind != InterfaceKind::bond && !is_vrf) {
    return no(fmt::format("belongs to {}, which counts instead", *interface.master));
  }
  if (interface.kind == InterfaceKind::bond) {
    return no(
        fmt::format("a bond without an RDMA device ({}): management, or TCP only", gbps_text(interface.speed_gbps)));
  }
  if (is_tcpx(machine, interface.pci) && !interface.speed_gbps) {
    verdict.rail = true;
    verdict.reason = kTcpx;
    return verdict;
  }
  if (!interface.speed_gbps) return no("its speed is unknown, and it has no RDMA device");
  if (*interface.speed_gbps < 25.0)
    return no(fmt::format("{} and no RDMA: a management port", gbps_text(interface.speed_gbps)));
  verdict.rail = true;
  verdict.reason = fmt::format("rail for TCP only: {} without an RDMA device", gbps_text(interface.speed_gbps));
  return verdict;
}

}  // namespace

RailVerdict rail_verdict(const Machine& machine, NodeRef node) {
  if (node.kind == NodeKind::rdma) return judge_rdma(machine, node.index, nic_of(machine, node.index));
  if (node.kind == NodeKind::interface) return judge_interface(machine, node.index, owner_of(machine, node.index));
  if (node.kind == NodeKind::nic) {
    const auto& nic = machine.nics[node.index];
    if (nic.rdma) {
      auto verdict = judge_rdma(machine, nic.rdma.index, Ref<Nic>(std::size_t{node.index}));
      verdict.node = node;
      return verdict;
    }
    if (is_tcpx(machine, pci_of(machine, node)) && nic.interfaces.empty()) return {node, true, std::string(kTcpx)};
    if (!nic.interfaces.empty()) {
      auto verdict = rail_verdict(machine, {NodeKind::interface, nic.interfaces.front().index});
      verdict.node = node;
      return verdict;
    }
    if (auto reason = management_reason(machine, nic); !reason.empty()) return {node, false, std::move(reason)};
    if (const auto pci = pci_of(machine, node); pci && is_rdma_function(machine.pci[pci.index])) {
      return {node, true,
              "rail: an InfiniBand or EFA function by its PCI ids; its RDMA device, rate and state are not recorded"};
    }
    return {node, false, "no rail known: neither an RDMA device nor an interface of this function is recorded"};
  }
  return {node, false, "no rail: not a network port"};
}

std::vector<RailVerdict> rail_verdicts(const Machine& machine) {
  std::vector<Ref<Nic>> of_rdma(machine.rdma.size());
  std::vector<Ref<Nic>> of_interface(machine.interfaces.size());
  const auto take = [](Ref<Nic>& slot, Ref<Nic> nic) { slot = slot ? slot : nic; };
  for (std::size_t i = 0; i < machine.nics.size(); ++i) {
    const auto& nic = machine.nics[i];
    if (!nic.rdma) continue;
    take(of_rdma[nic.rdma.index], Ref<Nic>(i));
    if (machine.rdma[nic.rdma.index].software.value_or(false)) continue;
    for (const auto interface : nic.interfaces) take(of_interface[interface.index], Ref<Nic>(i));
    const auto bond = nic.bond ? machine.bonds[nic.bond.index].interface : Ref<NetInterface> {};
    if (bond) take(of_interface[bond.index], Ref<Nic>(i));
  }
  std::vector<RailVerdict> verdicts;
  for (std::uint32_t i = 0; i < machine.rdma.size(); ++i) verdicts.push_back(judge_rdma(machine, i, of_rdma[i]));
  for (std::uint32_t i = 0; i < machine.interfaces.size(); ++i)
    verdicts.push_back(judge_interface(machine, i, of_interface[i]));
  for (std::uint32_t i = 0; i < machine.nics.size(); ++i) {
    const auto& nic = machine.nics[i];
    if (nic.rdma || !nic.interfaces.empty() || nic.functions.empty()) continue;
    if (is_tcpx(machine, nic.functions.front())) verdicts.push_back(rail_verdict(machine, {NodeKind::nic, i}));
  }
  return verdicts;
}

namespace {

void take_least(Fact<double>& least, const Fact<double>& gbs) {
  if (gbs && (!least || *gbs < *least)) least = gbs;
}

// The smallest known rate of the PCIe links from a device up to where its path meets the other end's.
void take_pcie(const Machine& machine, Ref<PciDevice> device, const std::vector<std::uint32_t>& stop,
               Fact<double>& least) {
  for (std::size_t depth = 0; device && depth <= kMaxPciDepth; ++depth) {
    if (std::ranges::find(stop, device.index) != stop.end()) return;
    take_least(least, believed_gbs(machine, machine.pci[device.index]));
    device = machine.pci[device.index].parent;
  }
}

std::vector<std::uint32_t> bridges_above(const Machine& machine, Ref<PciDevice> device) {
  std::vector<std::uint32_t> out;
  for (std::size_t depth = 0; device && depth <= kMaxPciDepth; ++depth) {
    out.push_back(device.index);
    device = machine.pci[device.index].parent;
  }
  return out;
}

// Whether two NUMA nodes belong to one socket: a path of class SYS between them crosses no link between sockets.
bool one_socket(const Machine& machine, const Fact<std::uint32_t>& a, const Fact<std::uint32_t>& b) {
  const auto first = a ? find_numa(machine, *a) : Ref<NumaNode>{};
  const auto second = b ? find_numa(machine, *b) : Ref<NumaNode>{};
  if (!first || !second) return false;
  const auto package = machine.numa_nodes[first.index].package;
  return package && package == machine.numa_nodes[second.index].package;
}

std::string_view class_words(PathKind kind, bool is_one_socket) {
  switch (kind) {
    case PathKind::pix: return "behind the same PCIe switch";
    case PathKind::pxb: return "behind the same host bridge, over several switches";
    case PathKind::phb: return "over one host bridge of the CPU";
    case PathKind::node: return "in the same NUMA node, over two host bridges";
    case PathKind::sys: return is_one_socket ? "across NUMA nodes of one socket" : "across sockets";
    default: return "its place is not recorded";
  }
}

void finish(const Machine& machine, NicChoice& choice, Ref<PciDevice> other, const Fact<std::uint32_t>& numa) {
  const auto& nic = machine.nics[choice.nic.index];
  const auto position = nic.functions.empty() ? Ref<PciDevice>{} : nic.functions.front();
  Fact<double> pcie;
  const auto above_other = bridges_above(machine, other);
  const auto above_nic = bridges_above(machine, position);
  take_pcie(machine, position, above_other, pcie);
  take_pcie(machine, other, above_nic, pcie);
  const auto port_gbps = nic_capacity_gbps(machine, nic);
  choice.gbs = pcie;
  if (port_gbps) take_least(choice.gbs, {*port_gbps / 8.0, port_gbps.source});
  const auto verdict = rail_verdict(machine, {NodeKind::nic, choice.nic.index});
  choice.rail = verdict.rail;
  const bool is_one_socket = one_socket(machine, numa, numa_of(machine, {NodeKind::nic, choice.nic.index}));
  choice.reason = fmt::format("{}: {}", choice.path.to_string(), class_words(choice.path.kind, is_one_socket));
  if (!choice.rail) choice.reason += "; " + verdict.reason;
}

void sort_choices(const Machine& machine, std::vector<NicChoice>& choices) {
  std::ranges::stable_sort(choices, [&machine](const NicChoice& a, const NicChoice& b) {
    const auto key = [](const NicChoice& c) { return std::tuple(!c.rail, c.path.kind, -c.gbs.value_or(0)); };
    if (key(a) != key(b)) return key(a) < key(b);
    return text::natural_less(machine.nics[a.nic.index].name, machine.nics[b.nic.index].name);
  });
}

}  // namespace

std::vector<NicChoice> nics_for_gpu(const Machine& machine, Ref<Gpu> gpu) {
  std::vector<NicChoice> choices;
  for (std::size_t i = 0; i < machine.nics.size(); ++i) {
    auto& choice = choices.emplace_back();
    choice.nic = Ref<Nic>(i);
    choice.path =
        path_class(machine, {NodeKind::gpu, gpu.index}, {NodeKind::nic, choice.nic.index}).value_or(PathClass{});
    finish(machine, choice, machine.gpus[gpu.index].pci, numa_of(machine, {NodeKind::gpu, gpu.index}));
  }
  sort_choices(machine, choices);
  return choices;
}

std::vector<NicChoice> nics_for_numa(const Machine& machine, std::uint32_t numa_os_index) {
  std::vector<NicChoice> choices;
  for (std::size_t i = 0; i < machine.nics.size(); ++i) {
    auto& choice = choices.emplace_back();
    choice.nic = Ref<Nic>(i);
    const auto numa = numa_of(machine, {NodeKind::nic, choice.nic.index});
    if (numa) choice.path = {*numa == numa_os_index ? PathKind::phb : PathKind::sys, 0};
    if (!numa && machine.numa_nodes.size() == 1) choice.path = {PathKind::phb, 0};
    finish(machine, choice, {}, {numa_os_index, Source::derived});
  }
  sort_choices(machine, choices);
  return choices;
}

}  // namespace fairway::topology
