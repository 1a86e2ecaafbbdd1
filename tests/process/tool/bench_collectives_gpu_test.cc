#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <sstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "process/tool/ran.h"

// `fairway bench collectives --memory gpu`, on the stand-in driver and the stand-in NCCL.
namespace {

using namespace ran;

const std::string kThreeGpus = "FAIRWAY_CUDA_DRIVER=" FAIRWAY_STANDIN_CUDA " FAIRWAY_STANDIN_DEVICES=3 timeout 250 ";
const std::string kWithNccl = "FAIRWAY_NCCL_LIBRARY=" FAIRWAY_STANDIN_NCCL " " + kThreeGpus;
const std::string kQuick = " --turns 1 --seconds 0 --json -";

Ran on_gpus(const std::string& options, const std::string& before = kThreeGpus) {
  return fairway("bench collectives --memory gpu " + options, before);
}

std::string operations() {
  return "all_reduce,reduce,broadcast,all_gather,gather,scatter,all_to_all,all_to_allv,reduce_scatter,send_recv,"
         "barrier";
}

TEST(BenchCollectivesGpu, EveryOperationIsMeasuredAndEveryElementIsRight) {
  const Ran ran = on_gpus("--ranks 1,2,3 --operation " + operations() + " --size 8,100K" + kQuick);
  ASSERT_EQ(ran.exit, 0) << ran.out;
  EXPECT_EQ(count(ran.out, "\"memory\": \"gpu\", \"graph\": false"), 63u) << ran.out;
  EXPECT_EQ(count(ran.out, "\"wrong\": 0"), 63u) << ran.out;
  EXPECT_EQ(count(ran.out, "\"algorithm\": \"kernels\""), 57u) << ran.out;
  EXPECT_EQ(count(ran.out, "\"algorithm\": \"messages\""), 6u) << ran.out;
  EXPECT_EQ(count(ran.out, "\"expected_us\": null"), 63u) << "nothing is known of the links: " << ran.out;
  EXPECT_EQ(count(ran.out, "\"complete\": true"), 1u) << ran.out;
}

// With more captures than one communicator has places for.
TEST(BenchCollectivesGpu, InGraphsToo) {
  const Ran ran =
      on_gpus("--graph --ranks 2 --operation " + operations() + " --size 700 --turns 3 --seconds 0 --json -");
  ASSERT_EQ(ran.exit, 0) << ran.out;
  EXPECT_EQ(count(ran.out, "\"memory\": \"gpu\", \"graph\": true"), 11u) << ran.out;
  EXPECT_EQ(count(ran.out, "\"wrong\": 0"), 11u) << ran.out;
  EXPECT_EQ(count(ran.out, "\"rounds\": 50,"), 11u) << "a graph's: " << ran.out;
}

TEST(BenchCollectivesGpu, EveryTypeAndReductionIsExact) {
  for (const std::string type : {"i8", "bf16", "f8e4m3"})
    for (const std::string reduction : {"sum", "average"}) {
      const Ran ran = on_gpus("--ranks 2,3 --operation all_reduce,reduce_scatter --size 700 --type " + type +
                              " --reduction " + reduction + kQuick);
      ASSERT_EQ(ran.exit, 0) << ran.out;
      EXPECT_EQ(count(ran.out, "\"wrong\": 0"), 4u) << ran.out;
      EXPECT_EQ(count(ran.out, "\"type\": \"" + type + "\", \"reduction\": \"" + reduction + "\""), 4u) << ran.out;
    }
  const Ran multiplied = on_gpus("--ranks 3 --operation reduce --reduction premul_sum --size 700" + kQuick);
  EXPECT_EQ(count(multiplied.out, "\"wrong\": 0"), 1u) << multiplied.out;
  const Ran forced = on_gpus("--ranks 3 --algorithm direct --size 700" + kQuick);
  EXPECT_EQ(count(forced.out, "\"algorithm\": \"direct\""), 1u) << forced.out;
}

TEST(BenchCollectivesGpu, InTurnsWithNccl) {
  for (const std::string how : {"", "--graph "}) {
    const Ran ran =
        on_gpus(how + "--beside nccl --ranks 2,3 --operation " + operations() + " --size 700" + kQuick, kWithNccl);
    ASSERT_EQ(ran.exit, 0) << ran.out;
    EXPECT_EQ(count(ran.out, "\"tool\": \"fairway\""), 22u) << ran.out;
    EXPECT_EQ(count(ran.out, "\"tool\": \"nccl\", \"version\": \"2.28.9\""), 20u) << ran.out;
    EXPECT_EQ(count(ran.out, "NCCL has no barrier"), 2u) << ran.out;
    EXPECT_EQ(count(ran.out, "\"wrong\": 0"), 42u) << ran.out;
    EXPECT_EQ(count(ran.out, "\"ratio\": null"), 22u) << "of our own rows: " << ran.out;
  }
}

// What NCCL prints where NCCL_DEBUG is set does not come between a rank's answers.
TEST(BenchCollectivesGpu, RowsAndPictureNameNccl) {
  const std::string picture = testing::TempDir() + "gpu-collectives.svg";
  const Ran ran = on_gpus("--ranks 2 --size 64K --turns 3 --seconds 0 --graph --beside nccl --svg " + picture +
                              " --nccl-library " FAIRWAY_STANDIN_NCCL,
                          "NCCL_DEBUG=INFO " + kThreeGpus);
  ASSERT_EQ(ran.exit, 0) << ran.out;
  EXPECT_EQ(count(ran.out, "NCCL INFO rank "), 2u) << ran.out;
  EXPECT_EQ(count(ran.out, "\nfairway  all_reduce     gpu   2       65536"), 1u) << ran.out;
  EXPECT_EQ(count(ran.out, "\nnccl     all_reduce     gpu   2       65536"), 1u) << ran.out;
  EXPECT_EQ(count(ran.out, "      0  kernels in a graph"), 1u) << ran.out;
  EXPECT_EQ(count(ran.out, "from the first graph's launch until the stream has ended"), 1u) << ran.out;
  EXPECT_EQ(count(ran.out, "Beside NCCL 2.28.9."), 1u) << ran.out;
  std::ostringstream drawn;
  drawn << std::ifstream(picture).rdbuf();
  EXPECT_EQ(count(drawn.str(), "all_reduce over gpu in a graph, 2 ranks, f32"), 1u) << drawn.str();
  EXPECT_EQ(count(drawn.str(), ">nccl</text>"), 1u) << drawn.str();
  std::filesystem::remove(picture);
}

TEST(BenchCollectivesGpu, WrongElementsAreCounted) {
  const Ran ran = on_gpus("--ranks 2 --size 100K --beside nccl" + kQuick, "FAIRWAY_STANDIN_NCCL_SPOILS=1 " + kWithNccl);
  EXPECT_EQ(ran.exit, 1) << ran.out;
  EXPECT_EQ(count(ran.out, "\"wrong\": 0"), 1u) << "ours: " << ran.out;
  EXPECT_EQ(count(ran.out, "\"wrong\": 4"), 1u) << "the first and the last of each rank: " << ran.out;
  EXPECT_EQ(count(ran.out, "4 elements are wrong"), 1u) << ran.out;
}

// Two GPUs with 18 links of 26.6 GB/s, of which each sends half of the buffer.
TEST(BenchCollectivesGpu, WhatJoinsTheGpusSaysWhatToExpect) {
  const std::string picture = testing::TempDir() + "gpu-expected.svg";
  const Ran ran = on_gpus("--ranks 2 --operation all_gather --size 1M --from " FAIRWAY_MACHINES "/h200_x2.json --svg " +
                          picture + kQuick);
  ASSERT_EQ(ran.exit, 0) << ran.out;
  std::ostringstream drawn;
  drawn << std::ifstream(picture).rdbuf();
  EXPECT_EQ(count(drawn.str(), ">fairway</text>"), 1u) << drawn.str();
  EXPECT_EQ(count(drawn.str(), ">expected</text>"), 0u) << "the stand-in is far from it: " << drawn.str();
  std::filesystem::remove(picture);
  const std::size_t at = ran.out.find("\"expected_us\": ");
  ASSERT_NE(at, std::string::npos) << ran.out;
  const double us = std::atof(ran.out.c_str() + at + 15);
  EXPECT_GT(us, 524288 / 478.8e3) << "faster than the links";
  EXPECT_LT(us, 524288 / 300e3);
  const Ran none = on_gpus("--ranks 2 --size 8 --from /nowhere/machine.json" + kQuick);
  EXPECT_EQ(none.exit, 2) << none.out;
  EXPECT_EQ(count(none.out, "/nowhere/machine.json"), 1u) << none.out;
}

TEST(BenchCollectivesGpu, WhatDoesNotGoTogetherIsRefusedByName) {
  const std::string gpu = "bench collectives --memory gpu --size 8 ";
  refuses(gpu + "--via shm", "--via: kernels move GPU memory", 2);
  refuses(gpu + "--namespaces", "--namespaces: GPUs of one host", 2);
  refuses(gpu + "--per-host 2", "--per-host: all GPUs are of this host", 2);
  refuses(gpu + "--local-completion", "--local-completion: on a stream", 2);
  refuses(gpu + "--algorithm ring", "--algorithm ring: on GPUs all_reduce has one_shot and direct", 2);
  refuses(gpu + "--operation all_reduce,reduce --algorithm direct", "others have none", 2);
  refuses(gpu + "--beside gloo", "--beside gloo: its ranks have host memory", 2);
  refuses(gpu + "--beside nccl,mpi", "--beside mpi: its ranks have host memory", 2);
  refuses(gpu + "--nccl-library x", "--nccl-library: nothing uses it", 2);
  refuses(gpu + "--ranks 9", "'9' is no number of 1 to 8", 2);
  refuses("bench collectives --size 8 --beside nccl", "--beside nccl: it moves GPU memory; add --memory gpu", 2);
  refuses("bench collectives --size 8 --beside gloo,nccl", "--beside nccl: it moves GPU memory", 2);
  refuses("bench collectives --size 8 --graph", "--graph: graphs are of GPUs; add --memory gpu", 2);
  refuses("bench collectives --size 8 --from x", "--from: it tells what joins GPUs", 2);
}

TEST(BenchCollectivesGpu, SaysWhatIsMissing) {
  const auto fails = [](const Ran& ran, const std::string& words) {
    EXPECT_EQ(ran.exit, 1) << ran.out;
    EXPECT_EQ(count(ran.out, words), 1u) << ran.out;
    EXPECT_EQ(count(ran.out, "\n"), 1u) << ran.out;
  };
  fails(on_gpus("--size 8", "FAIRWAY_CUDA_DRIVER=/none "), "no CUDA: ");
  fails(on_gpus("--size 8", "FAIRWAY_CUDA_DRIVER=/none "), "--memory host needs no GPU");
  fails(on_gpus("--size 8 --ranks 2,4"), "4 ranks need a GPU each, and there are 3 here");
  fails(on_gpus("--size 8 --ranks 2,4"), "take --ranks up to 3");
  const std::string absent = "FAIRWAY_NCCL_LIBRARY=/nowhere/libnccl.so.2 " + kThreeGpus;
  fails(on_gpus("--size 8 --beside nccl", absent), "/nowhere/libnccl.so.2 cannot be loaded");
  fails(on_gpus("--size 8 --beside nccl", absent), "name its file by --nccl-library or FAIRWAY_NCCL_LIBRARY");
}

// A process of the run whose environment has this: that of a rank, or without one the command's. 0: there is none yet.
pid_t find_process(const std::string& mark, const std::string& rank) {
  const auto text_of = [](const std::filesystem::path& file) {
    std::ostringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    return text.str();
  };
  const std::string option("--rank\0", 7);
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", gone)) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string words = text_of(entry.path() / "cmdline");
    const std::size_t at = words.find(option);
    const bool is_it = rank.empty() ? at == std::string::npos && words.starts_with(FAIRWAY_TOOL)
                                    : at != std::string::npos && words.compare(at + 7, 2, rank + '\0') == 0;
    if (is_it && text_of(entry.path() / "environ").find(mark) != std::string::npos)
      return static_cast<pid_t>(std::stol(name));
  }
  return 0;
}

// A run of many turns, while something happens to its processes.
class Running {
 public:
  explicit Running(const std::string& options)
      : mark_("FAIRWAY_TEST_MARK=" + std::to_string(::getpid()) + "-" + options.substr(2, 4)),
        run_(std::async(std::launch::async, [this, options] {
          return on_gpus("--ranks 2 --size 8,64 --turns 1000 --seconds 0.05 --json - " + options,
                         "env '" + mark_ + "' " + kWithNccl);
        })) {}
  // To that rank, or to the command.
  void signal(int number, const std::string& rank) {
    pid_t process = 0;
    for (int i = 0; i < 3000 && process == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      process = find_process(mark_, rank);
    }
    ASSERT_NE(process, 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // rows are measured
    signalled_ = std::chrono::steady_clock::now();
    ::kill(process, number);
  }
  Ran end() { return run_.get(); }
  [[nodiscard]] double seconds_since_signal() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - signalled_).count();
  }

 private:
  const std::string mark_;
  std::chrono::steady_clock::time_point signalled_;
  std::future<Ran> run_;
};

// By our kernels, and in NCCL, whose calls wait for ever.
TEST(BenchCollectivesGpu, ARankThatDiesEndsTheRun) {
  for (const std::string beside : {"--operation all_gather", "--beside nccl"}) {
    Running running(beside);
    running.signal(SIGKILL, "1");
    const Ran ran = running.end();
    EXPECT_EQ(ran.exit, 1) << ran.out;
    EXPECT_EQ(count(ran.out, "rank 1: it ended by Killed"), 1u) << ran.out;
    EXPECT_LT(running.seconds_since_signal(), 20) << ran.out;
  }
}

// By timeout(1) it would go on: that continues what it signals.
TEST(BenchCollectivesGpu, CtrlCEndsARunWhoseRankHangs) {
  Running running("--beside nccl");
  running.signal(SIGSTOP, "1");
  running.signal(SIGINT, "");
  const Ran ran = running.end();
  EXPECT_EQ(ran.exit, 130) << ran.out;
  EXPECT_EQ(count(ran.out, "\"complete\": false"), 1u) << ran.out;
  EXPECT_GT(running.seconds_since_signal(), 1) << "it did not hang: " << ran.out;
  EXPECT_LT(running.seconds_since_signal(), 30) << ran.out;
}

TEST(BenchCollectivesGpu, CtrlCKeepsTheRowsSoFar) {
  const Ran ran = on_gpus("--ranks 2 --seconds 1 --size 8,64,512,4K,8K,16K,32K --turns 3 --csv /dev/null --json -",
                          "timeout -s INT --preserve-status 7 env " + kThreeGpus);
  EXPECT_EQ(ran.exit, 130) << ran.out;
  EXPECT_GE(count(ran.out, "\"tool\": \"fairway\""), 1u) << ran.out;
  EXPECT_EQ(count(ran.out, "\"complete\": false"), 1u) << ran.out;
}

}  // namespace
