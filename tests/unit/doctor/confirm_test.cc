// `fairway doctor --confirm` with stand-ins of perftest and taskset: the runs are made, read and judged.
#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

#include "doctor/doctor.h"
#include "unit/doctor/server.h"

namespace fairway::tool {
namespace {

namespace fs = std::filesystem;
using namespace doctor::testing;

// A server with one rail on each socket, and a folder of stand-ins first on PATH.
class Confirm : public testing::Test {
 protected:
  Confirm() : folder_(fs::temp_directory_path() / ("confirm-" + std::to_string(::getpid()))), server_(healthy()) {
    fs::create_directory(folder_);
    for (const char* name : {"ib_write_bw", "ib_read_bw", "ib_write_lat", "taskset"})
      fs::create_symlink(FAIRWAY_PERFTEST_STANDIN, folder_ / name);
    path_ = std::getenv("PATH");
    ::setenv("PATH", (folder_.string() + ":" + path_).c_str(), 1);
    for (const std::uint32_t nic : {1U, 2U, 3U, 5U, 6U, 7U}) port(server_, nic).rate_gbps.value = 1;  // management
    auto& nodes = server_.now.machine.numa_nodes;
    nodes[0].cpus.set(*topology::CpuSet::parse_list("0-7"), topology::Source::hand_written);
    nodes[1].cpus.set(*topology::CpuSet::parse_list("8-15"), topology::Source::hand_written);
    ::setenv("STANDIN_FIRST", "0-7", 1);
    ::setenv("STANDIN_SECOND", "8-15", 1);
    doctor::Finding far;
    far.rule = "far-nic";
    far.title = "GPU0 crosses sockets";
    far.devices = {{topology::NodeKind::gpu, 0}};
    report_.findings.push_back(far);
  }
  ~Confirm() override {
    ::setenv("PATH", path_.c_str(), 1);
    ::unsetenv("STANDIN_NO_CUDA");
    fs::remove_all(folder_);
  }

  void run() { confirm(server_.now, {}, report_, told_); }
  [[nodiscard]] bool told(std::string_view words) const {
    return std::any_of(told_.begin(), told_.end(), [&](const auto& line) { return line.find(words) != line.npos; });
  }
  [[nodiscard]] std::string all() const {
    std::string out;
    for (const auto& line : told_) out += line + "\n";
    return out;
  }

  fs::path folder_;
  std::string path_;
  Server server_;
  doctor::Report report_;
  std::vector<std::string> told_;
};

TEST_F(Confirm, NearAndFarNicAndMemoryAreRunInTurns) {
  run();
  ASSERT_FALSE(report_.findings.empty());
  const auto& far = report_.findings.front();
  ASSERT_EQ(far.rule, "far-nic");
  EXPECT_EQ(far.confidence, doctor::Confidence::confirmed) << all();
  ASSERT_TRUE(far.ratio);
  EXPECT_NEAR(far.ratio->middle, 380.0 / 124, 0.01);
  ASSERT_FALSE(far.evidence.empty());
  EXPECT_NE(far.evidence.back().text.find("over mlx5_4 124.0 Gb/s, over mlx5_0 380.0"), std::string::npos)
      << far.evidence.back().text;
  EXPECT_TRUE(told("mlx5_0: memory of NUMA node 1 250.0 Gb/s, of its own node 0 390.0 (ratio 1.56,")) << all();
  EXPECT_TRUE(told("mlx5_4: memory of NUMA node 0 250.0 Gb/s, of its own node 1 390.0 (ratio 1.56,")) << all();
  EXPECT_TRUE(told("mlx5_0: memory of GPU0 380.0 Gb/s, host memory 390.0 (ratio 1.03,")) << all();
}

TEST_F(Confirm, WithoutCudaInPerftestTheReportSaysSo) {
  ::setenv("STANDIN_NO_CUDA", "1", 1);
  run();
  EXPECT_EQ(report_.findings.front().confidence, doctor::Confidence::suspected);
  EXPECT_TRUE(told("near and far NIC of GPU0: ib_write_bw: this perftest was built without CUDA")) << all();
  EXPECT_TRUE(told("GPU memory over mlx5_0: ib_write_bw: this perftest was built without CUDA")) << all();
  EXPECT_TRUE(told("memory of NUMA node 1 250.0")) << "what needs no GPU is run\n" << all();
}

}  // namespace
}  // namespace fairway::tool
