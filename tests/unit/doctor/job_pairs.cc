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

Server addressed(std::initializer_list<const char*> addresses) {
  auto server = healthy();
  std::uint32_t nic = 0;
  for (const auto* address : addresses) {
    auto& gid = port(server, nic++).gids[3];
    gid.address.set(address, kSource);
  }
  return server;
}

Server watched(std::uint32_t ms, const char* mode) {
  auto server = healthy_with_bonds();
  for (auto& bond : server.now.machine.bonds) {
    bond.watch_ms.set(100, kSource);
    bond.mode.value = "802.3ad";
  }
  server.now.machine.bonds[0].watch_ms.value = ms;
  server.now.machine.bonds[0].mode.value = mode;
  return server;
}

const Pair kPairs[] = {
    {"setting-names-nothing",
     [] {
       return with({{"env.NCCL_IB_HCA", "=mlx5_90,mlx5_91"}});
     },
     [] {  // what is left out need not be here
       return with({{"env.NCCL_IB_HCA", "^mlx5_90"}});
     }},
    {"rdma-disabled",
     [] {
       return with({{"env.UCX_TLS", "tcp,cuda_copy"}});
     },
     [] {
       return with({{"env.UCX_TLS", "rc_x,cuda_copy"}, {"env.NCCL_IB_DISABLE", "0"}});
     }},
    {"cross-nic",
     [] {
       return with({{"env.NCCL_CROSS_NIC", "1"}});
     },
     [] {  // NCCL's default
       return with({{"env.NCCL_CROSS_NIC", "2"}});
     }},
    {"rail-networks",
     [] {
       return addressed({"::ffff:172.16.4.10", "::ffff:172.24.4.11", "::ffff:172.16.4.12", "::ffff:172.24.4.13"});
     },
     [] {  // a network for each rail is a design
       return addressed({"::ffff:10.1.0.1", "::ffff:10.2.0.1", "::ffff:10.3.0.1", "::ffff:10.4.0.1"});
     }},
    {"arp-answers",
     [] {
       return addressed({"::ffff:10.1.0.1", "::ffff:10.1.0.2", "::ffff:10.1.0.3", "::ffff:10.1.0.4"});
     },
     [] {
       auto server = addressed({"::ffff:10.1.0.1", "::ffff:10.1.0.2", "::ffff:10.1.0.3", "::ffff:10.1.0.4"});
       set(server, "sysctl.net.ipv4.conf.all.arp_ignore", "1");
       set(server, "sysctl.net.ipv4.conf.all.arp_announce", "2");
       return server;
     }},
    {"small-shm",
     [] {
       return with({{"host.dev_shm.bytes", "67108864"}});
     },
     [] {
       return with({{"host.dev_shm.bytes", "17179869184"}});
     }},
    {"bond-unwatched", [] { return watched(0, "active-backup"); }, [] { return watched(0, "802.3ad"); }},
    {"fabric-unhealthy",
     [] {
       return with({{"gpu.1.fabric.bandwidth", "degraded"}, {"gpu.1.fabric.route_unhealthy", "true"}});
     },
     [] {
       return with({{"gpu.1.fabric.bandwidth", "full"}, {"gpu.1.fabric.route_unhealthy", "false"}});
     }},
    {"nvlink-errors",
     [] {
       return with({{"gpu.0.nvlink_errors.0.crc", "99121"}, {"gpu.0.nvlink_errors.0.recovery", "812"}});
     },
     [] {
       return with({{"gpu.0.nvlink_errors.0.crc", "0"}, {"gpu.0.nvlink_errors.0.recovery", "0"}});
     }},
    {"sxid",
     [] {
       return with(
           {{"kernel.sxid.0000:c1:00.0.20034", "SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"}});
     },
     [] { return healthy(); }},
    {"pcie-limited",
     [] {
       auto server = healthy();
       const auto name = "kernel.pcie_limited." + bus_of_nic(server, 2);
       set(server, name, "63.008 Gb/s available PCIe bandwidth, limited by 8.0 GT/s PCIe x8 link");
       set(server, name + ".gbps", "63.008");
       set(server, name + ".able_gbps", "252.048");
       return server;
     },
     [] {  // as fast as it can be
       auto server = healthy();
       const auto name = "kernel.pcie_limited." + bus_of_nic(server, 2);
       set(server, name, "252.048 Gb/s available PCIe bandwidth");
       set(server, name + ".gbps", "252.048");
       set(server, name + ".able_gbps", "252.048");
       return server;
     }},
    {"link-diagnosis",
     [] {
       return with({{"mlxlink.mlx5_2.opcode", "34"}, {"mlxlink.mlx5_2.recommendation", "Speed degradation"}});
     },
     [] {
       return with({{"mlxlink.mlx5_2.opcode", "0"}, {"mlxlink.mlx5_2.recommendation", "No issue was observed"}});
     }},
    {"fabric-links",
     [] {
       return with({{"fabric.slow.0001", "leaf1 port 19: 4X 25.78125 Gbps Active/ LinkUp; Could be 53.125 Gbps"}});
     },
     [] {
       return with({{"fabric.links", "36"}});
     }},
    {"log-complaints",
     [] {
       auto server = healthy();
       set(server, "kernel.mlx5_heat." + bus_of_nic(server, 2),
           "Port module event[error]: Cable error, High Temperature");
       return server;
     },
     [] { return healthy(); }},
    {"iommu-faults",
     [] {
       return with({{"kernel.iommu_fault.1", "DMAR: [DMA Write NO_PASID] Request device [1a:00.0] fault addr 0xfee"}});
     },
     [] { return healthy(); }},
    {"job-on-sockets",
     [] {
       return with({{"nccl.network", "Socket"}, {"nccl.no_ib_device", "NET/IB : No device found."}});
     },
     [] {
       return with({{"nccl.network", "IB"}});
     }},
    {"job-warnings",
     [] {
       return with({{"nccl.warning.1", "NET/IB : Got completion from peer 10.0.0.2 with status=12 opcode=0"}});
     },
     [] {
       return with({{"nccl.version", "2.27.3"}});
     }},
    {"numa-without-memory",
     [] {
       auto server = healthy();
       for (auto& node : server.now.machine.numa_nodes) node.memory_bytes.set(1ULL << 38U, kSource);
       server.now.machine.numa_nodes[1].memory_bytes.value = 0;
       return server;
     },
     [] {
       auto server = healthy();
       for (auto& node : server.now.machine.numa_nodes) node.memory_bytes.set(1ULL << 38U, kSource);
       return server;
     }},
    {"run-failed",
     [] {
       auto server = healthy();
       server.measured = {row(server, 0, 0, 100)};
       server.measured[0].failed = true;
       server.measured[0].problem = "[CUDA_ERROR_NOT_PERMITTED] operation not permitted";
       return server;
     },
     [] {
       auto server = healthy();
       server.measured = {row(server, 0, 0, 390)};
       return server;
     }},
};

}  // namespace

std::span<const Pair> job_pairs() {
  return kPairs;
}

}  // namespace fairway::doctor::testing
