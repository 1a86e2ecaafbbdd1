#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "process/tool/ran.h"

// The tool's own commands about paths, as a user types them.
namespace {

using namespace ran;

TEST(Bench, EveryOperationOnEveryPathIsMeasuredAndVerified) {
  const Ran ran = fairway("bench --size 8,100,64K --seconds 0 --json -");
  ASSERT_EQ(ran.exit, 0) << ran.out;
  EXPECT_EQ(count(ran.out, "\"path\": \"shm\""), 30u) << ran.out;  // two memories, five operations, three sizes
  EXPECT_EQ(count(ran.out, "\"path\": \"tcp\""), 15u) << ran.out;
  EXPECT_EQ(count(ran.out, "\"verified_bytes\": 0"), 0u) << ran.out;
}

TEST(Bench, SleepingPagesCompareAndMatrixToo) {
  Ran ran = fairway("bench --size 8,4K --seconds 0 --sleep --via tcp --csv -");
  EXPECT_EQ(ran.exit, 0) << ran.out;
  EXPECT_EQ(count(ran.out, "\n"), 11u) << ran.out;
  ran = fairway("bench --size 4K --pages 64 --seconds 0");
  EXPECT_EQ(ran.exit, 0) << ran.out;
  EXPECT_EQ(count(ran.out, "64 x 4 KiB"), 6u) << ran.out;
  ran = fairway("bench compare shm tcp --size 1K --operation write --seconds 0");
  EXPECT_EQ(ran.exit, 0) << ran.out;
  EXPECT_EQ(count(ran.out, "1 KiB"), 1u) << ran.out;
  ran = fairway("bench matrix --size 1M --seconds 0 --svg -");
  EXPECT_EQ(ran.exit, 0) << ran.out;
  EXPECT_EQ(ran.out.rfind("<svg", 0), 0u) << ran.out;
}

TEST(Bench, MovesGpuMemoryByWhateverDriverThereIs) {
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
  for (const char* memories : {"--from gpu:0 --to gpu:1", "--from gpu:0 --to gpu:1:mapped", "--from host --to gpu:0",
                               "--from gpu:0 --to pinned"}) {
    const Ran ran = fairway(std::string("bench --size 1M --operation read,send --seconds 0 --csv - ") + memories);
    EXPECT_EQ(ran.exit, 0) << memories << ": " << ran.out;
    EXPECT_EQ(count(ran.out, "copy engine"), 1u) << memories << ": " << ran.out;
  }
  const Ran pages =
      fairway("bench --from gpu:0 --to gpu:1 --size 4K --pages 200 --operation write --seconds 0 --csv -");
  EXPECT_EQ(pages.exit, 0) << pages.out;
  const Ran locked = fairway("bench --from gpu:0 --to gpu:1:locked --size 4K --operation write --seconds 0");
  EXPECT_EQ(locked.exit, 0) << locked.out;
  const Ran why = fairway("explain --from gpu:0 --to gpu:1:locked");
  EXPECT_EQ(why.exit, 0) << why.out;
  EXPECT_NE(why.out.find("staged: no link takes both memories"), std::string::npos) << why.out;
  EXPECT_NE(why.out.find("its owner cannot lend it"), std::string::npos) << why.out;
  ::unsetenv("FAIRWAY_CUDA_DRIVER");
}

TEST(Bench, SeveralAtOnceAreSaidToBe) {
  const Ran shown = fairway("bench --via shm --operation write --size 8 --depth 4 --seconds 0 --svg /dev/stdout");
  EXPECT_EQ(count(shown.out, "4 operations on their way all the time"), 1u) << shown.out;
  EXPECT_EQ(count(shown.out, "write: rate, 4 at once"), 1u) << shown.out;
  EXPECT_EQ(count(shown.out, "dashed"), 0u) << "no roof is measured so\n" << shown.out;
}

TEST(Bench, AtomicsAreMeasuredWhereTheyAreNamed) {
  const Ran ran = fairway("bench --via shm --operation fetch_add --size 8,64 --depth 4 --seconds 0 --json -");
  EXPECT_EQ(ran.exit, 0) << ran.out;
  EXPECT_EQ(count(ran.out, "\"operation\": \"fetch_add\", \"bytes\": 8"), 1u) << ran.out;
  EXPECT_EQ(count(ran.out, "\"path\""), 1u) << ran.out;
}

// Nothing is on PATH but an iperf3 that says 8 Gb/s.
TEST(BenchPeers, APathThatIsComparedWithNothingIsNamed) {
  const Ran ran = fairway("bench peers --via tcp,nonsense --size 8");
  EXPECT_EQ(ran.exit, 2);
  EXPECT_NE(ran.out.find("\"nonsense\" is compared with nothing: --via takes fabric:tcp"), std::string::npos)
      << ran.out;
}

TEST(BenchPeers, RowsAreWrittenAsJsonAndCsv) {
  char folder[] = "/tmp/fairway-peers-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string tools(folder);
  for (const char* tool : {"sh", "timeout", "env"})
    ASSERT_EQ(std::system(("ln -s \"$(command -v " + std::string(tool) + ")\" " + tools).c_str()), 0);
  std::ofstream(tools + "/iperf3") << "#!/bin/sh\necho '{\"sum_received\": {\"bits_per_second\": 8e9}}'\n";
  ASSERT_EQ(std::system(("chmod +x " + tools + "/iperf3").c_str()), 0);
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", tools.c_str(), 1);
  const Ran ran = fairway("bench peers --via tcp --size 1M --seconds 0 --json - --csv " + tools + "/rows.csv");
  ::setenv("PATH", path.c_str(), 1);
  std::stringstream csv;
  csv << std::ifstream(tools + "/rows.csv").rdbuf();
  EXPECT_EQ(std::system(("rm -r " + tools).c_str()), 0);
  EXPECT_EQ(ran.exit, 0) << ran.out;
  EXPECT_EQ(count(ran.out, "\"format\": \"fairway-bench-peers\",\n  \"version\": 1,"), 1u) << ran.out;
  EXPECT_EQ(count(ran.out, "{\"tool\": \"iperf3\", \"version\": \"\", \"test\": \"-P "), 2u) << ran.out;
  EXPECT_EQ(count(ran.out, "\"path\": \"tcp\", \"bytes\": 1048576, \"depth\": 1, \"its_us\": 1048.576, \"ours_us\": "),
            2u)
      << ran.out;
  EXPECT_EQ(count(ran.out, "\"ratio\": 0.0000"), 0u) << ran.out;
  EXPECT_EQ(
      csv.str().rfind(
          "tool,version,test,path,bytes,depth,its_us,ours_us,ratio,ratio_low,ratio_high\niperf3,,-P 1,tcp,1048576,", 0),
      0u)
      << csv.str();
}

TEST(BenchVerbs, ACombinationThatNoDeviceHasNamesTypeAndOperation) {
  const auto refuses = [](const std::string& arguments, const std::string& word) {
    const Ran ran = fairway("bench verbs " + arguments);
    EXPECT_EQ(ran.exit, 2) << arguments << ": " << ran.out;
    EXPECT_NE(ran.out.find(word), std::string::npos) << arguments << ": " << ran.out;
  };
  refuses("--type UC --operation read", "UC read is no operation");
  refuses("--type UC --operation compare_swap", "UC compare_swap is no operation");
  refuses("--type UD --operation write", "UD write is no operation");
  refuses("--type UD,RC --operation write_immediate", "take --type RC or UC");
  refuses("--type UC --operation write --events", "UC write with --events");
  refuses("--type XY", "XY");
  refuses("--operation juggle", "juggle");
  refuses("--size 3Q", "3Q");
  refuses("--size 1G", "256M");
  refuses("--mtu 1500", "1500");
  refuses("--queue-pairs 0", "--queue-pairs");
  refuses("--device a,b,c", "--device");
}

TEST(BenchVerbs, AMachineWithoutADeviceSaysSo) {
  std::error_code none;
  if (!std::filesystem::is_empty("/sys/class/infiniband", none) && !none)
    GTEST_SKIP() << "this machine has an RDMA device";
  const Ran ran = fairway("bench verbs");
  EXPECT_EQ(ran.exit, 1) << ran.out;
  EXPECT_NE(ran.out.find("this machine has no RDMA device"), std::string::npos) << ran.out;
}

TEST(RdmaFlags, AreRefusedByNameWhereverEnginesAreOpened) {
  for (const char* command :
       {"bench", "bench compare tcp", "bench peers", "bench matrix", "bench load", "ping 127.0.0.1:1", "explain"}) {
    const auto refuses = [&](const std::string& arguments, const std::string& words) {
      const Ran ran = fairway(command + (" " + arguments));
      EXPECT_EQ(ran.exit, 2) << ran.out;
      EXPECT_NE(ran.out.find(words), std::string::npos) << ran.out;
    };
    refuses("--gid 256", "--gid: '256' is no number from 0 to 255");
    refuses("--mtu 1500", "--mtu: '1500' is none of 256, 512, 1024, 2048, 4096");
    refuses("--pkey 0x10000", "--pkey: '0x10000' is no number from 1 to 65535");
    refuses("--service-level 16", "--service-level");
    refuses("--queue-pairs 33", "--queue-pairs");
    refuses("--on-demand maybe", "--on-demand: 'maybe' is none of off, when-short, always");
  }
}

TEST(RdmaFlags, GoThroughToBothProcesses) {
  const Ran ran = fairway(
      "bench --via tcp --size 8 --operation write --seconds 0 --csv - --rdma-device mlx5_9,mlx5_8/1 --gid 3 "
      "--queue-pairs 4 --mtu 2048 --traffic-class 106 --service-level 3 --hop-limit 9 --pkey 0x8001 --ack-timeout 12 "
      "--retries 5 --on-demand always --rdma-cm");
  EXPECT_EQ(ran.exit, 0) << ran.out;  // tcp minds none of them; the other process has understood them
  EXPECT_EQ(count(ran.out, "tcp,shared,shared,write"), 1u) << ran.out;
}

TEST(RdmaFlags, AreInTheHelpWithinItsWidthAndInTheCompletion) {
  for (const char* command : {"bench", "ping", "explain"}) {
    const Ran help = fairway(std::string(command) + " --help | cat");
    EXPECT_EQ(help.exit, 0);
    std::istringstream lines(help.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << command << ": " << line;
    EXPECT_EQ(count(help.out, "\nRDMA NICs:\n"), 1u) << help.out;
    EXPECT_EQ(count(help.out, "\n\n\n"), 0u) << help.out;
  }
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Ran script = fairway(std::string("completion ") + shell);
    EXPECT_GE(count(script.out, "traffic-class"), 3u) << shell;
    EXPECT_GE(count(script.out, "when-short"), 3u) << shell;
  }
}

TEST(Tool, ErrorsOfAnEngineNameTheFlag) {
  const Ran ran = fairway("ping 127.0.0.1:1 --via nonsense");
  EXPECT_EQ(ran.exit, 1);
  EXPECT_NE(ran.out.find("--via names \"nonsense\", which is none of this build"), std::string::npos) << ran.out;
  const Ran alias = fairway("ping 127.0.0.1:1 --via ipc");
  EXPECT_NE(alias.out.find("\"cuda\" reaches memory from cudaMalloc by CUDA IPC"), std::string::npos) << alias.out;
}

TEST(BenchLoad, EveryQuestionHasAnAnswer) {
  const auto answers = [](const std::string& arguments, const std::string& path,
                          std::initializer_list<const char*> all) {
    const Ran ran = fairway("bench load --seconds 0.01 --json - " + arguments);
    ASSERT_EQ(ran.exit, 0) << ran.out;
    for (const char* what : all)
      EXPECT_GE(count(ran.out, std::string("\"what\": \"") + what + "\", \"path\": \"" + path + "\""), 1u)
          << what << " over " << path << ": " << ran.out;
    EXPECT_EQ(count(ran.out, "\"p50\": 0,"), 0u) << ran.out;
  };
  answers("--via shm --only busy,submit,idle", "shm", {"busy", "submit", "idle"});
  answers("--via tcp --only life", "tcp", {"killed", "restarted", "frozen", "neighbour"});
}

TEST(Bench, WhatMakesNoSenseIsNamedAndHangsNowhere) {
  refuses("bench --size 3Q", "3Q", 2);
  refuses("bench --size 0", "\"0\"", 2);
  refuses("bench --size 32G --pages 1000", "64 GiB", 2);
  refuses("bench --operation juggle", "juggle", 2);
  refuses("bench --from gpu:99 --size 8", "gpu:99", 1);
  refuses("bench --to host:numa999 --size 8", "NUMA node 999", 1);
  refuses("bench --to host:numa --size 8", "host:numa0", 1);
  refuses("bench --via rdma --size 8", "rdma", 1);
  refuses("bench 127.0.0.1:1 --size 8", "Connection refused", 1);
  refuses("bench --listen 0.0.0.0:0", "key", 1);
  refuses("bench --json /nonexistent/x --size 8 --seconds 0 --via shm", "/nonexistent/x", 1);
  refuses("bench load --via rdma", "rdma", 1);
  refuses("bench load --only submit --via fabric:rdma", "the provider rdma", 1);
  refuses("explain --machine /proc/self/comm", "/proc/self/comm: not a Fairway snapshot", 1);
  refuses("bench --size 8 --seconds 0 --via shm --machine /nonexistent", "/nonexistent", 1);
  refuses("bench --machine ''", "the name is empty", 2);
  refuses("explain 127.0.0.1", "host:port", 1);
  refuses("nccl", "needs a command", 2);
  refuses("bench load --only dancing", "dancing", 2);
  refuses("ping 127.0.0.1:1", "127.0.0.1:1", 1);
  refuses("explain --to gpu:99", "gpu:99", 1);
}

TEST(Explain, TellsTheWayAndTheOnesLeft) {
  Ran ran = fairway("explain");
  EXPECT_EQ(ran.exit, 0) << ran.out;
  EXPECT_NE(ran.out.find("mapped here"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("leaves tcp"), std::string::npos) << ran.out;
  ran = fairway("explain --to host");
  EXPECT_NE(ran.out.find("cross-memory attach"), std::string::npos) << ran.out;
}

#ifdef FAIRWAY_TOOL_HAS_NCCL
TEST(Nccl, TheSettingsAreWhatAShellTakesAfterThePluginWasTried) {
  const Ran plain = fairway("nccl env");
  ASSERT_EQ(plain.exit, 0) << plain.out;
  EXPECT_EQ(count(plain.out, "export NCCL_NET='Fairway'\n"), 1u) << plain.out;
  EXPECT_EQ(count(plain.out, "export NCCL_P2P_DISABLE"), 0u) << plain.out;
  std::size_t lines = 0, understood = 0;
  for (std::size_t at = 0; at < plain.out.size(); at = plain.out.find('\n', at) + 1, ++lines)
    understood += plain.out.compare(at, 12, "export NCCL_") == 0 || plain.out[at] == '#';
  EXPECT_EQ(lines, understood) << plain.out;
  EXPECT_EQ(count(fairway("nccl env --everything").out, "export NCCL_P2P_DISABLE='1'\n"), 1u);
  EXPECT_EQ(count(plain.out, "export NCCL_PROTO='^LL128'\n"), 1u) << plain.out;
  ::setenv("NCCL_PROTO", "Simple", 1);
  EXPECT_EQ(count(fairway("nccl env").out, "NCCL_PROTO"), 0u) << "the user's choice stays";
  ::unsetenv("NCCL_PROTO");
}

TEST(Nccl, GpuMemoryThatIsAskedForAndCannotBeHadIsAnErrorThatSaysWhy) {
  ::setenv("FAIRWAY_TRANSPORTS", "shm,tcp", 1);
  const Ran ran = fairway("nccl env --gpu-memory");
  ::unsetenv("FAIRWAY_TRANSPORTS");
  EXPECT_EQ(ran.exit, 1);
  EXPECT_NE(ran.out.find("the transport cuda is not in use"), std::string::npos) << ran.out;
}

TEST(Nccl, AMissingOrForeignPluginAndAWrongSettingAreNamed) {
  const Ran missing = fairway("nccl env --plugin ./none.so");
  EXPECT_EQ(missing.exit, 1);
  EXPECT_NE(missing.out.find("none.so"), std::string::npos) << missing.out;
  const Ran foreign = fairway("nccl env --plugin libm.so.6");
  EXPECT_EQ(foreign.exit, 1);
  EXPECT_NE(foreign.out.find("ncclNetPlugin_v8"), std::string::npos) << foreign.out;
  for (const auto& [name, value] : {std::pair("FAIRWAY_SPIN_US", "soon"), std::pair("FAIRWAY_JOB_KEY_FILE", "/tmp"),
                                    std::pair("NCCL_PROTO", "LL128")}) {
    ::setenv(name, value, 1);
    const Ran wrong = fairway("nccl env");
    ::unsetenv(name);
    EXPECT_EQ(wrong.exit, 1);
    EXPECT_NE(wrong.out.find(name), std::string::npos) << wrong.out;
  }
}
#endif

}  // namespace
