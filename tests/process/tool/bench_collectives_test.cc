#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "process/tool/ran.h"

// `fairway bench collectives`: what it measures is right, and what stops it keeps what there is.
namespace {

using namespace ran;

TEST(BenchCollectives, EveryOperationIsMeasuredAndEveryElementIsRight) {
  const Ran ran = fairway(
      "bench collectives --ranks 1,2,3 --operation "
      "all_reduce,reduce,broadcast,all_gather,gather,scatter,all_to_all,all_to_allv,reduce_scatter,send_recv,barrier "
      "--size 8,100K "
      "--turns 1 --seconds 0 --json -");
  ASSERT_EQ(ran.exit, 0) << ran.out;
  EXPECT_EQ(count(ran.out, "\"tool\": \"fairway\""), 63u) << ran.out;  // three groups, ten operations twice, a barrier
  EXPECT_EQ(count(ran.out, "\"wrong\": 0"), 63u) << ran.out;
  EXPECT_EQ(count(ran.out, "\"operation\": \"send_recv\""), 6u) << ran.out;
  EXPECT_EQ(count(ran.out, "\"complete\": true"), 1u) << ran.out;
  // Two ranks need more than a microsecond to join, and nobody waits for a minute.
  EXPECT_EQ(count(ran.out, "\"join_ms\": null"), 0u) << ran.out;
  for (std::size_t at = 0; (at = ran.out.find("\"ranks\": 3", at)) != std::string::npos; ++at) {
    const double ms = std::stod(ran.out.substr(ran.out.find("\"join_ms\": ", at) + 11));
    EXPECT_TRUE(ms > 0.001 && ms < 60e3) << ms;
  }
}

TEST(BenchCollectives, LocalCompletionIsOfWhatHasARoot) {
  const Ran ran = fairway(
      "bench collectives --ranks 3 --operation all_reduce,reduce,broadcast,gather,scatter --size 8,100K --turns 1 "
      "--seconds 0.01 --local-completion --json -");
  ASSERT_EQ(ran.exit, 0) << ran.out;
  EXPECT_EQ(count(ran.out, "\"wrong\": 0"), 10u) << ran.out;
  EXPECT_EQ(count(ran.out, " local\""), 8u) << ran.out;
}

// With an even and an odd number of ranks: values are made so that each result is exact in its type.
TEST(BenchCollectives, EveryTypeAndReductionIsExact) {
  for (const std::string type : {"i8", "f16", "bf16", "f8e4m3", "f8e5m2"})
    for (const std::string reduction : {"sum", "product", "max", "average"}) {
      const Ran ran =
          fairway("bench collectives --ranks 3,4 --operation all_reduce,reduce_scatter,all_to_allv --type " + type +
                  " --reduction " + reduction + " --size 700 --turns 1 --seconds 0 --json -");
      ASSERT_EQ(ran.exit, 0) << ran.out;
      EXPECT_EQ(count(ran.out, "\"wrong\": 0"), 6u) << ran.out;
      EXPECT_EQ(count(ran.out, "\"reduction\": \"" + reduction + "\""), 4u) << ran.out;
      EXPECT_EQ(count(ran.out, "\"type\": \"" + type + "\""), 6u) << ran.out;
    }
}

// Of four ranks' blocks of one to four parts: 400 bytes are ten parts of ten elements, and one part stays.
TEST(BenchCollectives, BlocksOfAnySizesAreCountedAsTheyAre) {
  const Ran ran = fairway(
      "bench collectives --ranks 4 --operation all_to_allv,send_recv --size 400 --turns 1 --seconds 0 --json -");
  ASSERT_EQ(ran.exit, 0) << ran.out;
  for (const char* const words : {"\"operation\": \"all_to_allv\"", "\"count\": 10,", "\"count\": 100,"})
    EXPECT_EQ(count(ran.out, words), 1u) << words << ran.out;
  EXPECT_EQ(count(ran.out, "\"bytes\": 400,"), 2u) << ran.out;
  EXPECT_EQ(count(ran.out, "\"expected_us\": null"), 0u) << ran.out;
  std::vector<double> parts;  // that cross, of what is sent
  for (std::size_t at = 0; (at = ran.out.find("\"algorithm_bytes_per_second\": ", at)) != std::string::npos; ++at) {
    const double all = std::stod(ran.out.substr(at + 30));
    parts.push_back(std::stod(ran.out.substr(ran.out.find("\"bus_bytes_per_second\": ", at) + 24)) / all);
  }
  ASSERT_EQ(parts.size(), 2u) << ran.out;
  EXPECT_NEAR(parts[0], 0.9, 0.001);
  EXPECT_NEAR(parts[1], 1, 0.001);
  refuses("bench collectives --operation send_recv --algorithm ring --size 8", "send_recv has none", 2);
}

TEST(BenchCollectives, WhatRanksMultiplyIsRightToo) {
  const Ran ran = fairway(
      "bench collectives --ranks 1,3 --operation all_reduce,reduce,reduce_scatter,broadcast --reduction premul_sum "
      "--size "
      "8,100K --turns 1 --seconds 0 --json -");
  ASSERT_EQ(ran.exit, 0) << ran.out;
  EXPECT_EQ(count(ran.out, "\"wrong\": 0"), 16u) << ran.out;
  EXPECT_EQ(count(ran.out, "\"reduction\": \"premul_sum\""), 12u) << ran.out;
}

TEST(BenchCollectives, RowsHaveTheFormOfNcclTests) {
  const std::string picture = testing::TempDir() + "collectives.svg";
  const Ran ran = fairway(
      "bench collectives --ranks 2 --operation all_gather --type f64 --size 64K --via tcp --turns 1 --seconds 0 "
      "--svg " +
      picture);
  ASSERT_EQ(ran.exit, 0) << ran.out;
  std::istringstream lines(ran.out);
  std::string head, row;
  std::getline(lines, head);
  std::getline(lines, row);
  EXPECT_EQ(count(head, "#wrong"), 1u) << ran.out;
  std::istringstream words(row);
  std::string tool, operation, path, ranks, size, elements, type, reduction;
  words >> tool >> operation >> path >> ranks >> size >> elements >> type >> reduction;
  EXPECT_EQ(tool + " " + operation + " " + path + " " + ranks, "fairway all_gather tcp 2");
  EXPECT_EQ(count(ran.out, "2 ranks over tcp joined in "), 1u) << ran.out;
  EXPECT_EQ(count(ran.out, "joined in 0.00 ms"), 0u) << ran.out;
  EXPECT_EQ(size + " " + elements + " " + type + " " + reduction, "65536 4096 f64 none");  // of each rank
  std::ifstream file(picture);
  std::ostringstream drawn;
  drawn << file.rdbuf();
  EXPECT_EQ(count(drawn.str(), "all_gather over tcp, 2 ranks, f64"), 1u) << drawn.str();
  EXPECT_TRUE(drawn.str().ends_with("</svg>\n"));
  EXPECT_NE(drawn.str().find("style=\"fill:#"), std::string::npos) << "a legend in the colours of its lines";
  EXPECT_EQ(count(drawn.str(), "<circle"), count(drawn.str(), "<polyline")) << "one size is a point";
  std::filesystem::remove(picture);
}

// Both axes are logarithmic, and have figures that one remembers.
TEST(BenchCollectives, ItsPictureHasRoundFiguresAtItsAxes) {
  const Ran ran = fairway("bench collectives --ranks 2 --size 8,24,40K --turns 1 --seconds 0 --svg -");
  ASSERT_EQ(ran.exit, 0) << ran.out;
  std::size_t times = 0;
  for (std::size_t at = ran.out.find("class=\"y\">"); at != std::string::npos;
       at = ran.out.find("class=\"y\">", at + 1)) {
    const std::string figure = ran.out.substr(at + 10, ran.out.find(" us", at) - at - 10);
    const std::size_t digit = figure.find_first_not_of("0.");
    EXPECT_TRUE(digit != std::string::npos && std::string("125").find(figure[digit]) != std::string::npos) << figure;
    EXPECT_EQ(figure.find_first_not_of("0.", digit + 1), std::string::npos) << figure;
    ++times;
  }
  EXPECT_GE(times, 1u) << ran.out;
  for (const char* size : {">8 B<", ">32 KiB<"}) EXPECT_EQ(count(ran.out, size), 1u) << ran.out;
  EXPECT_EQ(count(ran.out, ">24 B<") + count(ran.out, ">40 KiB<"), 0u);
}

// Nothing is on PATH: what is not there is named with the package that has it.
TEST(BenchCollectives, AbsentRivalsAreNamedWithTheirPackage) {
  const Ran ran = fairway("bench collectives --ranks 2 --size 8 --turns 1 --seconds 0 --beside mpi", "PATH=/nowhere ");
  ASSERT_EQ(ran.exit, 0) << ran.out;
  EXPECT_EQ(count(ran.out, "not installed: openmpi (Debian's openmpi-bin and libopenmpi-dev)"), 1u) << ran.out;
  EXPECT_EQ(count(ran.out, "not installed: mpich (Debian's mpich and libmpich-dev)"), 1u) << ran.out;
}

// Each rank is a host of its own, and nothing of them is left.
TEST(BenchCollectives, RanksInNamespacesOfTheirOwn) {
  const std::string command = "bench collectives --namespaces --ranks 3 --size 8,100K --turns 1 --seconds 0";
  if (::geteuid() != 0) {
    refuses(command, "needs root", 1);
    GTEST_SKIP() << "network namespaces need root";
  }
  const Ran ran = fairway(command);
  if (count(ran.out, "--namespaces") > 0) GTEST_SKIP() << ran.out;  // no namespaces, or no ip, here
  ASSERT_EQ(ran.exit, 0) << ran.out;
  EXPECT_EQ(count(ran.out, "fairway  all_reduce     tcp   3"), 2u) << ran.out;
  EXPECT_EQ(count(ran.out, "      0  one_shot") + count(ran.out, "      0  recursive_doubling") +
                count(ran.out, "      0  direct") + count(ran.out, "      0  ring"),
            2u)
      << ran.out;  // no element is wrong
  EXPECT_EQ(count(ran.out, "sockets among 3 ranks: "), 1u) << ran.out;
  refuses("bench collectives --namespaces --via shm --size 8", "--via takes only", 2);
  refuses("bench collectives --namespaces --beside mpich --size 8", "only gloo", 2);
}

// Two hosts of two ranks and one of one: those of a host combine through memory first.
TEST(BenchCollectives, SeveralRanksInEachNamespace) {
  refuses("bench collectives --per-host 2 --size 8", "without --namespaces all ranks are on this host", 2);
  for (const int ranks : {4, 5}) {
    const std::string command =
        "bench collectives --namespaces --per-host 2 --size 8,100K,4M --algorithm hierarchical "
        "--turns 1 --seconds 0 --ranks " +
        std::to_string(ranks);
    const Ran ran = fairway(command);
    if (count(ran.out, "--namespaces") > 0) GTEST_SKIP() << ran.out;  // no root, no namespaces, or no ip, here
    ASSERT_EQ(ran.exit, 0) << ran.out;
    EXPECT_EQ(count(ran.out, "      0  hierarchical"), 3u) << ran.out;  // no element is wrong
  }
  const Ran chosen = fairway("bench collectives --namespaces --per-host 2 --size 8,4M --turns 1 --seconds 0 --ranks 4");
  EXPECT_EQ(count(chosen.out, "      0  hierarchical"), 2u) << chosen.out;
}

TEST(BenchCollectives, NamespacesNeedRootAndSaySo) {
  const Ran ran = fairway("bench collectives --namespaces --ranks 2 --size 8 --turns 1 --seconds 0",
                          "setpriv --reuid 65534 --clear-groups timeout 60 ");
  if (count(ran.out, "--namespaces") == 0) GTEST_SKIP() << ran.out;  // setpriv is not there, or may not
  EXPECT_EQ(ran.exit, 1) << ran.out;
  EXPECT_EQ(count(ran.out, "--namespaces needs root"), 1u) << ran.out;
}

TEST(BenchCollectives, BadWordsAreRefusedByName) {
  refuses("bench collectives --ranks 2,65", "'65' is no number of 1 to 64", 2);
  refuses("bench collectives --type f4", "f4", 2);
  refuses("bench collectives --size 7", "--size: 7 bytes are no whole number of f32, of 4 bytes each", 2);
  refuses("bench collectives --beside nccl", "nccl", 2);
  refuses("bench collectives --ranks 2 --operation broadcast --algorithm ring --size 8 --turns 1 --seconds 0",
          "broadcast has no ring", 1);
}

TEST(BenchCollectives, CtrlCKeepsTheRowsSoFar) {
  const Ran ran = fairway("bench collectives --ranks 2 --seconds 2 --turns 3 --csv /dev/null --json -",
                          "timeout -s INT --preserve-status 4 ");
  EXPECT_EQ(ran.exit, 130) << ran.out;
  EXPECT_EQ(count(ran.out, "\"complete\": false"), 1u) << ran.out;
}

// tests/process/collectives has ranks that hang.
TEST(WhoHangs, SaysThatNobodyDoes) {
  const Ran ran = fairway("who-hangs --after 100000");
  EXPECT_EQ(ran.exit, 0) << ran.out;
  EXPECT_EQ(count(ran.out, "none has waited for 100000 s"), 1u) << ran.out;
}

}  // namespace
