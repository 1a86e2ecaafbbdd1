#include <gtest/gtest.h>

#include "doctor/measurement.h"
#include "server.h"

namespace fairway::doctor::testing {
namespace {

constexpr auto kSource = topology::Source::sysfs;

std::string line_of(const topology::Machine& machine, const PerftestRun& run) {
  const auto words = perftest_words(machine, 0, run, 20001);
  EXPECT_TRUE(words) << words.status().message();
  std::string line;
  for (const auto& word : words ? *words : std::vector<std::string>{}) line += (line.empty() ? "" : " ") + word;
  return line;
}

topology::Gid gid(std::uint32_t index, const char* type, const char* scope) {
  topology::Gid one;
  one.index = index;
  one.type.set(type, kSource);
  one.scope.set(scope, kSource);
  return one;
}

topology::Machine with_gids(std::vector<topology::Gid> gids) {
  auto machine = healthy().now.machine;
  machine.rdma[machine.nics[0].rdma.index].ports.front().gids = std::move(gids);
  return machine;
}

TEST(Perftest, TheUsualRunNamesDevicePortAndARoutableGid) {
  const auto machine = with_gids({gid(0, "RoCE v1", "link-local"), gid(1, "RoCE v2", "link-local"),
                                  gid(2, "RoCE v2", "IPv6"), gid(3, "RoCE v2", "IPv4")});
  EXPECT_EQ(line_of(machine, {}), "ib_write_bw -F -p 20001 -d mlx5_0 -i 1 -x 3 -s 65536 -n 5000 -q 1 --report_gbits");
}

TEST(Perftest, WhatIsAskedForIsInTheLine) {
  const auto machine = with_gids({gid(3, "RoCE v2", "IPv4")});
  EXPECT_EQ(line_of(machine, {.operation = Operation::read, .bytes = 1U << 20U, .qps = 8, .mtu = 1024, .gid = 0}),
            "ib_read_bw -F -p 20001 -d mlx5_0 -i 1 -x 0 -s 1048576 -n 1024 -m 1024 -q 8 --report_gbits");
  EXPECT_EQ(line_of(machine, {.bytes = 128U << 20U, .strict = true}),
            "ib_write_bw -F -p 20001 -d mlx5_0 -i 1 -x 3 -s 134217728 -n 8 --disable_pcie_relaxed -q 1 --report_gbits");
  EXPECT_EQ(line_of(machine, {.bytes = 64, .inline_max = 0}),
            "ib_write_lat -F -p 20001 -d mlx5_0 -i 1 -x 3 -s 64 -n 5000 -I 0");
}

TEST(Perftest, MemoryIsAGpusOrThatOfANode) {
  const auto machine = with_gids({gid(3, "RoCE v2", "IPv4")});
  EXPECT_EQ(line_of(machine, {.gpu = 5}),
            "ib_write_bw -F -p 20001 -d mlx5_0 -i 1 -x 3 -s 65536 -n 5000 --use_cuda=5 -q 1 --report_gbits");
  EXPECT_EQ(line_of(machine, {.cpus = "48-95"}).find("taskset --cpu-list 48-95 ib_write_bw -F "), 0U);
  EXPECT_NE(perftest_problem("ib_write_bw: unrecognized option '--use_cuda=0'\n Usage:\n").find("without CUDA"),
            std::string::npos);
}

TEST(Perftest, ASoftwareDeviceRunsShort) {
  auto machine = with_gids({});
  machine.rdma[machine.nics[0].rdma.index].software.set(true, kSource);
  EXPECT_EQ(line_of(machine, {}), "ib_write_bw -F -p 20001 -d mlx5_0 -i 1 -s 65536 -n 200 -q 1 --report_gbits");
  EXPECT_NE(line_of(machine, {.bytes = 128U << 20U}).find(" -n 5 "), std::string::npos) << "fewer it refuses";
}

TEST(Perftest, ANicWithoutAPortIsNamed) {
  auto machine = healthy().now.machine;
  machine.rdma[machine.nics[0].rdma.index].ports.clear();
  const auto words = perftest_words(machine, 0, {}, 20001);
  ASSERT_FALSE(words);
  EXPECT_EQ(words.status().code(), ErrorCode::not_found);
  EXPECT_EQ(words.status().message(), machine.nics[0].name + " has no RDMA port");
}

TEST(Perftest, AnInfiniBandPortHasItsOwnGid) {
  topology::RdmaPort port;
  EXPECT_FALSE(routable_gid(port));
  port.gids = {gid(1, "RoCE v2", "link-local")};
  EXPECT_FALSE(routable_gid(port)) << "it does not leave the link";
  port.gids = {gid(2, "RoCE v2", "IPv6"), gid(0, "IB", "InfiniBand")};
  EXPECT_EQ(routable_gid(port), 0U);
}

TEST(Perftest, AFailureIsToldByItsOwnLine) {
  EXPECT_EQ(perftest_problem("\n************************************\n* Waiting for client to connect... *\n"
                             "************************************\n Gid index should be between 0 and 64\n"
                             " Parser function exited with Error\n"),
            "Gid index should be between 0 and 64");
  const auto memory = perftest_problem("Couldn't allocate MR\nfailed to create mr\n Couldn't create IB resources\n");
  EXPECT_EQ(memory, "Couldn't allocate MR");
  EXPECT_TRUE(lacks_memory(memory));
  EXPECT_FALSE(lacks_memory("Gid index should be between 0 and 64"));
  EXPECT_EQ(perftest_problem(" WARNING: CPU is not PCIe relaxed ordering compliant.\n"), "ended without a word");
  EXPECT_EQ(perftest_problem(""), "ended without a word");
}

TEST(Perftest, TheTypicalTimeOfALatencyTest) {
  const auto time = perftest_time(
      "                    RDMA_Write Latency Test\n TX depth        : 1\n"
      " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]\n"
      " 64      200          12.79          2140.17      14.30    	       18.35       	35.41\n");
  ASSERT_TRUE(time) << time.status().message();
  EXPECT_NEAR(*time, 14.3, 1e-9);
  const auto none = perftest_time("Couldn't connect to 127.0.0.1:20001\n");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.status().message(), "Couldn't connect to 127.0.0.1:20001");
}

}  // namespace
}  // namespace fairway::doctor::testing
