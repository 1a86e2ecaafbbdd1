#include "machines/build_machines.h"

#include <array>
#include <vector>

#include <fmt/format.h>

namespace fairway::machines {
namespace {

using namespace topology;
constexpr auto kSource = Source::hand_written;

// Adds devices to a machine by bus id.
class Builder {
 public:
  explicit Builder(std::string name) { machine_.name = std::move(name); }

  Machine& machine() { return machine_; }

  void package(std::uint32_t index, const char* model, const char* cpus) {
    Package package;
    package.os_index = index;
    package.model.set(model, kSource);
    package.cpus.set(*CpuSet::parse_list(cpus), kSource);
    machine_.packages.push_back(std::move(package));
  }

  void node(std::uint32_t index, std::uint32_t package, const char* cpus) {
    NumaNode node;
    node.os_index = index;
    node.package = Ref<Package>(std::size_t{package});
    node.cpus.set(*CpuSet::parse_list(cpus), kSource);
    machine_.numa_nodes.push_back(std::move(node));
  }

  Ref<HostBridge> root(std::uint8_t bus, std::uint8_t last, std::uint32_t numa) {
    HostBridge bridge;
    bridge.bus = bus;
    bridge.last_bus = last;
    bridge.numa_node.set(numa, kSource);
    machine_.host_bridges.push_back(bridge);
    return Ref<HostBridge>(machine_.host_bridges.size() - 1);
  }

  Ref<PciDevice> pci(const std::string& bus, PciKind kind, Ref<PciDevice> parent, Ref<HostBridge> root,
                     std::uint32_t class_code, double gts, std::uint32_t width) {
    PciDevice device;
    device.bus_id = *BusId::parse(bus);
    device.kind = kind;
    device.parent = parent;
    device.host_bridge = root;
    device.class_code.set(class_code, kSource);
    device.link.speed_gts.set(gts, kSource);
    device.link.width.set(width, kSource);
    device.link.max_speed_gts.set(gts, kSource);
    device.link.max_width.set(width, kSource);
    machine_.pci.push_back(std::move(device));
    return Ref<PciDevice>(machine_.pci.size() - 1);
  }

  Ref<Gpu> gpu(Ref<PciDevice> pci, std::uint32_t vendor, const char* maker, const char* model,
               const char* architecture) {
    machine_.pci[pci.index].vendor_id.set(vendor, kSource);
    Gpu gpu;
    gpu.ordinal = static_cast<std::uint32_t>(machine_.gpus.size());
    gpu.pci = pci;
    gpu.vendor.set(maker, kSource);
    gpu.model.set(model, kSource);
    gpu.architecture.set(architecture, kSource);
    machine_.gpus.push_back(std::move(gpu));
    return Ref<Gpu>(machine_.gpus.size() - 1);
  }

  void nic(const std::string& name, Ref<PciDevice> pci, const char* layer, double gbps, std::uint32_t lanes,
           const char* model) {
    RdmaDevice rdma;
    rdma.name = name;
    rdma.software.set(false, kSource);
    RdmaPort port;
    port.link_layer.set(layer, kSource);
    port.state.set("ACTIVE", kSource);
    port.rate_gbps.set(gbps, kSource);
    port.lanes.set(lanes, kSource);
    rdma.ports.push_back(std::move(port));
    Nic nic;
    nic.name = name;
    nic.rdma = Ref<RdmaDevice>(machine_.rdma.size());
    nic.functions.push_back(pci);
    nic.model.set(model, kSource);
    machine_.rdma.push_back(std::move(rdma));
    machine_.nics.push_back(std::move(nic));
  }

  void link(LinkKind kind, NodeRef a, NodeRef b, std::uint32_t count, double gbs_per_link,
            std::uint32_t generation = 0) {
    DeviceLink link;
    link.kind = kind;
    link.a = a;
    link.b = b;
    link.count.set(count, kSource);
    link.active.set(count, kSource);
    link.gbs_per_link.set(gbs_per_link, kSource);
    if (generation > 0) link.generation.set(generation, kSource);
    machine_.links.push_back(link);
  }

  void gpu_link(LinkKind kind, std::uint32_t a, std::uint32_t b, std::uint32_t count, double gbs_per_link,
                std::uint32_t generation = 0) {
    link(kind, {NodeKind::gpu, a}, {NodeKind::gpu, b}, count, gbs_per_link, generation);
  }

  Machine finish(const char* document) {
    add_note(machine_, NoteKind::remark, "", fmt::format("written by hand from {}", document));
    complete(machine_);
    return std::move(machine_);
  }

 private:
  Machine machine_;
};

constexpr std::uint32_t kBridge = 0x060400;
constexpr std::uint32_t kThreeD = 0x030200;
constexpr std::uint32_t kInfiniBand = 0x020700;
constexpr std::uint32_t kEthernet = 0x020000;
constexpr std::uint32_t kNvidia = 0x10de;
constexpr std::uint32_t kAmd = 0x1002;

}  // namespace

Machine dgx1v() {
  Builder b("DGX-1V");
  b.package(0, "Intel(R) Xeon(R) CPU E5-2698 v4 @ 2.20GHz", "0-19,40-59");
  b.package(1, "Intel(R) Xeon(R) CPU E5-2698 v4 @ 2.20GHz", "20-39,60-79");
  b.node(0, 0, "0-19,40-59");
  b.node(1, 1, "20-39,60-79");
  // Two switches under each socket's one host bridge; two GPUs and a NIC behind each switch.
  std::vector<Ref<PciDevice>> gpus;
  for (std::uint32_t socket = 0; socket < 2; ++socket) {
    const auto root = b.root(static_cast<std::uint8_t>(socket == 0 ? 0x00 : 0x80),
                             static_cast<std::uint8_t>(socket == 0 ? 0x7f : 0xff), socket);
    for (std::uint32_t half = 0; half < 2; ++half) {
      const auto bus = [&](std::uint32_t n) { return 0x80 * socket + 0x10 * half + n; };
      const auto port = b.pci(fmt::format("0000:{:02x}:{:02x}.0", 0x80 * socket, 2 + half), PciKind::root_port, {},
                              root, kBridge, 8, 16);
      const auto up =
          b.pci(fmt::format("0000:{:02x}:00.0", bus(2)), PciKind::switch_upstream, port, root, kBridge, 8, 16);
      for (std::uint32_t k = 0; k < 3; ++k) {
        const auto down = b.pci(fmt::format("0000:{:02x}:{:02x}.0", bus(3), 4 * k), PciKind::switch_downstream, up,
                                root, kBridge, 8, 16);
        const auto below = fmt::format("0000:{:02x}:00.0", bus(4 + k));
        if (k < 2) {
          gpus.push_back(b.pci(below, PciKind::endpoint, down, root, kThreeD, 8, 16));
        } else {
          const auto pci = b.pci(below, PciKind::endpoint, down, root, kInfiniBand, 8, 16);
          b.nic(fmt::format("mlx5_{}", 2 * socket + half), pci, "InfiniBand", 100, 4, "ConnectX-4");
        }
      }
    }
  }
  for (const auto pci : gpus) b.gpu(pci, kNvidia, "NVIDIA", "Tesla V100-SXM2-32GB", "sm_70");
  struct Pair {
    std::uint32_t a, b, links;
  };
  constexpr std::array<Pair, 16> kMesh{{{0, 1, 1},
                                        {0, 2, 1},
                                        {0, 3, 2},
                                        {0, 4, 2},
                                        {1, 2, 2},
                                        {1, 3, 1},
                                        {1, 5, 2},
                                        {2, 3, 2},
                                        {2, 6, 1},
                                        {3, 7, 1},
                                        {4, 5, 1},
                                        {4, 6, 1},
                                        {4, 7, 2},
                                        {5, 6, 2},
                                        {5, 7, 1},
                                        {6, 7, 2}}};
  for (const auto& pair : kMesh) b.gpu_link(LinkKind::nvlink, pair.a, pair.b, pair.links, 25, 2);
  return b.finish("NVIDIA's DGX-1 system architecture white paper (hybrid cube mesh, NVLink 2); bus ids are made up");
}

Machine nvlink_bridge_pair() {
  Builder b("NVLink bridge pair");
  b.package(0, "AMD EPYC 7313P 16-Core Processor", "0-31");
  b.node(0, 0, "0-31");
  const auto root = b.root(0x00, 0x7f, 0);
  for (std::uint32_t k = 0; k < 2; ++k) {
    const auto port = b.pci(fmt::format("0000:00:{:02x}.0", 1 + k), PciKind::root_port, {}, root, kBridge, 16, 16);
    const auto pci = b.pci(fmt::format("0000:{:02x}:00.0", 0x41 + k), PciKind::endpoint, port, root, kThreeD, 16, 16);
    b.gpu(pci, kNvidia, "NVIDIA", "NVIDIA A100 80GB PCIe", "sm_80");
  }
  const auto nic_root = b.root(0xc0, 0xcf, 0);
  const auto port = b.pci("0000:c0:01.0", PciKind::root_port, {}, nic_root, kBridge, 16, 16);
  b.nic("mlx5_0", b.pci("0000:c1:00.0", PciKind::endpoint, port, nic_root, kEthernet, 16, 16), "Ethernet", 200, 4,
        "ConnectX-6");
  b.gpu_link(LinkKind::nvlink, 0, 1, 12, 25, 3);
  return b.finish(
      "NVIDIA's A100 PCIe product brief (three bridges, 12 links, 600 GB/s both ways); the board is made up");
}

Machine mi250x() {
  Builder b("4x MI250X");
  b.package(0, "AMD EPYC 7A53 64-Core Processor", "0-127");
  const std::array<const char*, 4> cpus{"0-15,64-79", "16-31,80-95", "32-47,96-111", "48-63,112-127"};
  for (std::uint32_t n = 0; n < 4; ++n) b.node(n, 0, cpus[n]);
  // Which NUMA node each package of two dies is near.
  const std::array<std::uint32_t, 4> near{3, 1, 0, 2};
  for (std::uint32_t module = 0; module < 4; ++module) {
    const auto root = b.root(static_cast<std::uint8_t>(0xc0 + 0x08 * module),
                             static_cast<std::uint8_t>(0xc7 + 0x08 * module), near[module]);
    const auto bus = 0xc0 + 0x08 * module;
    const auto port = b.pci(fmt::format("0000:{:02x}:01.0", bus), PciKind::root_port, {}, root, kBridge, 16, 16);
    const auto up =
        b.pci(fmt::format("0000:{:02x}:00.0", bus + 1), PciKind::switch_upstream, port, root, kBridge, 16, 16);
    const std::array<std::uint32_t, 3> classes{0x038000, 0x038000, kEthernet};
    for (std::uint32_t k = 0; k < 3; ++k) {
      const auto down =
          b.pci(fmt::format("0000:{:02x}:{:02x}.0", bus + 2, k), PciKind::switch_downstream, up, root, kBridge, 16, 16);
      const auto pci =
          b.pci(fmt::format("0000:{:02x}:00.0", bus + 3 + k), PciKind::endpoint, down, root, classes[k], 16, 16);
      if (k < 2) {
        b.gpu(pci, kAmd, "AMD", "AMD Instinct MI250X (one die)", "gfx90a");
      } else {
        b.nic(fmt::format("hsn{}", module), pci, "Ethernet", 200, 4, "Slingshot 11");
      }
    }
  }
  struct Pair {
    std::uint32_t a, b, links;
  };
  // Four links inside a module; two or one between modules: seven of each die's eight. The eighth goes to the CPU.
  constexpr std::array<Pair, 12> kMesh{{{0, 1, 4},
                                        {2, 3, 4},
                                        {4, 5, 4},
                                        {6, 7, 4},
                                        {0, 6, 2},
                                        {0, 2, 1},
                                        {1, 3, 2},
                                        {1, 5, 1},
                                        {2, 4, 2},
                                        {3, 7, 1},
                                        {4, 6, 1},
                                        {5, 7, 2}}};
  for (const auto& pair : kMesh) b.gpu_link(LinkKind::xgmi, pair.a, pair.b, pair.links, 50);
  for (std::uint32_t die = 0; die < 8; ++die) {
    b.link(LinkKind::xgmi, {NodeKind::numa_node, near[die / 2]}, {NodeKind::gpu, die}, 1, 36);
  }
  return b.finish(
      "the node diagrams of OLCF's Frontier and CSC's LUMI user guides (xGMI 50 GB/s a link, 36 to the CPU); bus ids "
      "are made up");
}

Machine h100_host(const std::string& name) {
  Builder b(name);
  b.package(0, "Intel(R) Xeon(R) Platinum 8480C", "0-55,112-167");
  b.package(1, "Intel(R) Xeon(R) Platinum 8480C", "56-111,168-223");
  b.node(0, 0, "0-55,112-167");
  b.node(1, 1, "56-111,168-223");
  SocketLink upi;
  upi.a = Ref<Package>(0);
  upi.b = Ref<Package>(1);
  upi.kind.set("UPI", kSource);
  upi.links.set(3, kSource);
  b.machine().socket_links.push_back(upi);
  for (std::uint32_t k = 0; k < 8; ++k) {
    const std::uint32_t bus = 0x10 + 0x18 * k;
    const auto root = b.root(static_cast<std::uint8_t>(bus), static_cast<std::uint8_t>(bus + 0x17), k / 4);
    const auto port = b.pci(fmt::format("0000:{:02x}:01.0", bus), PciKind::root_port, {}, root, kBridge, 32, 16);
    const auto up =
        b.pci(fmt::format("0000:{:02x}:00.0", bus + 1), PciKind::switch_upstream, port, root, kBridge, 32, 16);
    const auto left =
        b.pci(fmt::format("0000:{:02x}:00.0", bus + 2), PciKind::switch_downstream, up, root, kBridge, 32, 16);
    const auto right =
        b.pci(fmt::format("0000:{:02x}:01.0", bus + 2), PciKind::switch_downstream, up, root, kBridge, 32, 16);
    b.nic(fmt::format("mlx5_{}", k),
          b.pci(fmt::format("0000:{:02x}:00.0", bus + 3), PciKind::endpoint, left, root, kInfiniBand, 32, 16),
          "InfiniBand", 400, 4, "ConnectX-7");
    b.gpu(b.pci(fmt::format("0000:{:02x}:00.0", bus + 4), PciKind::endpoint, right, root, kThreeD, 32, 16), kNvidia,
          "NVIDIA", "NVIDIA H100 80GB HBM3", "sm_90");
    b.machine().nics.back().net_switch.set(fmt::format("rail-{}", k), kSource);
  }
  // Four NVSwitches; of each GPU's 18 links 4, 4, 5 and 5 go to them.
  for (std::uint32_t s = 0; s < 4; ++s) {
    b.machine().nv_switches.emplace_back();
    for (std::uint32_t g = 0; g < 8; ++g)
      b.link(LinkKind::nvlink, {NodeKind::gpu, g}, {NodeKind::nv_switch, s}, s < 2 ? 4 : 5, 25, 4);
  }
  return b.finish(
      "NVIDIA's DGX H100 user guide (8 GPUs, 4 NVSwitches, 8 ConnectX-7); bus ids are made up and UPI's rate is left "
      "unknown");
}

Fabric two_rail_hosts() {
  Fabric fabric;
  fabric.name = "two hosts on eight rails";
  fabric.machines = {h100_host("host-0"), h100_host("host-1")};
  for (std::uint32_t rail = 0; rail < 8; ++rail) {
    NetSwitch rail_switch;
    rail_switch.name = fmt::format("rail-{}", rail);
    fabric.switches.push_back(std::move(rail_switch));
    for (std::uint32_t host = 0; host < 2; ++host) {
      Cable cable;
      cable.a = {false, host, rail};
      cable.b = {true, 0, rail};
      cable.gbps.set(400, kSource);
      fabric.cables.push_back(cable);
    }
  }
  return fabric;
}

void add_h20_description(Machine& machine) {
  machine.name = "8x H20";
  for (std::uint32_t n = 0; n < machine.numa_nodes.size(); ++n) {
    Package package;
    package.os_index = n;
    package.cpus = machine.numa_nodes[n].cpus;
    machine.packages.push_back(std::move(package));
    machine.numa_nodes[n].package = Ref<Package>(std::size_t{n});
  }
  for (auto& gpu : machine.gpus) {
    gpu.model.set("NVIDIA H20", kSource);
    gpu.architecture.set("sm_90", kSource);
  }
  for (auto& link : machine.links) {
    link.generation.set(4, kSource);
    link.gbs_per_link.set(25, kSource);
  }
  for (auto& bond : machine.bonds) {
    bond.mode.learn("802.3ad", kSource);
    bond.hash_policy.learn("layer3+4", kSource);
    for (auto& leg : bond.legs) {
      leg.up.learn(true, kSource);
      leg.speed_gbps.learn(200, kSource);
      machine.interfaces[leg.interface.index].speed_gbps.learn(200, kSource);
    }
  }
  for (auto& nic : machine.nics) {
    if (!nic.rdma) continue;
    nic.model.set("BlueField-3", kSource);
    auto& rdma = machine.rdma[nic.rdma.index];
    rdma.software.learn(false, kSource);
    for (auto& port : rdma.ports) {
      port.link_layer.learn("Ethernet", kSource);
      port.rate_gbps.learn(200, kSource);
      port.lanes.learn(2, kSource);
    }
  }
  std::erase_if(machine.notes, [](const Note& note) {
    return note.text.find("rate is unknown") != std::string::npos ||
           note.text.find("speed of its legs") != std::string::npos;
  });
  add_note(machine, NoteKind::remark, "",
           "joined from pasted command outputs; sockets, models and the legs of bond1 to bond3 are from the server's "
           "description");
}

}  // namespace fairway::machines
