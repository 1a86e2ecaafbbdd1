#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "process/tool/ran.h"

// `fairway soak`: short ones, on host memory and on whatever GPUs there are, or the stand-in's.
namespace {

using namespace ran;

class Soak : public testing::Test {
 protected:
  Soak() { ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0); }
  ~Soak() override {
    std::error_code none;
    std::filesystem::remove(file_, none);
  }
  // The steps that the table counts.
  static std::string steps(const std::string& table) {
    const std::size_t at = table.find("\nall ");
    if (at == std::string::npos) return "no table: " + table;
    const std::size_t begin = table.find_first_not_of(' ', at + 5);
    return table.substr(begin, table.find(' ', begin) - begin);
  }
  const std::string file_ = "/tmp/fairway-soak-" + std::to_string(::getpid());
};

TEST_F(Soak, PromisesHoldBetweenAllMemoriesWhateverIsDoneToProcesses) {
  const Ran ran = fairway(
      "soak --memories host,shared,pinned,gpu:0,gpu:1,gpu:0:mapped --largest 64K --rounds 24 --seconds 80 --json -");
  ASSERT_EQ(ran.exit, 0) << ran.out;
  for (const char* memory : {"host", "shared", "pinned", "gpu:0", "gpu:1", "gpu:0:mapped"})
    for (const char* side : {"from", "to"})
      EXPECT_GE(count(ran.out, std::string("\"") + side + "\": \"" + memory + "\""), 6u) << ran.out;
  EXPECT_EQ(count(ran.out, "\"rounds\": 24"), 1u) << ran.out;
  for (const char* done : {"killed", "frozen", "revoked"})
    EXPECT_EQ(count(ran.out, std::string("\"") + done + "\": 0"), 0u) << ran.out;
}

TEST_F(Soak, PromisesHoldWhereGpuMemoryIsStagedAndOverSockets) {
  const Ran ran =
      fairway("soak --memories host,gpu:1 --via staged:tcp --engines 2 --largest 256K --rounds 8 --seconds 80");
  EXPECT_EQ(ran.exit, 0) << ran.out;
  EXPECT_EQ(count(ran.out, "\n8 rounds in "), 1u) << ran.out;
}

TEST_F(Soak, AWrongByteIsFoundAndItsRoundIsNamed) {
  if (std::string(std::getenv("FAIRWAY_CUDA_DRIVER")) != FAIRWAY_STANDIN_CUDA)
    GTEST_SKIP() << "no other driver brings wrong bytes";
  ::setenv("FAIRWAY_STANDIN_SPOIL", "20", 1);
  const Ran ran =
      fairway("soak --seed 5 --memories gpu:0,gpu:1 --engines 2 --faults none --largest 4K --rounds 20 --seconds 60");
  ::unsetenv("FAIRWAY_STANDIN_SPOIL");
  EXPECT_EQ(ran.exit, 1) << ran.out;
  EXPECT_NE(ran.out.find("of seed 5 broke a promise: "), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("--memories gpu:0,gpu:1 --faults none --round "), std::string::npos) << ran.out;
}

TEST_F(Soak, GoesOnWhereAPartEndedAndAddsUp) {
  const std::string which =
      "soak --seed 3 --memories host,shared --largest 16K --engines 2 --faults cancel --seconds 60 ";
  const std::string state = "--state " + file_;
  for (const char* rounds : {"--rounds 3 ", "--rounds 4 "}) {
    const Ran part = fairway(which + rounds + state);
    ASSERT_EQ(part.exit, 0) << part.out;
    if (std::string(rounds) == "--rounds 4 ") {
      EXPECT_EQ(count(part.out, "\n7 rounds in "), 1u) << part.out;
      EXPECT_EQ(steps(part.out), steps(fairway(which + "--rounds 7").out)) << part.out;
    }
  }
  const Ran other = fairway("soak --seed 4 --memories host,shared --largest 16K --engines 2 --faults cancel " + state);
  EXPECT_EQ(other.exit, 1);
  EXPECT_NE(other.out.find("is of another soak: go on with --seed 3 --engines 2"), std::string::npos) << other.out;
  std::ofstream(file_) << "something else\n";
  const Ran none = fairway(which + state);
  EXPECT_EQ(none.exit, 1);
  EXPECT_NE(none.out.find("it is not what `fairway soak --state` wrote"), std::string::npos) << none.out;
}

TEST_F(Soak, WhatMakesNoSenseIsNamedAtOnce) {
  refuses("soak --engines 1", "--engines", 2);
  refuses("soak --largest 3Q", "3Q", 2);
  refuses("soak --largest 4", "--largest", 2);
  refuses("soak --faults kill,dance", "'dance' is none of kill, freeze", 2);
  refuses("soak --faults none,kill", "'none' is none of", 2);
  refuses("soak --rounds 0", "--rounds", 2);
  refuses("soak --round 3 --state " + file_, "--round shows one round again", 2);
  refuses("soak --memories nonsense --seconds 1", "'nonsense' is none of host", 2);
  refuses("soak --memories gpu:99 --seconds 1", "gpu:99", 1);
  refuses("soak --via rdma --memories host --seconds 1", "rdma", 2);
  refuses("soak --memories host --json /nonexistent/x --seconds 1", "/nonexistent/x", 1);
  refuses("soak --memories host --state /nonexistent/x --seconds 1", "/nonexistent/x", 1);
}

}  // namespace
