#include <cstdlib>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "process/tool/ran.h"

// `fairway bench --via` and `--memory`: each path to GPU memory and each kind of it, forced; or why not.
namespace {

using namespace ran;

class BenchGpuPaths : public testing::Test {
 protected:
  void SetUp() override {
    named_ = std::getenv("FAIRWAY_CUDA_DRIVER") != nullptr;
    ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
  }
  void TearDown() override {
    if (!named_) ::unsetenv("FAIRWAY_CUDA_DRIVER");
  }
  // Of one write between two GPUs.
  static std::string bench(const std::string& more) {
    return "bench --local gpu:0 --size 64K --operation write --seconds 0 --sleep " + more;
  }
  static Ran between(const std::string& more) { return fairway(bench("--remote gpu:1 --csv - " + more)); }
  bool named_ = false;
};

constexpr const char* kNvLink = "--from " FAIRWAY_MACHINES "/h200_x2.json ";

TEST_F(BenchGpuPaths, EachOfThemIsTakenAndNamedAsExplainNamesIt) {
  const Ran all = between(std::string(kNvLink) + "--via nvlink,ipc,fd,staged,tcp,staged:tcp,cuda");
  EXPECT_EQ(all.exit, 0) << all.out;
  EXPECT_EQ(count(all.out, "nvlink,gpu:0,gpu:1,write"), 1u) << all.out;
  EXPECT_EQ(count(all.out, "\nipc,gpu:0,gpu:1,write"), 1u) << all.out;
  EXPECT_EQ(count(all.out, "\nfd,gpu:0:mapped,gpu:1:mapped,write"), 1u) << all.out;
  EXPECT_EQ(count(all.out, "\"cuda: CUDA IPC, to GPU 1"), 3u) << "nvlink, ipc, cuda\n" << all.out;
  EXPECT_EQ(count(all.out, "\"cuda: a mapped descriptor"), 1u) << all.out;
  EXPECT_EQ(count(all.out, ",staged over shm,"), 1u) << all.out;
  EXPECT_EQ(count(all.out, ",staged over tcp,"), 2u) << all.out;
}

TEST_F(BenchGpuPaths, AReadIsCheckedLikeAWriteAndOneEndMayBeTheHosts) {
  const Ran read = fairway(
      "bench --local host --remote gpu:1 --size 64K --operation read,send --seconds 0 --sleep --via ipc,staged");
  EXPECT_EQ(read.exit, 0) << read.out;
  EXPECT_EQ(count(read.out, "\ncuda: CUDA IPC, to GPU 1"), 1u) << read.out;
  EXPECT_EQ(count(read.out, "\nstaged over shm\n"), 1u) << read.out;
}

TEST_F(BenchGpuPaths, EachKindOfMemoryHasItsRowsAndItsName) {
  const std::string kinds = "--memory device,managed,pinned,pageable,shared ";
  const Ran rows = between(kinds);
  EXPECT_EQ(rows.exit, 0) << rows.out;
  EXPECT_EQ(count(rows.out, "\nbest,"), 5u) << rows.out;
  for (const char* row : {"best,gpu:0,gpu:1,write", "best,gpu:0:managed,gpu:1:managed,write",
                          "best,pinned,pinned,write", "best,host,host,write", "best,shared,shared,write"})
    EXPECT_EQ(count(rows.out, row), 1u) << row << ": " << rows.out;
  for (const char* kind : {",device,", ",managed,", ",pinned,shm: ", ",pageable,", ",shared,"})
    EXPECT_GE(count(rows.out, kind), 1u) << kind << ": " << rows.out;
  const Ran json = fairway(bench("--remote gpu:1 --memory managed,pageable --json -"));
  EXPECT_EQ(count(json.out, "\"memory\": \"managed\", \"path_description\": \""), 1u) << json.out;
  EXPECT_EQ(count(json.out, "\"memory\": \"pageable\", \"path_description\": \"shm: "), 1u) << json.out;
  const Ran table = fairway(bench("--remote gpu:1 --memory managed"));
  EXPECT_EQ(count(table.out, "best, from gpu:0:managed to gpu:1:managed (managed)"), 1u) << table.out;
  const Ran beside = fairway(
      "bench compare cuda tcp --local host --remote gpu:1 --memory managed,pinned --size 4K "
      "--operation write --seconds 0");
  EXPECT_EQ(beside.exit, 0) << beside.out;
  EXPECT_EQ(count(beside.out, "cuda host (managed)") + count(beside.out, "tcp host (pinned)"), 2u) << beside.out;
}

TEST_F(BenchGpuPaths, WhatContradictsItselfIsRefusedWithTheRemedy) {
  refuses(bench("--remote gpu:1 --via fd --memory managed"), "its gpu:1:managed has none: take --remote gpu:N", 2);
  refuses(bench("--remote gpu:1:mapped --via ipc"),
          "and its gpu:1:mapped is none: take --remote gpu:N and --memory device, or --via fd", 2);
  refuses(bench("--remote gpu:1:locked --via fd"), "or --via staged", 2);
  refuses(bench("--remote gpu:1 --via staged --memory pinned"), "neither end of pinned to pinned is", 2);
  refuses(bench("--remote host --via nvlink"), "gpu:0 to host is not: take --local gpu:0 --remote gpu:1", 2);
  refuses(bench("--remote gpu:0 --via nvlink"), "name another at one end", 2);
  refuses("bench --size 8 --memory managed", "neither shared nor shared is gpu:N", 2);
  refuses(bench("--remote gpu:1 --memory plastic"), "none of device, managed, pinned, pageable, shared", 2);
  refuses("bench 127.0.0.1:1 --local gpu:0 --memory managed", "has its own already", 2);
  refuses("bench matrix gpu:0 gpu:1 --via ipc", "a matrix takes transports, here cuda", 2);
}

TEST_F(BenchGpuPaths, WhatTheMachineDoesNotHaveIsSaid) {
  refuses(bench("--remote gpu:1 --via pcie ") + kNvLink, "NVLink joins gpu:0 and gpu:1 (NV18)", 1);
  refuses(bench("--remote gpu:1 --via nvlink --from " FAIRWAY_MACHINES "/small_vm.json"), "does not say what joins", 1);
  refuses(bench("--remote gpu:9 --via nvlink ") + kNvLink, "there is no GPU 9", 1);
}

// Of several, what cannot be is left out and said, and the others are measured.
TEST_F(BenchGpuPaths, OfSeveralWhatCannotBeIsLeftOutAndSaid) {
  const Ran some = between(std::string(kNvLink) + "--via pcie,ipc,fd --memory device,managed");
  EXPECT_EQ(some.exit, 0) << some.out;
  EXPECT_EQ(count(some.out, "left out: --via pcie: NVLink joins"), 1u) << some.out;
  EXPECT_EQ(count(some.out, "left out: "), 4u) << "pcie of both, ipc and fd of managed\n" << some.out;
  EXPECT_EQ(count(some.out, "\nipc,gpu:0,gpu:1,") + count(some.out, "\nfd,gpu:0:mapped,gpu:1:mapped,"), 2u) << some.out;
}

// The other process has memory that takes another path than the one that is asked for and its figures would be told
// under.
TEST_F(BenchGpuPaths, AnotherPathThanTheOneAskedForIsAnError) {
  const auto asks = [](const std::string& serves, const std::string& asked) {
    char file[] = "/tmp/fairway-paths-XXXXXX";
    const int made = ::mkstemp(file);
    EXPECT_GE(made, 0);
    const std::string script = "'" FAIRWAY_TOOL " bench --listen 127.0.0.1:0 --local " + serves + " --size 4M > " +
                               file + " & server=$!; " + "for i in $(seq 200); do [ -s " + file +
                               " ] && break; sleep 0.05; done; " + FAIRWAY_TOOL + " bench $(head -n 1 " + file +
                               ") --local gpu:0 --size 64K --operation write --seconds 0 " + asked +
                               "; told=$?; kill $server; wait $server 2>/dev/null; exit $told'";
    const Ran ran = fairway("completion bash > /dev/null; bash -c " + script);
    EXPECT_EQ(std::system((std::string("rm -f ") + file).c_str()), 0);
    return ran;
  };
  const Ran right = asks("gpu:1", "--remote gpu:1 --via ipc");
  EXPECT_EQ(right.exit, 0) << right.out;
  const Ran other = asks("gpu:1:mapped", "--remote gpu:1 --via ipc");
  EXPECT_EQ(other.exit, 1) << other.out;
  EXPECT_EQ(
      count(other.out, "--via ipc was asked for, and write of 64 KiB took another path (\"cuda: a mapped descriptor"),
      1u)
      << other.out;
  const Ran served = asks("gpu:1 --via fd", "--remote gpu:1 --via fd");
  EXPECT_EQ(served.exit, 0) << "the one that serves is told the same words\n" << served.out;
}

}  // namespace
