#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "sys/process_memory.h"

namespace fairway::sys {
namespace {

// The files of a machine, in a folder of its own.
class Room : public testing::Test {
 protected:
  Room() {
    char name[] = "/tmp/fairway-room.XXXXXX";
    root_ = ::mkdtemp(name);
    write("/proc/meminfo", "MemTotal: 4096 kB\nMemFree: 10 kB\nMemAvailable: 1000 kB\nSwapFree: 24 kB\n");
  }
  ~Room() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  void mounted(const std::string& top, const std::string& type, const std::string& options) const {
    write("/proc/self/mountinfo", "24 1 0:22 / / rw - ext4 /dev/vda rw\n31 24 0:27 " + top +
                                      " /cg rw,nosuid shared:4 - " + type + " none " + options + "\n");
  }
  // A group of version 2.
  void group(const std::string& path, const std::string& most, const std::string& used, const std::string& stat) const {
    write(path + "/cgroup.procs", "");
    write(path + "/memory.max", most);
    write(path + "/memory.current", used);
    write(path + "/memory.stat", stat);
  }
  AvailableMemory room() const { return available_memory(root_); }
  std::string root_;
};

TEST_F(Room, WithoutControlGroupsIsTheMachines) {
  EXPECT_EQ(room().bytes, 1024u * 1024);
  EXPECT_EQ(room().limited_by, "the machine");
}

TEST_F(Room, OfAGroupCountsCachedFilesAsFree) {
  write("/proc/self/cgroup", "0::/job\n");
  mounted("/", "cgroup2", "rw");
  group("/cg/job", "1000000\n", "700000\n", "anon 1\ninactive_file 100000\nactive_file 50000\nfile 600000\n");
  EXPECT_EQ(room().bytes, 450'000u);
  EXPECT_EQ(room().limited_by, "the control group /cg/job");
}

TEST_F(Room, IsThatOfTheTightestGroupAbove) {
  write("/proc/self/cgroup", "0::/wide/tight/loose/none\n");
  mounted("/", "cgroup2", "rw");
  group("/cg/wide/tight/loose/none", "max\n", "5\n", "");
  group("/cg/wide/tight/loose", "900\n", "100\n", "");
  group("/cg/wide/tight", "300\n", "100\n", "");
  group("/cg/wide", "500\n", "100\n", "");
  EXPECT_EQ(room().bytes, 200u);
  EXPECT_EQ(room().limited_by, "the control group /cg/wide/tight");
}

TEST_F(Room, OfAGroupThatIsFullIsNothing) {
  write("/proc/self/cgroup", "0::/job\n");
  mounted("/", "cgroup2", "rw");
  group("/cg/job", "1000\n", "2000\n", "");
  EXPECT_EQ(room().bytes, 0u);
}

TEST_F(Room, OfTheFirstVersionIsFoundAmongItsControllers) {
  write("/proc/self/cgroup", "5:cpu,cpuacct:/elsewhere\n4:hugetlb,memory:/job\n0::/\n");
  mounted("/", "cgroup", "rw,hugetlb,memory");
  write("/cg/job/cgroup.procs", "");
  write("/cg/job/memory.limit_in_bytes", "1000\n");
  write("/cg/job/memory.usage_in_bytes", "600\n");
  write("/cg/job/memory.stat", "inactive_file 7\ntotal_inactive_file 100\ntotal_active_file 0\n");
  EXPECT_EQ(room().bytes, 500u);
}

TEST_F(Room, InAContainerIsThatOfTheGroupItSees) {
  write("/proc/self/cgroup", "0::/docker/77\n");
  mounted("/docker/77", "cgroup2", "rw");  // the path from the top, the mount from its own group on
  group("/cg", "4000\n", "1000\n", "");
  EXPECT_EQ(room().bytes, 3000u);
  mounted("/", "cgroup2", "rw");  // a path that leads nowhere here
  EXPECT_EQ(room().bytes, 3000u);
}

TEST_F(Room, ThatNobodyTellsIsNoLimit) {
  std::filesystem::remove(root_ + "/proc/meminfo");
  EXPECT_EQ(room().bytes, ~std::uint64_t{0});
}

}  // namespace
}  // namespace fairway::sys
