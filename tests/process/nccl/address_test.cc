#include <map>
#include <string>

#include <gtest/gtest.h>

#include "nccl_net/own_address.h"
#include "nccl_net/settings.h"

// The address of this host that ranks of other hosts reach: which interface, by what the launcher and the user say.
namespace fairway::nccl {
namespace {

using Variables = std::map<std::string, std::string>;

Environment environment(const Variables& variables) {
  return [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

// 10.0.0.0/24 is behind eth1, 172.17.0.0/16 behind docker0, and "master" is a name of 10.0.0.9.
HostNetwork host() {
  HostNetwork host;
  host.addresses = {{"lo", "127.0.0.1", false, true},      {"docker0", "172.17.0.1", false, false},
                    {"eth0", "192.168.9.1", false, false}, {"eth0", "fd00::1", true, false},
                    {"eth1", "10.0.0.1", false, false},    {"ib0", "10.9.0.1", false, false}};
  host.sources = [](const std::string& to) -> std::vector<std::string> {
    if (to == "master" || to.starts_with("10.0.0.")) return {"10.0.0.1"};
    if (to == "fd00::9") return {"fd00::1"};
    if (to.starts_with("172.17.")) return {"172.17.0.1"};
    if (to == "own-name") return {"127.0.0.1"};  // as Debian's /etc/hosts has it: 127.0.1.1
    return {};
  };
  return host;
}

std::string chosen(const Variables& variables) {
  const auto own = own_address(environment(variables), host());
  return own ? own->address : own.status().to_string();
}

TEST(NcclAddress, IsTheOneByWhichTheLaunchersFirstHostIsReached) {
  EXPECT_EQ(chosen({{"MASTER_ADDR", "master"}}), "10.0.0.1");
  EXPECT_EQ(chosen({{"MASTER_ADDR", "10.0.0.9"}, {"WORLD_SIZE", "16"}, {"LOCAL_WORLD_SIZE", "8"}}), "10.0.0.1");
  EXPECT_EQ(chosen({{"NCCL_COMM_ID", "10.0.0.9:4000"}}), "10.0.0.1");
  EXPECT_EQ(chosen({{"NCCL_COMM_ID", "[fd00::9]:4000"}}), "fd00::1");
  EXPECT_EQ(chosen({{"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.9"}}), "10.0.0.1");
  EXPECT_EQ(chosen({{"OMPI_MCA_orte_hnp_uri", "3527802880.0;tcp://10.0.0.9,172.17.0.1:44445"}}), "10.0.0.1");
  const auto own = own_address(environment({{"MASTER_ADDR", "master"}}), host());
  EXPECT_EQ(own->why, "eth1, the way to MASTER_ADDR master");
}

TEST(NcclAddress, IsAsNcclWouldChooseWhereNothingElseIsKnown) {
  EXPECT_EQ(chosen({}), "10.9.0.1") << "ib0 first";
  EXPECT_EQ(chosen({{"MASTER_ADDR", "own-name"}}), "10.9.0.1") << "a name of this host's loopback says nothing";
  EXPECT_EQ(chosen({{"MASTER_ADDR", "no-such-host"}}), "10.9.0.1");
  HostNetwork few = host();
  few.addresses.back().running = false;
  EXPECT_EQ(own_address(environment({}), few)->address, "192.168.9.1") << "nothing is at the other end of ib0";
  few.addresses.pop_back();
  EXPECT_EQ(own_address(environment({}), few)->address, "192.168.9.1") << "neither lo nor docker0";
  few.addresses.resize(2);
  EXPECT_EQ(own_address(environment({}), few)->address, "172.17.0.1") << "docker0 rather than none";
  few.addresses.resize(1);
  EXPECT_EQ(own_address(environment({}), few)->address, "127.0.0.1");
}

TEST(NcclAddress, IsOfTheInterfacesThatTheUserAllows) {
  EXPECT_EQ(chosen({{"NCCL_SOCKET_IFNAME", "eth"}}), "192.168.9.1");
  EXPECT_EQ(chosen({{"NCCL_SOCKET_IFNAME", "eth"}, {"MASTER_ADDR", "master"}}), "10.0.0.1");
  EXPECT_EQ(chosen({{"NCCL_SOCKET_IFNAME", "=eth1"}}), "10.0.0.1");
  EXPECT_EQ(chosen({{"NCCL_SOCKET_IFNAME", "^ib,docker,lo,eth0"}}), "10.0.0.1");
  EXPECT_EQ(chosen({{"NCCL_SOCKET_IFNAME", "^=ib0,lo"}}), "192.168.9.1");
  EXPECT_EQ(chosen({{"NCCL_SOCKET_IFNAME", "lo"}}), "127.0.0.1") << "who names it gets it";
  EXPECT_EQ(chosen({{"FAIRWAY_INTERFACES", "eth1,eth0"}, {"NCCL_SOCKET_IFNAME", "ib"}}), "192.168.9.1");
  EXPECT_EQ(chosen({{"NCCL_SOCKET_IFNAME", "eth0"}, {"NCCL_SOCKET_FAMILY", "AF_INET6"}}), "fd00::1");
  EXPECT_NE(chosen({{"NCCL_SOCKET_IFNAME", "wlan"}}).find("NCCL_SOCKET_IFNAME is \"wlan\": no interface"),
            std::string::npos);
}

TEST(NcclAddress, IsLoopbackWhereTheLauncherSaysThatAllRanksAreHere) {
  EXPECT_EQ(chosen({{"WORLD_SIZE", "8"}, {"LOCAL_WORLD_SIZE", "8"}, {"MASTER_ADDR", "master"}}), "127.0.0.1");
  EXPECT_EQ(chosen({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}), "127.0.0.1");
  EXPECT_EQ(chosen({{"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_STEP_NUM_NODES", "1"}}), "127.0.0.1");
  EXPECT_EQ(chosen({{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_STEP_NUM_NODES", "1"}}), "10.9.0.1")
      << "one task, which may be a shell that starts ranks elsewhere";
  for (const char* root : {"localhost", "127.0.0.1", "::1"}) EXPECT_EQ(chosen({{"MASTER_ADDR", root}}), "127.0.0.1");
  EXPECT_EQ(chosen({{"NCCL_COMM_ID", "127.0.0.1:4000"}}), "127.0.0.1");
}

TEST(NcclSettings, LeaveTheAddressToTheHostWhereThereIsAKey) {
  const auto listens = [](const Variables& variables) {
    const auto settings = read_settings(environment(variables), host);
    return settings ? settings->engine.listen : settings.status().message();
  };
  EXPECT_EQ(listens({}), EngineOptions().listen) << "without a key nobody else is let in";
  EXPECT_EQ(listens({{"FAIRWAY_JOB_KEY", "k"}, {"MASTER_ADDR", "master"}}), "10.0.0.1:0");
  EXPECT_EQ(listens({{"FAIRWAY_JOB_KEY", "k"}, {"MASTER_ADDR", "fd00::9"}}), "[fd00::1]:0");
  EXPECT_EQ(listens({{"FAIRWAY_JOB_KEY", "k"}, {"FAIRWAY_LISTEN", "127.0.0.1"}}), "127.0.0.1:0");
  EXPECT_EQ(listens({{"FAIRWAY_JOB_KEY", "k"}, {"FAIRWAY_LISTEN", "auto"}}), "10.9.0.1:0");
  EXPECT_NE(listens({{"FAIRWAY_LISTEN", "auto"}}).find("set FAIRWAY_JOB_KEY"), std::string::npos);
  EXPECT_NE(listens({{"FAIRWAY_JOB_KEY", "k"}, {"NCCL_SOCKET_IFNAME", "wlan"}}).find("NCCL_SOCKET_IFNAME"),
            std::string::npos);
}

TEST(NcclAddress, OfThisHostAreRead) {
  const HostNetwork here = this_host();
  bool loopback = false;
  for (const InterfaceAddress& each : here.addresses) loopback |= each.loopback && each.address == "127.0.0.1";
  EXPECT_TRUE(loopback);
  EXPECT_EQ(here.sources("127.0.0.1"), std::vector<std::string>{"127.0.0.1"});
  EXPECT_TRUE(here.sources("256.0.0.1").empty());
}

}  // namespace
}  // namespace fairway::nccl
