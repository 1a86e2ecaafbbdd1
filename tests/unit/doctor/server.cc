#include "server.h"

#include <algorithm>

#include <fmt/format.h>

#include "doctor/cost.h"
#include "machines/build_machines.h"

namespace fairway::doctor::testing {

using namespace topology;
constexpr auto kSource = Source::hand_written;

namespace {

void add_counters(RdmaPort& port) {
  for (const auto* name : {"link_downed", "symbol_error", "link_error_recovery", "local_link_integrity_errors"})
    port.counters.push_back({name, 0, kSource});
  port.counters.push_back({"port_xmit_data", 1000000, kSource});
  port.counters.push_back({"port_rcv_packets", 1000000000, kSource});
  for (const auto* name : {"local_ack_timeout_err", "out_of_sequence", "packet_seq_err"})
    port.hw_counters.push_back({name, 0, kSource});
}

void add_gids(RdmaPort& port, const std::string& interface) {
  const auto add = [&](std::uint32_t index, const char* type, const char* scope) {
    Gid gid;
    gid.index = index;
    gid.type.set(type, kSource);
    gid.scope.set(scope, kSource);
    gid.interface.set(interface, kSource);
    port.gids.push_back(std::move(gid));
  };
  add(0, "RoCE v1", "link-local");
  add(1, "RoCE v2", "link-local");
  add(2, "RoCE v1", "IPv4");
  add(3, "RoCE v2", "IPv4");
}

void add_interface(Machine& machine, std::uint32_t nic, const std::string& name) {
  NetInterface interface;
  interface.name = name;
  interface.kind = InterfaceKind::physical;
  interface.pci = machine.nics[nic].functions.front();
  interface.state.set("up", kSource);
  interface.mtu.set(9000, kSource);
  interface.speed_gbps.set(400, kSource);
  machine.nics[nic].interfaces.push_back(Ref<NetInterface>(machine.interfaces.size()));
  machine.interfaces.push_back(std::move(interface));
}

void add_facts(Server& server) {
  const auto& machine = server.now.machine;
  for (const auto& device : machine.pci) {
    const auto prefix = "pci." + device.bus_id.to_string();
    set(server, prefix + ".acs", "0000");
    set(server, prefix + ".ats", "1");
    set(server, prefix + ".max_read_request", "4096");
    set(server, prefix + ".max_payload", "256");
    set(server, prefix + ".max_payload_able", "512");
    set(server, prefix + ".relaxed_ordering", "1");
    set(server, prefix + ".iommu_type", "identity");
    set(server, prefix + ".sriov_numvfs", "0");
  }
  for (std::uint32_t i = 0; i < machine.nics.size(); ++i) {
    set(server, "pci." + bus_of_nic(server, i) + ".irq_cpus", i < 4 ? "0-7" : "56-63");
    set(server, fmt::format("net.eth{}.pfc", i), "00010000");
    set(server, fmt::format("net.eth{}.stat.rx_discards_phy", i), "0");
    set(server, "devlink." + bus_of_nic(server, i) + ".enable_roce", "true");
    set(server, fmt::format("rdma.mlx5_{}.traffic_class", i), "106");
  }
  for (const auto& gpu : machine.gpus) {
    const auto prefix = fmt::format("gpu.{}", gpu.ordinal);
    set(server, prefix + ".persistence", "enabled");
    set(server, prefix + ".throttle", "none");
    set(server, prefix + ".ecc_uncorrected", "0");
    set(server, prefix + ".remap_pending", "no");
    set(server, prefix + ".remap_failure", "no");
    set(server, prefix + ".mig", "disabled");
    set(server, prefix + ".fabric_state", "completed");
    set(server, prefix + ".load", "yes");
  }
  set(server, "kernel.cmdline", "BOOT_IMAGE=/vmlinuz root=/dev/sda1 iommu=pt");
  set(server, "kernel.numa_balancing", "0");
  set(server, "kernel.modules", "200");
  for (const auto* setting : {"arp_ignore", "arp_announce", "arp_filter"}) {
    set(server, fmt::format("sysctl.net.ipv4.conf.all.{}", setting), "0");
    for (std::uint32_t i = 0; i < machine.nics.size(); ++i)
      set(server, fmt::format("sysctl.net.ipv4.conf.eth{}.{}", i, setting), "0");
  }
  set(server, "kernel.module.nvidia_peermem", "loaded");
  set(server, "kernel.holders.ib_core", "mlx5_ib nvidia_peermem ib_uverbs");
  set(server, "kernel.log", "read");
  set(server, "gpu.kernel_module", "open");
  set(server, "limit.memlock", "unlimited");
  set(server, "memory.hugepages.node0.hugepages-2048kB", "4096");
  set(server, "cpu.governor", "performance");
  set(server, "env.NCCL_NET_GDR_LEVEL", "SYS");
  set(server, "env.NCCL_IB_HCA", "=mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5,mlx5_6,mlx5_7");
  set(server, "env.NCCL_IB_GID_INDEX", "3");
}

}  // namespace

Server healthy() {
  Server server;
  auto& machine = server.now.machine;
  machine = machines::h100_host("server");
  machine.virtual_machine.set("none", kSource);
  machine.kernel.set("6.1.0", kSource);
  machine.cpu_vendor.set("GenuineIntel", kSource);
  for (auto& gpu : machine.gpus) {
    gpu.memory_bytes.set(80ULL << 30U, kSource);
    gpu.bar1_bytes.set(128ULL << 30U, kSource);
    for (std::uint32_t i = 0; i < 18; ++i) {
      NvLinkPort link;
      link.index = i;
      link.active.set(true, kSource);
      gpu.nvlinks.push_back(link);
    }
  }
  for (std::uint32_t i = 0; i < machine.nics.size(); ++i) {
    const auto name = fmt::format("eth{}", i);
    add_interface(machine, i, name);
    auto& rdma = machine.rdma[machine.nics[i].rdma.index];
    rdma.hca_type.set("MT4129", kSource);
    rdma.board_id.set("MT_0000000838", kSource);
    rdma.firmware.set("28.39.1002", kSource);
    auto& one = rdma.ports.front();
    one.link_layer.set("Ethernet", kSource);
    one.interface.set(name, kSource);
    one.active_mtu.set(4096, kSource);
    one.max_mtu.set(4096, kSource);
    add_counters(one);
    add_gids(one, name);
    pci_of_nic(server, i).vendor_id.set(0x15b3, kSource);
  }
  for (std::uint32_t a = 0; a < 8; ++a) {
    for (std::uint32_t b = 0; b < 8; ++b) {
      if (a == b) continue;
      PeerAccess peer;
      peer.from = Ref<Gpu>(std::size_t{a});
      peer.to = Ref<Gpu>(std::size_t{b});
      peer.write.set(true, kSource);
      machine.peers.push_back(peer);
    }
  }
  add_facts(server);
  return server;
}

Server healthy_vm() {
  auto server = healthy();
  server.now.machine.virtual_machine.set("KVM", kSource);
  return server;
}

Server healthy_with_bonds() {
  auto server = healthy();
  auto& machine = server.now.machine;
  for (std::uint32_t i = 0; i < 4; ++i) {
    NetInterface second = machine.interfaces[machine.nics[i].interfaces.front().index];
    second.name = fmt::format("eth{}b", i);
    NetInterface own = second;
    own.name = fmt::format("bond{}", i);
    own.kind = InterfaceKind::bond;
    own.pci = {};
    Bond bond;
    bond.mode.set("802.3ad", kSource);
    bond.active_aggregator.set(1, kSource);
    for (const auto leg : {machine.nics[i].interfaces.front(), Ref<NetInterface>(machine.interfaces.size())}) {
      BondLeg one;
      one.interface = leg;
      one.up.set(true, kSource);
      one.speed_gbps.set(200, kSource);
      one.aggregator.set(1, kSource);
      bond.legs.push_back(one);
    }
    machine.nics[i].interfaces.push_back(Ref<NetInterface>(machine.interfaces.size()));
    machine.interfaces.push_back(second);
    bond.interface = Ref<NetInterface>(machine.interfaces.size());
    own.speed_gbps.set(400, kSource);
    machine.interfaces.push_back(own);
    machine.nics[i].bond = Ref<Bond>(machine.bonds.size());
    machine.bonds.push_back(bond);
    port(server, i).rate_gbps.set(400, kSource);
  }
  return server;
}

Report run(const Server& server) {
  const predict::Model model(server.now.machine);
  return examine({model, server.now.facts, server.measured, server.has_before ? &server.before.facts : nullptr,
                  server.has_before ? &server.before.machine : nullptr});
}

const Finding* find(const Report& report, std::string_view rule) {
  for (const auto& finding : report.findings) {
    if (finding.rule == rule) return &finding;
  }
  return nullptr;
}

bool has(const Report& report, std::string_view rule, Level least) {
  return std::any_of(report.findings.begin(), report.findings.end(),
                     [&](const Finding& finding) { return finding.rule == rule && finding.level <= least; });
}

void set(Server& server, const std::string& fact, const std::string& value) {
  server.now.facts.forget(fact);
  server.now.facts.set(fact, value, "test");
}

PciDevice& pci_of_gpu(Server& server, std::uint32_t gpu) {
  return server.now.machine.pci[server.now.machine.gpus[gpu].pci.index];
}
PciDevice& pci_of_nic(Server& server, std::uint32_t nic) {
  return server.now.machine.pci[server.now.machine.nics[nic].functions.front().index];
}
std::string bus_of_gpu(Server& server, std::uint32_t gpu) {
  return pci_of_gpu(server, gpu).bus_id.to_string();
}
std::string bus_of_nic(Server& server, std::uint32_t nic) {
  return pci_of_nic(server, nic).bus_id.to_string();
}
RdmaPort& port(Server& server, std::uint32_t nic) {
  auto& machine = server.now.machine;
  return machine.rdma[machine.nics[nic].rdma.index].ports.front();
}

Measurement row(const Server& server, int gpu, std::uint32_t nic, double gbps, Operation operation, std::uint64_t bytes,
                std::uint32_t qps) {
  Measurement one;
  one.program = "test";
  one.where = "test:1";
  one.operation = operation;
  one.device = server.now.machine.nics[nic].name;
  one.gpu_memory = gpu >= 0;
  one.bytes = bytes;
  one.qps = qps;
  one.gbps = gbps;
  predict::Flow flow;
  flow.from = gpu >= 0 ? predict::Endpoint{predict::EndpointKind::gpu, static_cast<std::uint32_t>(gpu), {}}
                       : predict::Endpoint{predict::EndpointKind::host_memory, nic / 4, {}};
  flow.to = {predict::EndpointKind::nic, nic, {}};
  flow.conditions.qps = qps;
  if (operation == Operation::read) std::swap(flow.from, flow.to);
  one.flow = flow;
  return one;
}

void keep_before(Server& server) {
  server.before = server.now;
  server.has_before = true;
}

}  // namespace fairway::doctor::testing
