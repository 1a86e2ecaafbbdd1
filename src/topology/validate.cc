#include <cmath>
#include <set>

#include <fmt/format.h>

#include "topology/devices.h"
#include "topology/machine.h"

namespace fairway::topology {
namespace {

// Collects the first thing that is wrong.
class Checker {
 public:
  explicit Checker(const Machine& machine) : machine_(machine) {}

  template <class T>
  void ref(Ref<T> ref, std::size_t size, const char* what) {
    if (ref && ref.index >= size) fail(fmt::format("{} {} does not exist: there are {}", what, ref.index, size));
  }

  void node(NodeRef node, const char* what) {
    if (node.index >= size_of(node.kind)) {
      fail(fmt::format("{}: {} {} does not exist", what, to_string(node.kind), node.index));
    }
  }

  void number(const Fact<double>& fact, const char* what) {
    if (fact && (!std::isfinite(*fact) || *fact < 0 || *fact > 1e9)) {
      fail(fmt::format("{} is {}, which no machine has", what, *fact));
    }
  }

  void fail(std::string text) {
    if (status_.is_ok()) status_ = Status(ErrorCode::invalid_argument, std::move(text));
  }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  [[nodiscard]] std::size_t size_of(NodeKind kind) const {
    switch (kind) {
      case NodeKind::package: return machine_.packages.size();
      case NodeKind::numa_node: return machine_.numa_nodes.size();
      case NodeKind::host_bridge: return machine_.host_bridges.size();
      case NodeKind::pci: return machine_.pci.size();
      case NodeKind::gpu: return machine_.gpus.size();
      case NodeKind::nic: return machine_.nics.size();
      case NodeKind::rdma: return machine_.rdma.size();
      case NodeKind::interface: return machine_.interfaces.size();
      case NodeKind::bond: return machine_.bonds.size();
      case NodeKind::nv_switch: return machine_.nv_switches.size();
      case NodeKind::net_switch:
      case NodeKind::none: return 0;
    }
    return 0;
  }

  const Machine& machine_;
  Status status_;
};

void check_pci(const Machine& machine, Checker& check) {
  if (machine.pci.size() > kMaxPciDevices) {
    return check.fail(
        fmt::format("{} PCI devices: more than the {} that any machine has", machine.pci.size(), kMaxPciDevices));
  }
  std::set<BusId> seen;
  for (const auto& device : machine.pci) {
    check.ref(device.parent, machine.pci.size(), "parent PCI device");
    check.ref(device.host_bridge, machine.host_bridges.size(), "host bridge");
    check.number(device.link.speed_gts, "PCIe speed");
    check.number(device.link.max_speed_gts, "PCIe maximum speed");
    check.number(device.link.gbs, "PCIe rate");
    if (!seen.insert(device.bus_id).second)
      check.fail(fmt::format("bus id {} appears twice", device.bus_id.to_string()));
  }
  if (!check.status().is_ok()) return;
  // Depth of each device, found once: 10^4 devices in a chain stay linear.
  std::vector<std::uint32_t> depth(machine.pci.size(), 0);
  for (std::size_t i = 0; i < machine.pci.size(); ++i) {
    std::size_t steps = 0;
    for (auto at = machine.pci[i].parent; at; at = machine.pci[at.index].parent) {
      if (++steps > kMaxPciDepth) {
        return check.fail(fmt::format("PCI device {} lies below itself, or more than {} bridges deep",
                                      machine.pci[i].bus_id.to_string(), kMaxPciDepth));
      }
      if (depth[at.index] > 0) {
        steps += depth[at.index] - 1;
        break;
      }
    }
    if (steps > kMaxPciDepth) {
      return check.fail(
          fmt::format("PCI device {} lies more than {} bridges deep", machine.pci[i].bus_id.to_string(), kMaxPciDepth));
    }
    depth[i] = static_cast<std::uint32_t>(steps) + 1;
  }
}

void check_network(const Machine& machine, Checker& check) {
  for (const auto& nic : machine.nics) {
    for (const auto function : nic.functions) {
      check.ref(function, machine.pci.size(), "function of a NIC");
      if (!function) check.fail("a NIC has an empty function");
    }
    for (const auto interface : nic.interfaces) {
      check.ref(interface, machine.interfaces.size(), "interface of a NIC");
      if (!interface) check.fail("a NIC has an empty interface");
    }
    check.ref(nic.rdma, machine.rdma.size(), "RDMA device of a NIC");
    check.ref(nic.bond, machine.bonds.size(), "bond of a NIC");
    check.number(nic.rate_gbps, "NIC rate");
  }
  for (const auto& interface : machine.interfaces) {
    check.ref(interface.pci, machine.pci.size(), "PCI device of an interface");
    check.number(interface.speed_gbps, "interface speed");
  }
  for (const auto& bond : machine.bonds) {
    check.ref(bond.interface, machine.interfaces.size(), "interface of a bond");
    for (const auto& leg : bond.legs) {
      check.ref(leg.interface, machine.interfaces.size(), "leg of a bond");
      check.number(leg.speed_gbps, "bond leg speed");
    }
  }
  for (const auto& rdma : machine.rdma) {
    for (const auto& port : rdma.ports) check.number(port.rate_gbps, "port rate");
  }
}

}  // namespace

Status validate(const Machine& machine) {
  Checker check(machine);
  check_pci(machine, check);
  check_network(machine, check);
  for (const auto& node : machine.numa_nodes)
    check.ref(node.package, machine.packages.size(), "package of a NUMA node");
  for (const auto& link : machine.socket_links) {
    check.ref(link.a, machine.packages.size(), "end of a socket link");
    check.ref(link.b, machine.packages.size(), "end of a socket link");
    if (!link.a || !link.b) check.fail("a socket link has an empty end");
    check.number(link.gbs_per_link, "socket link rate");
  }
  if (machine.gpus.size() > kMaxGpus) {
    check.fail(fmt::format("{} GPUs: more than the {} that any machine has", machine.gpus.size(), kMaxGpus));
  }
  std::set<std::uint32_t> numbers;
  for (const auto& gpu : machine.gpus) {
    check.ref(gpu.pci, machine.pci.size(), "PCI device of a GPU");
    // Facts, fixes and commands name GPUs by their numbers.
    if (gpu.ordinal >= kNoNumber && !gpu.pci) check.fail("a GPU without a number and without a PCI device");
    if (!numbers.insert(gpu.ordinal).second) check.fail(fmt::format("two GPUs have the number {}", gpu.ordinal));
  }
  for (const auto& nv_switch : machine.nv_switches)
    check.ref(nv_switch.pci, machine.pci.size(), "PCI device of an NVSwitch");
  for (const auto& link : machine.links) {
    check.node(link.a, "end of a device link");
    check.node(link.b, "end of a device link");
    check.number(link.gbs_per_link, "device link rate");
  }
  for (const auto& peer : machine.peers) {
    check.ref(peer.from, machine.gpus.size(), "GPU of a peer pair");
    check.ref(peer.to, machine.gpus.size(), "GPU of a peer pair");
    if (!peer.from || !peer.to) check.fail("a peer pair has an empty end");
  }
  const auto n = machine.matrix.ends.size();
  if (machine.matrix.cells.size() != n * n) {
    check.fail(fmt::format("the recorded matrix has {} ends and {} cells", n, machine.matrix.cells.size()));
  }
  for (const auto end : machine.matrix.ends) {
    check.node(end, "end of the recorded matrix");
    if (end.kind != NodeKind::gpu && end.kind != NodeKind::nic)
      check.fail("the recorded matrix has an end that is no GPU or NIC");
  }
  return check.status();
}

Status validate(const Fabric& fabric) {
  for (std::size_t i = 0; i < fabric.machines.size(); ++i) {
    const auto status = validate(fabric.machines[i]);
    if (!status) return status.with_context(fmt::format("machine {}", i));
  }
  const auto exists = [&fabric](const CableEnd& end) {
    if (end.is_switch) return end.index < fabric.switches.size();
    return end.machine < fabric.machines.size() && end.index < fabric.machines[end.machine].nics.size();
  };
  for (std::size_t i = 0; i < fabric.cables.size(); ++i) {
    const auto& cable = fabric.cables[i];
    if (!exists(cable.a) || !exists(cable.b)) {
      return {ErrorCode::invalid_argument, fmt::format("cable {} has an end that does not exist", i)};
    }
  }
  return {};
}

}  // namespace fairway::topology
