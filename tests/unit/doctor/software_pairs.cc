#include <fmt/format.h>

#include "rules_table.h"

namespace fairway::doctor::testing {
namespace {

using namespace topology;
constexpr auto kSource = Source::hand_written;

Server with(std::initializer_list<std::pair<const char*, const char*>> facts) {
  auto server = healthy();
  for (const auto& [name, value] : facts) set(server, name, value);
  return server;
}

Server with_hw_counter(const char* name, std::uint64_t value) {
  auto server = healthy();
  for (auto& counter : port(server, 0).hw_counters) {
    if (counter.name == name) counter.value = value;
  }
  return server;
}

Server with_mtu(std::uint32_t mtu, bool all) {
  auto server = healthy();
  for (std::uint32_t i = 0; i < (all ? 8U : 1U); ++i) port(server, i).active_mtu.value = mtu;
  return server;
}

Server gids(std::size_t kept) {
  auto server = healthy();
  server.now.facts.forget("env.NCCL_IB_GID_INDEX");
  for (std::uint32_t i = 0; i < 8; ++i) port(server, i).gids.resize(kept);
  return server;
}

Server moved(std::uint32_t to) {
  auto server = healthy();
  server.now.facts.forget("env.NCCL_IB_GID_INDEX");
  keep_before(server);
  port(server, 0).gids[3].index = to;
  return server;
}

Server sizes(std::initializer_list<std::pair<std::uint64_t, double>> rows, std::uint32_t qps = 1) {
  auto server = healthy();
  for (const auto& [bytes, gbps] : rows)
    server.measured.push_back(row(server, 0, 0, gbps, Operation::write, bytes, qps));
  return server;
}

Server by_sockets(std::uint32_t segment_bytes) {
  auto server = healthy();
  Measurement row;
  row.program = "fairway bench";
  row.device = "tcp";
  row.operation = Operation::copy;
  row.bytes = 1 << 20;
  row.gbps = 80;
  row.where = "rows.csv:2";
  row.segment_bytes = segment_bytes;
  server.measured = {row};
  return server;
}

Server with_queue_pairs(double one, double four) {
  auto server = healthy();
  server.measured = {row(server, 0, 0, one, Operation::write, 1 << 20, 1),
                     row(server, 0, 0, four, Operation::write, 1 << 20, 4)};
  return server;
}

Server read_of(double gbps, double write, std::uint32_t outstanding) {
  auto server = healthy();
  server.measured = {row(server, -1, 0, gbps, Operation::read), row(server, -1, 0, write)};
  server.measured[0].max_read = outstanding;
  return server;
}

Server whole(double gbps) {
  auto server = healthy();
  auto one = row(server, -1, 0, gbps);
  one.flow.reset();
  one.device = "all";
  server.measured = {one};
  return server;
}

// Each socket as two nodes; with `moved` a NIC and its GPU stand in another node than their socket's other GPUs.
Server split(bool moved) {
  auto server = healthy();
  auto& machine = server.now.machine;
  for (std::uint32_t n = 2; n < 4; ++n) {
    NumaNode node;
    node.os_index = n;
    node.package = Ref<Package>(std::size_t{n - 2});
    node.cpus.set({}, kSource);
    machine.numa_nodes.push_back(node);
  }
  if (!moved) return server;
  auto& root = machine.host_bridges[pci_of_nic(server, 0).host_bridge.index];
  root.numa_node.value = 2;
  for (auto& device : machine.pci) {
    if (device.host_bridge == pci_of_nic(server, 0).host_bridge) device.numa_node.set(2, kSource);
  }
  machine.nics[0].numa_node.set(2, kSource);
  machine.gpus[0].numa_node.set(2, kSource);
  return server;
}

Server roce_of_first(const char* value) {
  auto server = healthy();
  set(server, "devlink." + bus_of_nic(server, 0) + ".enable_roce", value);
  return server;
}

const Pair kPairs[] = {
    {"mtu-small", [] { return with_mtu(1024, true); }, [] { return with_mtu(4096, true); }},
    {"mtu-differs",
     [] {
       auto server = with_mtu(2048, false);
       return server;
     },
     [] { return with_mtu(2048, true); }},
    {"gid-unroutable", [] { return gids(2); }, [] { return gids(4); }},
    {"gid-moved", [] { return moved(5); }, [] { return moved(3); }},
    {"congestion", [] { return with_hw_counter("out_of_sequence", 100000); },
     [] { return with_hw_counter("out_of_sequence", 500); }},
    {"traffic-class",
     [] {
       return with({{"rdma.mlx5_0.traffic_class", "0"}});
     },
     [] {
       return with({{"rdma.mlx5_0.traffic_class", "0"}, {"net.eth0.pfc", "00000000"}});
     }},
    {"nic-discards",
     [] {
       return with({{"net.eth0.stat.rx_discards_phy", "12000"}});
     },
     [] {  // as many as at the baseline
       auto server = with({{"net.eth0.stat.rx_discards_phy", "12000"}});
       keep_before(server);
       return server;
     }},
    {"roce-off", [] { return roce_of_first("false"); }, [] { return roce_of_first("true"); }},
    {"wrong-device",
     [] {
       auto server = with({{"env.NCCL_IB_HCA", "mlx5"}});
       port(server, 7).rate_gbps.value = 1;  // a management port
       return server;
     },
     [] {
       auto server = with({{"env.NCCL_IB_HCA", "=mlx5_0,mlx5_1"}});
       port(server, 7).rate_gbps.value = 1;
       return server;
     }},
    {"no-gpu-registration",
     [] {
       auto server = with({{"gpu.kernel_module", "proprietary"}});
       server.now.facts.forget("kernel.module.nvidia_peermem");
       return server;
     },
     [] {  // dma-buf serves as well
       auto server = healthy();
       server.now.facts.forget("kernel.module.nvidia_peermem");
       return server;
     }},
    {"peermem-unbound",
     [] {
       return with({{"kernel.holders.ib_core", "mlx5_ib ib_uverbs"}});
     },
     [] {
       return with({{"kernel.holders.ib_core", "mlx5_ib ib_uverbs"}, {"kernel.memory_peers.nv_mem", "there"}});
     }},
    {"small-bar1",
     [] {
       auto server = healthy();
       server.now.machine.gpus[0].bar1_bytes.value = 256ULL << 20U;
       return server;
     },
     [] {  // all of a small GPU
       auto server = healthy();
       server.now.machine.gpus[0].bar1_bytes.value = 256ULL << 20U;
       server.now.machine.gpus[0].memory_bytes.value = 512ULL << 20U;
       return server;
     }},
    {"memlock",
     [] {
       return with({{"limit.memlock", "8388608"}});
     },
     [] {
       return with({{"limit.memlock", "274877906944"}});
     }},
    {"no-huge-pages",
     [] {
       return with({{"memory.hugepages.node0.hugepages-2048kB", "0"}});
     },
     [] {
       return with(
           {{"memory.hugepages.node0.hugepages-2048kB", "0"}, {"memory.hugepages.node1.hugepages-2048kB", "512"}});
     }},
    {"reads-refused",
     [] {
       auto server = read_of(0.1, 380, 0);
       server.measured[0].failed = true;
       server.measured[0].problem = "Failed status 10";
       return server;
     },
     [] {  // where writes fail too it is something else
       auto server = read_of(0.1, 380, 0);
       server.measured[0].failed = server.measured[1].failed = true;
       return server;
     }},
    {"far-interrupts",
     [] {
       auto server = healthy();
       set(server, "pci." + bus_of_nic(server, 0) + ".irq_cpus", "60-70");
       return server;
     },
     [] {  // some are near
       auto server = healthy();
       set(server, "pci." + bus_of_nic(server, 0) + ".irq_cpus", "0,60-70");
       return server;
     }},
    {"governor",
     [] {
       return with({{"cpu.governor", "powersave"}});
     },
     [] { return healthy(); }},
    {"numa-balancing",
     [] {
       return with({{"kernel.numa_balancing", "1"}});
     },
     [] {  // one node has nothing to balance
       auto server = with({{"kernel.numa_balancing", "1"}});
       server.now.machine.numa_nodes.resize(1);
       for (auto& device : server.now.machine.pci) device.numa_node.forget();
       return server;
     }},
    {"split-socket", [] { return split(true); }, [] { return split(false); }},
    {"memory-bound", [] { return whole(500); }, [] { return whole(2500); }},
    {"nvlink-down",
     [] {
       auto server = healthy();
       server.now.machine.gpus[3].nvlinks[0].active.value = false;
       return server;
     },
     [] {  // fewer, all of them up, and no switch that connects all alike
       auto server = healthy();
       server.now.machine.gpus[3].nvlinks.resize(12);
       server.now.machine.links.clear();
       server.now.machine.nv_switches.clear();
       return server;
     }},
    {"pcie-replays",
     [] {
       return with({{"gpu.0.pcie_replays", "918212"}});
     },
     [] {
       return with({{"gpu.0.pcie_replays", "12"}});
     }},
    {"p2p-disabled",
     [] {
       return with({{"env.NCCL_P2P_DISABLE", "1"}});
     },
     [] {
       return with({{"env.NCCL_P2P_DISABLE", "0"}});
     }},
    {"fabric-not-ready",
     [] {
       return with({{"gpu.2.fabric_state", "in progress"}});
     },
     [] {
       return with({{"gpu.2.fabric_state", "not supported"}});
     }},
    {"peer-refused",
     [] {
       return with({{"gpu.1.mig", "enabled"}});
     },
     [] {  // across sockets drivers refuse by design
       auto server = healthy();
       server.now.machine.links.clear();
       server.now.machine.nv_switches.clear();
       for (auto& gpu : server.now.machine.gpus) gpu.nvlinks.clear();
       for (auto& peer : server.now.machine.peers) peer.write.value = (peer.from.index < 4) == (peer.to.index < 4);
       return server;
     }},
    {"gpu-lost",
     [] {
       return with({{"lost.GPU1", "nvidia-smi: GPU is lost"}});
     },
     [] {
       return with({{"gpu.1.persistence", "enabled"}});
     }},
    {"gpu-memory",
     [] {
       return with({{"gpu.0.remap_failure", "yes"}});
     },
     [] {
       return with({{"gpu.0.ecc_uncorrected", "0"}});
     }},
    {"xid",
     [] {
       return with({{"kernel.xid.0000:14:00.0.79", "NVRM: Xid (PCI:0000:14:00): 79, GPU has fallen off the bus"}});
     },
     [] {  // a program's own fault
       return with({{"kernel.xid.0000:14:00.0.31", "NVRM: Xid (PCI:0000:14:00): 31, MMU fault"}});
     }},
    {"gpu-throttled",
     [] {
       return with({{"gpu.0.throttle", "hw_thermal"}});
     },
     [] {
       return with({{"gpu.0.throttle", "sw_power_cap"}});
     }},
    {"persistence-off",
     [] {
       return with({{"gpu.0.persistence", "disabled"}});
     },
     [] { return healthy(); }},
    {"topology-file",
     [] {
       return with(
           {{"topology_file.path", "topo.xml"}, {"topology_file.says.001", "0000:99:00.0: does not exist here"}});
     },
     [] {
       return with({{"topology_file.path", "topo.xml"}});
     }},
    {"changed",
     [] {
       auto server = healthy();
       keep_before(server);
       server.now.machine.rdma[0].firmware.value = "28.38.1000";
       set(server, "kernel.cmdline", "root=/dev/sda1");
       return server;
     },
     [] {
       auto server = healthy();
       keep_before(server);
       set(server, "net.eth0.tx_bytes", "17");
       return server;
     }},
    {"few-reads", [] { return read_of(20, 380, 1); }, [] { return read_of(370, 380, 16); }},
    {"large-message-dip",
     [] {
       return sizes({{65536, 380}, {262144, 391}, {1048576, 284}});
     },
     [] {
       return sizes({{65536, 380}, {262144, 391}, {1048576, 360}});
     }},
    {"queue-pairs", [] { return with_queue_pairs(300, 390); }, [] { return with_queue_pairs(370, 390); }},
    {"small-blocks",
     [] {
       return sizes({{65536, 97}, {1048576, 353}});
     },
     [] {
       return sizes({{65536, 300}, {1048576, 353}});
     }},
    {"swallowed-segments", [] { return by_sockets(1220); }, [] { return by_sockets(0); }},
    {"below-expectation",
     [] {
       auto server = healthy();
       server.measured = {row(server, 0, 0, 200)};
       return server;
     },
     [] {
       auto server = healthy();
       server.measured = {row(server, 0, 0, 380)};
       return server;
     }},
};

}  // namespace

std::span<const Pair> software_pairs() {
  return kPairs;
}

}  // namespace fairway::doctor::testing
