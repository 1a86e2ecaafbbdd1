#include <fmt/format.h>

#include "rules_table.h"

namespace fairway::doctor::testing {
namespace {

using namespace topology;
constexpr auto kSource = Source::hand_written;

std::string upper_port(const Server& server, std::uint32_t nic) {
  const auto& machine = server.now.machine;
  return machine.pci[machine.pci[machine.nics[nic].functions.front().index].parent.index].bus_id.to_string();
}

void all_numa_unknown(Server& server) {
  for (auto& device : server.now.machine.pci) device.numa_node.forget();
  for (auto& bridge : server.now.machine.host_bridges) bridge.numa_node.forget();
  for (auto& gpu : server.now.machine.gpus) gpu.numa_node.forget();
  for (auto& nic : server.now.machine.nics) nic.numa_node.forget();
}

Server with_rows(std::initializer_list<double> of_gpus) {
  auto server = healthy();
  int gpu = 0;
  for (const double gbps : of_gpus) server.measured.push_back(row(server, gpu++, 0, gbps));
  return server;
}

// Rails 4-7 removed: GPUs of the second socket are left without a NIC.
Server without_nics(std::uint32_t first) {
  auto server = healthy();
  server.now.machine.nics.resize(first);
  return server;
}

// A second rail behind the switch of the first.
Server second_rail(double uplink_gts) {
  auto server = healthy();
  auto& machine = server.now.machine;
  const auto near = machine.nics[0].functions.front();
  pci_of_nic(server, 1).parent = machine.pci[near.index].parent;
  pci_of_nic(server, 1).host_bridge = machine.pci[near.index].host_bridge;
  auto upstream = machine.pci[machine.pci[near.index].parent.index].parent;
  machine.pci[upstream.index].link.speed_gts.value = uplink_gts;
  machine.pci[upstream.index].link.max_speed_gts.value = uplink_gts;
  const auto root = machine.pci[upstream.index].parent;
  machine.pci[root.index].link.speed_gts.value = uplink_gts;
  machine.pci[root.index].link.max_speed_gts.value = uplink_gts;
  return server;
}

Server rate_of_third(double gbps, bool down) {
  auto server = healthy();
  port(server, 3).rate_gbps.value = gbps;
  if (down) port(server, 3).state.value = "DOWN";
  return server;
}

Server counted(std::uint64_t then, std::uint64_t now) {
  auto server = healthy();
  port(server, 0).counters[0].value = then;
  keep_before(server);
  port(server, 0).counters[0].value = now;
  return server;
}

Server sent(std::uint64_t busy, std::uint64_t idle) {
  auto server = healthy();
  keep_before(server);
  for (std::uint32_t i = 0; i < 8; ++i) {
    for (auto& counter : port(server, i).counters) {
      if (counter.name == "port_xmit_data") counter.value += i < 4 ? busy : idle;
    }
  }
  return server;
}

Server legs_sent(double one, double other) {
  auto server = healthy_with_bonds();
  set(server, "net.eth0.tx_bytes", "0");
  set(server, "net.eth0b.tx_bytes", "0");
  keep_before(server);
  set(server, "net.eth0.tx_bytes", fmt::format("{:.0f}", one));
  set(server, "net.eth0b.tx_bytes", fmt::format("{:.0f}", other));
  return server;
}

const Pair kPairs[] = {
    {"far-nic",
     [] {
       return with_rows({195, 195, 195, 195, 124});
     },
     [] {
       return with_rows({195, 195, 195, 195});
     }},
    {"no-near-nic", [] { return without_nics(4); }, [] { return without_nics(5); }},
    {"unequal-pairs",
     [] {
       return with_rows({390, 380, 385, 330});
     },
     [] {
       return with_rows({390, 380, 385, 360});
     }},
    {"shared-uplink", [] { return second_rail(32); }, [] { return second_rail(64); }},
    {"gdr-refused",
     [] {
       auto server = healthy();
       pci_of_nic(server, 0).parent = {};
       set(server, "env.NCCL_NET_GDR_LEVEL", "LOC");
       return server;
     },
     [] {
       auto server = healthy();
       set(server, "env.NCCL_NET_GDR_LEVEL", "PIX");
       return server;
     }},
    {"pcie-width",
     [] {
       auto server = healthy();
       pci_of_nic(server, 2).link.width.value = 8;
       return server;
     },
     [] {  // the slot has no more
       auto server = healthy();
       auto& nic = pci_of_nic(server, 2);
       nic.link.width.value = 8;
       server.now.machine.pci[nic.parent.index].link.max_width.value = 8;
       return server;
     }},
    {"pcie-speed",
     [] {
       auto server = healthy();
       pci_of_nic(server, 2).link.speed_gts.value = 16;
       return server;
     },
     [] {  // a card of the generation before
       auto server = healthy();
       pci_of_nic(server, 2).link.speed_gts.value = 16;
       pci_of_nic(server, 2).link.max_speed_gts.value = 16;
       port(server, 2).rate_gbps.value = 200;
       return server;
     }},
    {"pcie-slot",
     [] {  // 400 Gb/s behind Gen4 x8
       auto server = healthy();
       auto& link = pci_of_nic(server, 1).link;
       link.speed_gts.value = link.max_speed_gts.value = 16;
       link.width.value = link.max_width.value = 8;
       return server;
     },
     [] {  // 100 Gb/s are served by it
       auto server = healthy();
       auto& link = pci_of_nic(server, 1).link;
       link.speed_gts.value = link.max_speed_gts.value = 16;
       link.width.value = link.max_width.value = 8;
       port(server, 1).rate_gbps.value = 100;
       return server;
     }},
    {"pcie-max-read-request",
     [] {
       auto server = healthy();
       set(server, "pci." + bus_of_nic(server, 0) + ".max_read_request", "512");
       return server;
     },
     [] {  // a NIC of 100 Gb/s is full with it
       auto server = healthy();
       set(server, "pci." + bus_of_nic(server, 0) + ".max_read_request", "512");
       port(server, 0).rate_gbps.value = 100;
       return server;
     }},
    {"pcie-outstanding-reads",
     [] {
       auto server = healthy();
       server.now.machine.cpu_vendor.value = "AuthenticAMD";
       for (std::uint32_t i = 0; i < 8; ++i)
         set(server, fmt::format("mlxconfig.{}.MAX_ACC_OUT_READ", bus_of_nic(server, i)), i == 0 ? "44" : "128");
       return server;
     },
     [] {  // the same on a processor that does not need it
       auto server = healthy();
       for (std::uint32_t i = 0; i < 8; ++i)
         set(server, fmt::format("mlxconfig.{}.MAX_ACC_OUT_READ", bus_of_nic(server, i)), "44");
       return server;
     }},
    {"pcie-max-payload",
     [] {
       auto server = healthy();
       set(server, "pci." + upper_port(server, 0) + ".max_payload", "128");
       return server;
     },
     [] {  // a device that has no more
       auto server = healthy();
       set(server, "pci." + upper_port(server, 0) + ".max_payload", "128");
       set(server, "pci." + upper_port(server, 0) + ".max_payload_able", "128");
       return server;
     }},
    {"pcie-emulated-bridge",
     [] {
       auto server = healthy_vm();
       auto& machine = server.now.machine;
       auto& bridge = machine.pci[pci_of_nic(server, 0).parent.index];
       bridge.vendor_id.set(0x1b36, kSource);
       bridge.device_id.set(0x000c, kSource);
       bridge.link.speed_gts.value = bridge.link.max_speed_gts.value = 2.5;
       bridge.link.width.value = bridge.link.max_width.value = 1;
       return server;
     },
     [] {  // a hypervisor's bridge with a rate that can be true
       auto server = healthy_vm();
       auto& machine = server.now.machine;
       auto& bridge = machine.pci[pci_of_nic(server, 0).parent.index];
       bridge.vendor_id.set(0x1b36, kSource);
       bridge.device_id.set(0x000c, kSource);
       return server;
     }},
    {"iommu-translating",
     [] {
       auto server = healthy();
       set(server, "pci." + bus_of_nic(server, 0) + ".iommu_type", "DMA-FQ");
       return server;
     },
     [] {  // a hypervisor's guest sees its own
       auto server = healthy_vm();
       set(server, "pci." + bus_of_nic(server, 0) + ".iommu_type", "DMA-FQ");
       return server;
     }},
    {"iommu-misspelled",
     [] {
       auto server = healthy();
       set(server, "kernel.cmdline", "root=/dev/sda1 amd_iommu=pt");
       return server;
     },
     [] {
       auto server = healthy();
       set(server, "kernel.cmdline", "root=/dev/sda1 intel_iommu=on,sm_on iommu=pt amd_iommu=force_enable");
       return server;
     }},
    {"acs-redirect",
     [] {
       auto server = healthy();
       set(server, "pci." + upper_port(server, 0) + ".acs", "001d");
       return server;
     },
     [] {  // source validation alone redirects nothing
       auto server = healthy();
       set(server, "pci." + upper_port(server, 0) + ".acs", "0001");
       return server;
     }},
    {"relaxed-ordering",
     [] {
       auto server = healthy_vm();
       server.measured = {row(server, 0, 0, 84), row(server, -1, 0, 390)};
       return server;
     },
     [] {  // GPU memory nearly as fast
       auto server = healthy_vm();
       server.measured = {row(server, 0, 0, 330), row(server, -1, 0, 390)};
       return server;
     }},
    {"ats-off",
     [] {
       auto server = healthy_vm();
       set(server, "pci." + bus_of_nic(server, 0) + ".ats", "0");
       return server;
     },
     [] {  // bare metal does not need it
       auto server = healthy();
       set(server, "pci." + bus_of_nic(server, 0) + ".ats", "0");
       return server;
     }},
    {"numa-hidden",
     [] {
       auto server = healthy_vm();
       all_numa_unknown(server);
       return server;
     },
     [] { return healthy_vm(); }},
    {"no-peer-hint",
     [] {
       auto server = healthy_vm();
       server.now.machine.links.clear();
       server.now.machine.nv_switches.clear();
       for (auto& peer : server.now.machine.peers) peer.write.value = false;
       return server;
     },
     [] {  // by NVLink the driver's word on PCIe does not count
       auto server = healthy_vm();
       for (auto& peer : server.now.machine.peers) peer.write.value = peer.from.index != 0;
       return server;
     }},
    {"port-down",
     [] {
       auto server = healthy();
       port(server, 2).state.value = "DOWN";
       return server;
     },
     [] { return healthy(); }},
    {"rail-slow",
     [] {
       auto server = healthy();
       server.measured = {row(server, -1, 0, 13)};
       return server;
     },
     [] {  // small messages are slow by nature
       auto server = healthy();
       server.measured = {row(server, -1, 0, 13, Operation::write, 4096)};
       return server;
     }},
    {"port-rate", [] { return rate_of_third(200, false); }, [] { return rate_of_third(200, true); }},
    {"port-errors", [] { return counted(7, 9); }, [] { return counted(7, 7); }},
    {"idle-nics", [] { return sent(10000000000, 0); }, [] { return sent(10000000000, 5000000000); }},
    {"mixed-firmware",
     [] {
       auto server = healthy();
       server.now.machine.rdma[0].firmware.value = "28.38.1000";
       return server;
     },
     [] {  // another board may have another
       auto server = healthy();
       server.now.machine.rdma[0].firmware.value = "28.38.1000";
       server.now.machine.rdma[0].board_id.value = "MT_0000000839";
       return server;
     }},
    {"virtual-functions",
     [] {
       auto server = healthy();
       set(server, "pci." + bus_of_nic(server, 0) + ".sriov_numvfs", "4");
       return server;
     },
     [] { return healthy(); }},
    {"bond-leg-down",
     [] {
       auto server = healthy_with_bonds();
       server.now.machine.bonds[1].legs[0].up.value = false;
       return server;
     },
     [] {  // a spare that is up carries nothing, and is none
       auto server = healthy_with_bonds();
       server.now.machine.bonds[1].mode.value = "active-backup";
       server.now.machine.bonds[1].legs[0].aggregator.value = 2;
       return server;
     }},
    {"bond-one-queue-pair",
     [] {
       auto server = healthy_with_bonds();
       server.measured = {row(server, 0, 0, 195), row(server, 0, 0, 380, Operation::write, 1 << 20, 8)};
       return server;
     },
     [] {
       auto server = healthy_with_bonds();
       server.measured = {row(server, 0, 0, 370)};
       return server;
     }},
    {"bond-one-leg-full", [] { return legs_sent(9e11, 1e11); }, [] { return legs_sent(9e11, 7e11); }},
    {"bond-rate-misread",
     [] {
       auto server = healthy_with_bonds();
       port(server, 0).rate_gbps.value = 200;
       return server;
     },
     [] { return healthy_with_bonds(); }},
};

}  // namespace

std::span<const Pair> machine_pairs() {
  return kPairs;
}

}  // namespace fairway::doctor::testing
