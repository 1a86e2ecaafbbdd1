#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "process/tool/ran.h"

// `fairway bench ways`: it measures, keeps what it found, and shows what is chosen by it.
namespace {

using namespace ran;

const std::string kGpus = "FAIRWAY_CUDA_DRIVER=" FAIRWAY_STANDIN_CUDA " FAIRWAY_STANDIN_DEVICES=2 ";

TEST(BenchWays, KeepsATableAndShowsWhatItChooses) {
  const std::string table = testing::TempDir() + "ways/table";
  const Ran ran = fairway("bench ways --most 512 --compare --table " + table,
                          kGpus + "FAIRWAY_NCCL_LIBRARY=" FAIRWAY_STANDIN_NCCL " ");
  ASSERT_EQ(ran.exit, 0) << ran.out;
  EXPECT_EQ(count(ran.out, "kept in " + table), 1u) << ran.out;
  for (const char* kind : {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"})
    EXPECT_EQ(count(ran.out, kind), 4u) << ran.out;  // in a graph and not, measured and compared
  std::ostringstream kept;
  kept << std::ifstream(table).rdbuf();
  EXPECT_EQ(count(kept.str(), " 512 "), 16u) << kept.str();
  std::filesystem::remove_all(testing::TempDir() + "ways");
}

TEST(BenchWays, OnHostMemoryEachAlgorithmIsMeasured) {
  const std::string folder = testing::TempDir() + "host-ways";
  const Ran ran = fairway("bench ways --memory host --ranks 2 --most 512 --compare", "XDG_CACHE_HOME=" + folder + " ");
  ASSERT_EQ(ran.exit, 0) << ran.out;
  EXPECT_EQ(count(ran.out, "kept in " + folder + "/fairway/collectives-"), 1u) << ran.out;
  for (const char* kind : {"all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all"})
    EXPECT_EQ(count(ran.out, std::string(kind) + " "), 8u) << ran.out;  // four sizes, measured and compared
  EXPECT_GE(count(ran.out, "recursive_doubling "), 8u) << ran.out;
  std::filesystem::remove_all(folder);
  const Ran wrong = fairway("bench ways --memory host --nccl x");
  EXPECT_EQ(wrong.exit, 2);
  EXPECT_EQ(count(wrong.out, "are of GPU memory"), 1u) << wrong.out;
  EXPECT_EQ(fairway("bench ways --ranks 9").exit, 2);
}

TEST(BenchWays, SaysWhyItCannot) {
  const Ran none = fairway("bench ways", kGpus + "FAIRWAY_NCCL_LIBRARY=/nowhere/libnccl.so.2 ");
  EXPECT_EQ(none.exit, 1);
  EXPECT_EQ(count(none.out, "/nowhere/libnccl.so.2 cannot be loaded"), 1u) << none.out;
  const Ran bare = fairway("bench ways", "FAIRWAY_CUDA_DRIVER=/none ");
  EXPECT_EQ(bare.exit, 1);
  EXPECT_EQ(count(bare.out, "no CUDA"), 1u) << bare.out;
}

}  // namespace
