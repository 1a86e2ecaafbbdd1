#include "machines.h"

#include <array>

namespace fairway::predict::test {

using namespace fairway::topology;

namespace {

constexpr auto kHand = Source::hand_written;

Ref<PciDevice> add_pci(Machine& machine, PciKind kind, Ref<HostBridge> bridge, Ref<PciDevice> parent, double gts) {
  PciDevice device;
  const auto n = machine.pci.size();
  device.bus_id = {static_cast<std::uint32_t>(n >> 8U), static_cast<std::uint8_t>(n & 0xffU), 0, 0};
  device.kind = kind;
  device.parent = parent;
  device.host_bridge = bridge;
  device.link.speed_gts = {gts, kHand};
  device.link.width = {16, kHand};
  machine.pci.push_back(device);
  return Ref<PciDevice>(n);
}

void add_port(Machine& machine, Nic& nic, const Spec& spec) {
  RdmaDevice rdma;
  rdma.name = nic.name;
  RdmaPort port;
  port.rate_gbps = {spec.nic_gbps, kHand};
  port.link_layer = {spec.infiniband ? "InfiniBand" : "Ethernet", kHand};
  port.active_mtu = {4096, kHand};
  rdma.ports.push_back(port);
  nic.rdma = Ref<RdmaDevice>(machine.rdma.size());
  machine.rdma.push_back(rdma);
  if (spec.legs < 2) return;
  Bond bond;
  bond.mode = {"802.3ad", kHand};
  for (std::uint32_t leg = 0; leg < spec.legs; ++leg) {
    NetInterface interface;
    interface.name = nic.name + "_leg" + std::to_string(leg);
    BondLeg one;
    one.interface = Ref<NetInterface>(machine.interfaces.size());
    one.speed_gbps = {spec.nic_gbps, kHand};
    bond.legs.push_back(one);
    machine.interfaces.push_back(interface);
  }
  NetInterface own;
  own.name = nic.name + "_bond";
  bond.interface = Ref<NetInterface>(machine.interfaces.size());
  machine.interfaces.push_back(own);
  nic.bond = Ref<Bond>(machine.bonds.size());
  machine.bonds.push_back(bond);
}

void add_gpu(Machine& machine, const Spec& spec, Ref<PciDevice> pci, std::uint32_t numa) {
  Gpu gpu;
  gpu.ordinal = static_cast<std::uint32_t>(machine.gpus.size());
  gpu.pci = pci;
  gpu.model = {spec.gpu, kHand};
  gpu.numa_node = {numa, kHand};
  machine.gpus.push_back(gpu);
}

void add_sockets(Machine& machine, const Spec& spec) {
  for (std::uint32_t socket = 0; socket < spec.sockets; ++socket) {
    Package package;
    package.os_index = socket;
    package.vendor = {spec.vendor, kHand};
    package.family = {spec.family, kHand};
    package.model_number = {spec.model, kHand};
    machine.packages.push_back(package);
    NumaNode numa;
    numa.os_index = socket;
    numa.package = Ref<Package>(socket);
    machine.numa_nodes.push_back(numa);
  }
}

}  // namespace

Machine server(const Spec& spec) {
  Machine machine;
  machine.name = "test server";
  add_sockets(machine, spec);
  for (std::uint32_t socket = 0; socket < spec.sockets; ++socket) {
    for (std::uint32_t b = 0; b < spec.bridges_per_socket; ++b) {
      HostBridge bridge;
      bridge.bus = static_cast<std::uint8_t>(machine.host_bridges.size());
      bridge.last_bus = bridge.bus;
      bridge.numa_node = {socket, kHand};
      const Ref<HostBridge> root(machine.host_bridges.size());
      machine.host_bridges.push_back(bridge);
      const auto port = add_pci(machine, PciKind::root_port, root, {}, spec.gts);
      const auto up = add_pci(machine, PciKind::switch_upstream, root, port, spec.gts);
      for (std::uint32_t i = 0; i < spec.gpus_per_bridge; ++i) {
        const auto gpu_slot = add_pci(machine, PciKind::switch_downstream, root, up, spec.gts);
        add_gpu(machine, spec, add_pci(machine, PciKind::endpoint, root, gpu_slot, spec.gts), socket);
        const auto nic_slot = add_pci(machine, PciKind::switch_downstream, root, up, spec.gts);
        Nic nic;
        nic.name = "mlx5_" + std::to_string(machine.nics.size());
        nic.functions = {add_pci(machine, PciKind::endpoint, root, nic_slot, spec.gts)};
        nic.numa_node = {socket, kHand};
        add_port(machine, nic, spec);
        machine.nics.push_back(nic);
      }
    }
  }
  if (spec.nvlinks > 0) {
    machine.nv_switches.emplace_back();
    for (std::uint32_t i = 0; i < machine.gpus.size(); ++i) {
      DeviceLink link;
      link.a = {NodeKind::gpu, i};
      link.b = {NodeKind::nv_switch, 0};
      link.count = {spec.nvlinks, kHand};
      link.gbs_per_link = {25, kHand};
      machine.links.push_back(link);
    }
  }
  return machine;
}

Machine pair_of(PathKind path, const Spec& spec) {
  Machine machine;
  machine.name = "pair";
  add_sockets(machine, spec);
  add_gpu(machine, spec, {}, 0);
  Nic nic;
  nic.name = "mlx5_0";
  nic.numa_node = {path == PathKind::sys ? 1U : 0U, kHand};
  add_port(machine, nic, spec);
  machine.nics.push_back(nic);
  machine.matrix.ends = {{NodeKind::gpu, 0}, {NodeKind::nic, 0}};
  machine.matrix.source = Source::topo_matrix;
  const PathClass self{PathKind::self, 0};
  const PathClass cell{path, 0};
  machine.matrix.cells = {self, cell, cell, self};
  return machine;
}

Flow send(std::uint32_t gpu, std::uint32_t nic, Conditions how) {
  return {{EndpointKind::gpu, gpu, {}}, {EndpointKind::nic, nic, {}}, {}, how};
}
Flow receive(std::uint32_t nic, std::uint32_t gpu, Conditions how) {
  return {{EndpointKind::nic, nic, {}}, {EndpointKind::gpu, gpu, {}}, {}, how};
}
Flow loop(std::uint32_t gpu, std::uint32_t nic, Conditions how) {
  return {{EndpointKind::gpu, gpu, {}}, {EndpointKind::gpu, gpu, {}}, nic, how};
}
Flow gpu_to_gpu(std::uint32_t a, std::uint32_t b, Conditions how) {
  return {{EndpointKind::gpu, a, {}}, {EndpointKind::gpu, b, {}}, {}, how};
}
Flow from_host(std::uint32_t numa, std::uint32_t gpu) {
  return {{EndpointKind::host_memory, numa, {}}, {EndpointKind::gpu, gpu, {}}, {}, {}};
}

Machine seed_h20() {
  Spec spec;
  spec.gpu = "NVIDIA H20";
  spec.vendor = "";
  spec.nic_gbps = 200;
  spec.legs = 2;
  Machine machine;
  machine.name = "H20 server";
  add_sockets(machine, spec);
  for (auto& package : machine.packages) package = {package.os_index, {}, {}, {}, {}, {}};  // its CPU is not known
  for (std::uint32_t i = 0; i < 8; ++i) add_gpu(machine, spec, {}, i / 4);
  for (std::uint32_t i = 0; i < 4; ++i) {
    Nic nic;
    nic.name = "mlx5_bond_" + std::to_string(i);
    nic.numa_node = {i / 2, kHand};
    nic.model = {"MT43244 BlueField-3 integrated ConnectX-7 network controller", kHand};
    add_port(machine, nic, spec);
    machine.nics.push_back(nic);
  }
  // The GPU beside each NIC, by the captured matrix.
  constexpr std::array<std::uint32_t, 4> kBeside = {1, 3, 4, 6};
  auto& matrix = machine.matrix;
  matrix.source = Source::topo_matrix;
  for (std::uint32_t i = 0; i < 8; ++i) matrix.ends.push_back({NodeKind::gpu, i});
  for (std::uint32_t i = 0; i < 4; ++i) matrix.ends.push_back({NodeKind::nic, i});
  for (const auto a : matrix.ends) {
    for (const auto b : matrix.ends) {
      PathClass path{PathKind::node, 0};
      const bool gpu_a = a.kind == NodeKind::gpu;
      const bool gpu_b = b.kind == NodeKind::gpu;
      const auto socket = [](NodeRef node) { return node.kind == NodeKind::gpu ? node.index / 4 : node.index / 2; };
      if (a == b) {
        path.kind = PathKind::self;
      } else if (gpu_a && gpu_b) {
        path = {PathKind::nvlink, 18};
      } else if (socket(a) != socket(b)) {
        path.kind = PathKind::sys;
      } else if (gpu_a != gpu_b && kBeside.at((gpu_a ? b : a).index) == (gpu_a ? a : b).index) {
        path.kind = PathKind::pix;
      }
      matrix.cells.push_back(path);
    }
  }
  return machine;
}

}  // namespace fairway::predict::test
