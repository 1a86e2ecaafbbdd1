#include <gtest/gtest.h>

#include "server.h"

namespace fairway::doctor::testing {
namespace {

std::vector<Measurement> rows_of(std::string_view text) {
  const auto server = healthy();
  auto rows = read_measurements(server.now.machine, text, "rows.txt", {});
  EXPECT_TRUE(rows) << rows.status().message();
  return rows ? *rows : std::vector<Measurement>{};
}

TEST(DoctorFormats, PerftestsTable) {
  const auto rows = rows_of(
      "Picking device No. 2\n"
      "                    RDMA_Read BW Test\n"
      " Dual-port       : OFF\t\tDevice         : mlx5_2\n"
      " Number of qps   : 4\t\tTransport type : IB\n"
      " PCIe relax order: OFF\n"
      " Mtu             : 1024[B]\n"
      " Outstand reads  : 1\n"
      " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
      " 65536      1000             12000.00            11920.93            0.19\n"
      " 131072     1000             12000.00            11920.93            0.09\n");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].operation, Operation::read);
  EXPECT_EQ(rows[0].device, "mlx5_2");
  EXPECT_EQ(rows[0].qps, 4U);
  EXPECT_EQ(rows[0].max_read, 1U);
  EXPECT_EQ(rows[0].mtu, 1024U);
  EXPECT_EQ(rows[0].relaxed, false);
  EXPECT_TRUE(rows[0].gpu_memory);
  EXPECT_NEAR(rows[0].gbps, 100, 0.1) << "perftest's MB are of 2^20 bytes";
  EXPECT_EQ(rows[1].bytes, 131072U);
  EXPECT_EQ(rows[0].where, "rows.txt:9");
  ASSERT_TRUE(rows[0].flow);
  EXPECT_EQ(rows[0].flow->to.kind, predict::EndpointKind::gpu) << "a read brings bytes";
}

TEST(DoctorFormats, PerftestsFailure) {
  const auto rows = rows_of(
      "                    RDMA_Read BW Test\n Dual-port       : OFF\t\tDevice         : mlx5_0\n"
      " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
      " Completion with error at client\n Failed status 10: wr_id 0 syndrom 0x88\n");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_TRUE(rows[0].failed);
}

TEST(DoctorFormats, NcclTestsTable) {
  const auto rows = rows_of(
      "# nThread 1 nGpus 8 minBytes 8 maxBytes 134217728\n"
      "# Collective test starting: all_reduce_perf\n"
      "#                                                              out-of-place                       in-place\n"
      "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw "
      "#wrong\n"
      "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)\n"
      "   134217728      33554432     float     sum      -1    562.1  238.77  417.85      0    561.0  239.24  418.68   "
      "   0\n"
      "# Avg bus bandwidth    : 418.2\n");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].program, "all_reduce_perf");
  EXPECT_NEAR(rows[0].gbps, 417.85 * 8, 0.01);
}

TEST(DoctorFormats, NvbandwidthsMatrices) {
  const auto rows = rows_of(
      "nvbandwidth Version: v0.7\n"
      "Running host_to_device_memcpy_ce.\n"
      "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n"
      "           0         1\n"
      " 0     55.37     55.36\n"
      "\n"
      "SUM host_to_device_memcpy_ce 110.73\n"
      "memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)\n"
      "           0         1\n"
      " 0       N/A    396.14\n"
      " 1    395.88       N/A\n");
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[0].flow->from.kind, predict::EndpointKind::host_memory);
  EXPECT_EQ(rows[2].flow->from.index, 1U) << "<-: the column's memory goes to the row";
  EXPECT_EQ(rows[2].flow->to.index, 0U);
  EXPECT_NEAR(rows[3].gbps, 395.88 * 8, 0.01);
}

TEST(DoctorFormats, NvbandwidthsTablesOfBothWays) {
  const auto rows = rows_of(
      "nvbandwidth Version: v0.8\n"
      "Running host_to_device_bidirectional_memcpy_ce.\n"
      "memcpy CE CPU(row) <-> GPU(column) bandwidth (GB/s)\n"
      "           0\n"
      " 0     36.31\n"
      "\n"
      "memcpy CE GPU(row) <-> GPU(column) Total bandwidth (GB/s)\n"
      "           0         1\n"
      " 0       N/A    773.10\n");
  ASSERT_EQ(rows.size(), 2U);
  for (const auto& row : rows) {
    EXPECT_TRUE(row.both_ways) << row.where;
    EXPECT_FALSE(row.flow) << "what two copies at once reach is no rate of one: " << row.where;
  }
  EXPECT_NEAR(rows[0].gbps, 36.31 * 8, 0.01) << "the measured copy alone";
  EXPECT_NEAR(rows[1].gbps, 773.10 / 2 * 8, 0.01) << "a total is the sum of both ways";
}

TEST(DoctorFormats, FairwaysOwnBench) {
  const auto rows = rows_of(
      "path,from,to,operation,bytes,bytes_per_second\n"
      "verbs,host,host,write,1048576,48500000000\n");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].operation, Operation::write);
  EXPECT_EQ(rows[0].bytes, 1048576U);
  EXPECT_EQ(rows[0].device, "") << "it does not tell which";
  EXPECT_NEAR(rows[0].gbps, 388, 0.01);
}

TEST(DoctorFormats, APathThatSwallowedLongSegmentsSaysHowLongTheyAreNow) {
  const std::string header = "path,from,to,operation,bytes,bytes_per_second,path_description\n";
  const auto rows =
      rows_of(header +
              "tcp,host,host,write,1048576,9000000,\"tcp: by sockets: the kernel copies once on each side, in segments "
              "of 1220 bytes, since the way swallowed longer ones: its MTU is smaller than the interface's\"\n");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].segment_bytes, 1220U);
  const auto whole = rows_of(header + "tcp,host,host,write,1048576,9000000,tcp: by sockets\n");
  ASSERT_EQ(whole.size(), 1U);
  EXPECT_EQ(whole[0].segment_bytes, 0U);
}

// Of GPU memory the machine's own rate stands beside the engine's: the model is compared with that.
TEST(DoctorFormats, TheCopyEngineBesideFairwaysOwnRate) {
  const auto rows = rows_of(
      "path,from,to,operation,bytes,bytes_per_second,roof,roof_p50_us,way\n"
      "best,gpu:0,host,write,16777216,8932104211,copy engine,309.058,\"cuda: x, y\"\n");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_NEAR(rows[0].gbps, 434.3, 0.1);
  ASSERT_TRUE(rows[0].flow);
  EXPECT_EQ(rows[0].flow->from.kind, predict::EndpointKind::gpu);
  EXPECT_EQ(rows[0].flow->to.kind, predict::EndpointKind::host_memory);
}

TEST(DoctorFormats, NonsenseIsRefusedByName) {
  const auto server = healthy();
  for (const auto* text :
       {"", "hello", "RDMA_Write BW Test #bytes", "busbw algbw", "nvbandwidth", "{\"bytes_per_second\":", "gpu\n1\n"}) {
    const auto rows = read_measurements(server.now.machine, text, "bad.txt", {});
    EXPECT_FALSE(rows) << text;
    EXPECT_NE(rows.status().message().find("bad.txt"), std::string::npos) << rows.status().message();
  }
}

}  // namespace
}  // namespace fairway::doctor::testing
