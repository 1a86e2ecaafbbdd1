#include <algorithm>
#include <ctime>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "topology/discover.h"
#include "topology/load.h"
#include "topology/port_errors.h"
#include "topology_support.h"

namespace fairway::topology {
namespace {

DiscoverOptions at(const TempFolder& folder) {
  DiscoverOptions options;
  options.root = folder.path();
  return options;
}

TEST(Discovery, ReadsThisMachineWithoutRoot) {
  const auto machine = discover();
  ASSERT_TRUE(machine) << machine.status().to_string();
  EXPECT_FALSE(machine->interfaces.empty());
  EXPECT_TRUE(validate(*machine));
  EXPECT_FALSE(machine->host_name.known());
}

TEST(Discovery, SaysTheSameWithAndWithoutHwloc) {
  DiscoverOptions options;
  options.use_gpu_driver = false;
  const auto with = discover(options);
  options.use_hwloc = false;
  const auto without = discover(options);
  ASSERT_TRUE(with && without);
  EXPECT_EQ(with->packages.size(), without->packages.size());
  EXPECT_EQ(with->numa_nodes.size(), without->numa_nodes.size());
  EXPECT_EQ(path_matrix(*with).cells, path_matrix(*without).cells);
  ASSERT_EQ(with->pci.size(), without->pci.size());
  for (std::size_t i = 0; i < with->pci.size(); ++i) {
    EXPECT_EQ(with->pci[i].bus_id, without->pci[i].bus_id);
    EXPECT_EQ(with->pci[i].kind, without->pci[i].kind);
    EXPECT_EQ(with->pci[i].parent, without->pci[i].parent);
  }
}

TEST(Discovery, OfEightGpusAndThirtyTwoNicsTakesLessThanASecond) {
  const TempFolder folder;
  write_server_tree(folder, 8, 32);
  // The process's own time, so that a busy machine does not fail it.
  const auto start = std::clock();
  const auto machine = discover(at(folder));
  const double took = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  ASSERT_TRUE(machine) << machine.status().to_string();
  EXPECT_EQ(machine->gpus.size(), 8U);
  EXPECT_EQ(machine->nics.size(), 32U);
  EXPECT_EQ(machine->packages.size(), 2U);
  EXPECT_EQ(machine->numa_nodes.size(), 2U);
  EXPECT_LT(took, 1.0);
  const auto text = write_snapshot(*machine);
  if (text) {
    EXPECT_LT(text->size(), 1000000U);
  }
}

TEST(Discovery, ClassesFollowThePciTree) {
  const TempFolder folder;
  write_server_tree(folder, 4, 8);
  const auto machine = discover(at(folder));
  ASSERT_TRUE(machine) << machine.status().to_string();
  const auto cell = [&](std::uint32_t gpu, std::uint32_t nic) {
    return path_class(*machine, {NodeKind::gpu, gpu}, {NodeKind::nic, nic})->to_string();
  };
  EXPECT_EQ(cell(0, 0), "PIX");
  EXPECT_EQ(cell(0, 1), "PIX");
  EXPECT_EQ(cell(0, 2), "NODE");
  EXPECT_EQ(cell(0, 4), "SYS");
  EXPECT_EQ(path_class(*machine, {NodeKind::gpu, 0}, {NodeKind::gpu, 1})->to_string(), "NODE");
  EXPECT_EQ(path_class(*machine, {NodeKind::gpu, 0}, {NodeKind::gpu, 3})->to_string(), "SYS");
}

TEST(Discovery, ReadsPortsWithTheirInterfacesAndGids) {
  const TempFolder folder;
  write_server_tree(folder, 2, 2);
  auto options = at(folder);
  options.keep_identities = true;
  const auto machine = discover(options);
  ASSERT_TRUE(machine) << machine.status().to_string();
  ASSERT_EQ(machine->nics.size(), 2U);
  const auto& nic = machine->nics[0];
  ASSERT_TRUE(nic.rdma);
  const auto& port = machine->rdma[nic.rdma.index].ports.at(0);
  EXPECT_DOUBLE_EQ(*port.rate_gbps, 400);
  EXPECT_EQ(*port.state, "ACTIVE");
  EXPECT_EQ(*port.interface, "eth_mlx5_0");
  EXPECT_EQ(*port.active_mtu, 4096U);
  EXPECT_EQ(port.active_mtu.source, Source::derived);
  ASSERT_EQ(port.gids.size(), 2U);
  EXPECT_EQ(*port.gids[0].scope, "link-local");
  EXPECT_EQ(*port.gids[1].scope, "IPv4");
  ASSERT_EQ(nic.interfaces.size(), 1U);
  EXPECT_DOUBLE_EQ(*machine->interfaces[nic.interfaces[0].index].speed_gbps, 400);
  EXPECT_EQ(machine->interfaces[nic.interfaces[0].index].kind, InterfaceKind::physical);
  EXPECT_EQ(*machine->pci[nic.functions[0].index].link.width, 16U);
}

TEST(Discovery, TellsKindsOfInterfacesApart) {
  const TempFolder folder;
  const auto net = [&folder](const std::string& name, const std::string& file, const std::string& text) {
    folder.write("sys/class/net/" + name + "/" + file, text);
  };
  net("lo", "type", "772");
  net("docker0", "bridge/bridge_id", "x");
  net("bond0", "bonding/mode", "802.3ad 4");
  net("bond0", "bonding/slaves", "eth0 eth1");
  net("veth12", "ifindex", "5");
  net("veth12", "iflink", "4");
  net("tap0", "tun_flags", "0x1002");
  net("vlan7", "uevent", "DEVTYPE=vlan\nINTERFACE=vlan7");
  net("eth0", "speed", "200000");
  net("eth0", "carrier", "1");
  net("eth1", "speed", "-1");
  const auto machine = discover(at(folder));
  ASSERT_TRUE(machine) << machine.status().to_string();
  const auto kind = [&](const char* name) { return machine->interfaces[find_interface(*machine, name).index].kind; };
  EXPECT_EQ(kind("lo"), InterfaceKind::loopback);
  EXPECT_EQ(kind("docker0"), InterfaceKind::bridge);
  EXPECT_EQ(kind("bond0"), InterfaceKind::bond);
  EXPECT_EQ(kind("veth12"), InterfaceKind::veth);
  EXPECT_EQ(kind("tap0"), InterfaceKind::tun);
  EXPECT_EQ(kind("vlan7"), InterfaceKind::vlan);
  ASSERT_EQ(machine->bonds.size(), 1U);
  EXPECT_EQ(machine->bonds[0].legs.size(), 2U);
  EXPECT_FALSE(machine->interfaces[find_interface(*machine, "eth1").index].speed_gbps);
  EXPECT_FALSE(bond_capacity_gbps(*machine, machine->bonds[0]));
}

// As an mlx5's and soft-RoCE's drivers show them.
TEST(PortErrors, AreTheCountersThatTellOfOnesAndAreNotZero) {
  const TempFolder folder;
  write_server_tree(folder, 2, 2);
  const std::string port = "sys/class/infiniband/mlx5_0/ports/1/";
  for (const auto& [file, value] : std::initializer_list<std::pair<const char*, const char*>>{
           {"counters/symbol_error", "0"},
           {"counters/port_xmit_data", "99"},
           {"counters/link_downed", "3"},
           {"hw_counters/lifespan", "10"},
           {"hw_counters/out_of_sequence", "12"},
           {"hw_counters/np_cnp_sent", "7"},
           {"hw_counters/rx_write_requests", "1000"},
           {"hw_counters/roce_slow_restart_cnps", "0"},
           {"hw_counters/some_new_retry_exceeded", "18446744073709551615"},
           {"hw_counters/local_ack_timeout_err", "not a number"}})
    folder.write(port + file, std::string(value) + "\n");
  const auto machine = discover(at(folder));
  ASSERT_TRUE(machine) << machine.status().to_string();
  std::string said;
  for (const PortError& error : port_errors(*machine))
    said += fmt::format("{}/{} {} {} {};", machine->rdma[error.device.index].name, error.port, error.counter,
                        error.value, error.meaning.empty() ? "-" : "+");
  EXPECT_EQ(said,
            "mlx5_0/1 link_downed 3 +;mlx5_0/1 np_cnp_sent 7 +;mlx5_0/1 out_of_sequence 12 +;"
            "mlx5_0/1 some_new_retry_exceeded 18446744073709551615 -;");
  const auto now = read_port_counters(folder.path() + "/sys", "mlx5_0", 1);
  EXPECT_EQ(std::count_if(now.begin(), now.end(), [](const Counter& each) { return each.value == 12; }), 1);
  EXPECT_EQ(now.size(), 9U) << "what is no number, and how often others are refreshed, is left out";
  EXPECT_TRUE(read_port_counters(folder.path() + "/sys", "mlx5_0", 2).empty());
  EXPECT_TRUE(read_port_counters(folder.path() + "/sys", "../../etc", 1).empty());
}

TEST(Discovery, SaysWhatItCouldNotRead) {
  const TempFolder folder;
  write_server_tree(folder, 2, 2);
  // Root may read every file, but nobody a folder in a file's place.
  const auto file = folder.path() + "/sys/devices/pci0000:10/0000:10:01.0/numa_node";
  ASSERT_EQ(::unlink(file.c_str()), 0);
  ASSERT_EQ(::mkdir(file.c_str(), 0755), 0);
  const auto machine = discover(at(folder));
  ASSERT_TRUE(machine) << machine.status().to_string();
  bool said = false;
  for (const auto& note : machine->notes)
    said = said || (note.kind == NoteKind::unreadable && note.text.find("numa_node") != std::string::npos);
  EXPECT_TRUE(said);
}

TEST(Discovery, SurvivesALinkThatLoops) {
  const TempFolder folder;
  folder.link("sys/bus/pci/devices/0000:01:00.0", "../../../devices/pci0000:00/0000:01:00.0/0000:02:00.0/0000:01:00.0");
  folder.link("sys/class/net/eth0", "../net/eth0");
  folder.link("sys/class/infiniband/mlx5_0", "mlx5_0");
  const auto machine = discover(at(folder));
  ASSERT_TRUE(machine) << machine.status().to_string();
  EXPECT_TRUE(validate(*machine));
}

TEST(Discovery, KnowsArm64sGuestsByTheirMakerAndNoOthers) {
  const auto guest = [](const char* maker, const char* product) {
    const TempFolder folder;
    write_server_tree(folder, 1, 0);
    folder.write("proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd sve\nCPU implementer\t: 0x41\n");
    folder.write("sys/class/dmi/id/sys_vendor", std::string(maker) + "\n");
    folder.write("sys/class/dmi/id/product_name", std::string(product) + "\n");
    const auto machine = discover(at(folder));
    EXPECT_TRUE(machine) << machine.status().to_string();
    return machine->virtual_machine.known();
  };
  EXPECT_TRUE(guest("QEMU", "KVM Virtual Machine"));
  EXPECT_TRUE(guest("Amazon EC2", "p6e-gb200.36xlarge"));
  EXPECT_FALSE(guest("Amazon EC2", "c7g.metal"));
  EXPECT_FALSE(guest("NVIDIA", "GB200 NVL"));
}

TEST(Discovery, TakesTheHostsMemoryFromMemTotal) {
  const TempFolder folder;
  write_server_tree(folder, 1, 0);
  const auto memory = [&folder](const char* total, const char* node0, const char* node1) {
    folder.write("proc/meminfo", fmt::format("MemTotal: {} kB\nMemFree: 1 kB\n", total));
    folder.write("sys/devices/system/node/node0/meminfo", fmt::format("Node 0 MemTotal: {} kB\n", node0));
    folder.write("sys/devices/system/node/node1/meminfo", fmt::format("Node 1 MemTotal: {} kB\n", node1));
    auto machine = discover(at(folder));
    EXPECT_TRUE(machine) << machine.status().to_string();
    return *machine;
  };
  const auto differs = [](const Machine& machine) {
    return std::ranges::any_of(
        machine.notes, [](const Note& note) { return note.kind == NoteKind::conflict && note.subject == "meminfo"; });
  };
  // As a virtual machine with an H200 had it: what a node has grows as memory is touched.
  const auto grows = memory("263998500", "4812272", "0");
  EXPECT_EQ(grows.memory_bytes.value_or(0), 263998500ULL << 10U);
  EXPECT_FALSE(grows.numa_nodes[0].memory_bytes.known());
  EXPECT_TRUE(differs(grows));
  const auto agrees = memory("2113110000", "1056555000", "1056555000");
  EXPECT_EQ(agrees.memory_bytes.value_or(0), 2113110000ULL << 10U);
  EXPECT_EQ(agrees.numa_nodes[1].memory_bytes.value_or(0), 1056555000ULL << 10U);
  EXPECT_FALSE(differs(agrees));
  const auto limited = memory("8388608", "1056555000", "1056555000");
  EXPECT_EQ(limited.memory_bytes.value_or(0), 8388608ULL << 10U);
  EXPECT_TRUE(limited.numa_nodes[0].memory_bytes.known());
  EXPECT_TRUE(differs(limited));
}

TEST(Discovery, OfNothingIsAnEmptyMachineThatSaysSo) {
  const TempFolder folder;
  folder.write("sys/kernel/x", "");
  const auto machine = discover(at(folder));
  ASSERT_TRUE(machine) << machine.status().to_string();
  EXPECT_TRUE(machine->pci.empty());
  EXPECT_FALSE(machine->notes.empty());
  EXPECT_FALSE(discover({.root = folder.path() + "/absent"}));
}

}  // namespace
}  // namespace fairway::topology
