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
  EXPECT_EQ(count(ran.out, "path,from,to,"), 1u) << ran.out;
  EXPECT_EQ(count(ran.out, "\ntcp,"), 10u) << ran.out;  // five operations, two sizes
  ran = fairway("bench --size 4K --pages 64 --seconds 0 --sleep");
  EXPECT_EQ(ran.exit, 0) << ran.out;
  EXPECT_EQ(count(ran.out, "64 x 4 KiB"), 6u) << ran.out;
  ran = fairway("bench compare shm,tcp --size 1K --operation write --seconds 0 --sleep");
  EXPECT_EQ(ran.exit, 0) << ran.out;
  EXPECT_EQ(count(ran.out, "1 KiB"), 1u) << ran.out;
  ran = fairway("bench matrix --size 1M --seconds 0");
  EXPECT_EQ(ran.exit, 0) << ran.out;
  EXPECT_EQ(count(ran.out, "write of 1 MiB, GB/s: median (peak)"), 1u) << ran.out;
}

TEST(Bench, MovesGpuMemoryByWhateverDriverThereIs) {
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
  for (const char* memories : {"--local gpu:0 --remote gpu:1", "--local gpu:0 --remote gpu:1:mapped",
                               "--local host --remote gpu:0", "--local gpu:0 --remote pinned"}) {
    const Ran ran = fairway(std::string("bench --size 1M --operation read --seconds 0 --csv - ") + memories);
    EXPECT_EQ(ran.exit, 0) << memories << ": " << ran.out;
    EXPECT_EQ(count(ran.out, "copy engine"), 1u) << memories << ": " << ran.out;
  }
  const Ran pages =
      fairway("bench --local gpu:0 --remote gpu:1 --size 4K --pages 200 --operation write --seconds 0 --sleep --csv -");
  EXPECT_EQ(pages.exit, 0) << pages.out;
  const Ran locked =
      fairway("bench --local gpu:0 --remote gpu:1:locked --size 4K --operation write --seconds 0 --sleep");
  EXPECT_EQ(locked.exit, 0) << locked.out;
  const Ran why = fairway("explain --local gpu:0 --remote gpu:1:locked");
  EXPECT_EQ(why.exit, 0) << why.out;
  EXPECT_NE(why.out.find("staged: no link reaches both memories"), std::string::npos) << why.out;
  EXPECT_NE(why.out.find("its owner cannot export it"), std::string::npos) << why.out;
  ::unsetenv("FAIRWAY_CUDA_DRIVER");
}

TEST(Bench, SeveralAtOnceAreSaidToBe) {
  const Ran shown = fairway("bench --via shm --operation write --size 8 --depth 4 --seconds 0");
  EXPECT_EQ(count(shown.out, "4 operations in flight"), 1u) << shown.out;
}

// Written at once, the next message may be complete before the answer to the one before it is acknowledged.
TEST(Bench, AMessageThatComesBeforeAnAcknowledgementIsKept) {
  const Ran ran = fairway("bench --via tcp --operation send --size 64K --seconds 0.1 --csv -", "timeout 60 ");
  EXPECT_EQ(ran.exit, 0) << ran.out;
}

TEST(Bench, AtomicsAreMeasuredWhereTheyAreNamed) {
  const Ran ran = fairway("bench --via shm --operation fetch_add --size 8,64 --depth 4 --seconds 0 --json -");
  EXPECT_EQ(ran.exit, 0) << ran.out;
  EXPECT_EQ(count(ran.out, "\"operation\": \"fetch_add\", \"bytes\": 8"), 1u) << ran.out;
  EXPECT_EQ(count(ran.out, "\"path\""), 1u) << ran.out;
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

TEST(Doctor, MeasuresWhatCpusCopyWhereThereIsOneNode) {
  const Ran ran = fairway("doctor --measure --json");
  ASSERT_GE(ran.exit, 0) << ran.out;
  ASSERT_LE(ran.exit, 2) << ran.out;
  const bool left_out = ran.out.find("memory: with several NUMA nodes") != std::string::npos;
  EXPECT_EQ(count(ran.out, "\"rule\": \"below-expectation\",\n      \"why\""), left_out ? 1u : 0u) << ran.out;
}

TEST(Tool, ErrorsOfAnEngineNameTheFlag) {
  const Ran ran = fairway("explain --listen 10.0.0.1:1");  // no option of explain's
  EXPECT_EQ(ran.exit, 2);
  const Ran listen = fairway("bench --listen 0.0.0.0:0");
  EXPECT_EQ(listen.exit, 1);
  EXPECT_NE(listen.out.find("--key"), std::string::npos) << listen.out;
  EXPECT_EQ(listen.out.find("EngineOptions"), std::string::npos) << listen.out;
  refuses("ping decode-3 --directory nonsense", "--directory is \"nonsense\"", 1);
}

TEST(Tool, WaysAreCheckedByOneParserThatSaysWhatWasMeant) {
  const std::string all = "none of shm, cuda, verbs, tcp, fabric:PROVIDER, staged:TRANSPORT";
  refuses("bench --via nvlnk --size 8", all + ", nvlink, pcie, ipc, fd; did you mean 'nvlink'?", 2);
  refuses("bench --via bogus", "'bogus' is " + all, 2);
  refuses("bench compare shm bogus", "'bogus' is " + all, 2);
  refuses("bench --via rdma", "did you mean 'verbs'?", 2);
  refuses("bench --via staged:nonsense", "'nonsense' is " + all, 2);
  refuses("bench --operation put", "'put' is none of write, read, send, notify, count, fetch_add", 2);
  refuses("ping 127.0.0.1:1 --via nonsense", all, 2);
  refuses("ping 127.0.0.1:1 --via ipc", "is a path of the transport cuda", 2);
  refuses("explain --via fdd", all, 2);
  refuses("bench load --via tcpp", "did you mean 'tcp'?", 2);
  const Ran behind = fairway("bench --operation write --size 8 --seconds 0 --via tcp 127.0.0.1:1");
  EXPECT_NE(behind.out.find("127.0.0.1:1"), std::string::npos) << "a list takes no word behind its own\n" << behind.out;
  EXPECT_EQ(behind.exit, 1) << behind.out;
}

TEST(Tool, AnAddressIsHostAndPortOrANameInADirectory) {
  for (const char* command : {"ping", "explain", "bench"}) {
    refuses(std::string(command) + " decode-3", "'decode-3' is no HOST:PORT", 2);
    refuses(std::string(command) + " 127.0.0.1:99999", "'127.0.0.1:99999' is no HOST:PORT", 2);
  }
  refuses("bench comapre shm", "", 2);
  refuses("bench comapre", "did you mean 'compare'?", 2);
}

// Rows come before the end, and Ctrl-C of a terminal, which all of its processes get, leaves what was measured.
TEST(Bench, AnInterruptLeavesWhatWasMeasured) {
  const auto interrupted = [](const std::string& arguments) {
    char file[] = "/tmp/fairway-interrupt-XXXXXX";
    EXPECT_GE(::mkstemp(file), 0);
    const std::string rows(file);
    // A group of its own, all of which is told; timeout's exit is the command's own.
    const Ran ran = fairway("completion bash > /dev/null; timeout -s INT --preserve-status 4 " FAIRWAY_TOOL
                            " bench --via shm --size 8,64,512 " +
                            arguments + " 2>&1 > " + rows + "; exit $?");
    std::stringstream text;
    text << std::ifstream(rows).rdbuf();
    std::remove(file);
    EXPECT_EQ(ran.exit, 130) << ran.out;
    EXPECT_EQ(count(ran.out, "interrupted after "), 1u) << ran.out;
    return text.str();
  };
  const std::string table = interrupted("--seconds 1");
  EXPECT_GE(count(table, "\nwrite "), 1u) << table;
  EXPECT_EQ(count(table, "One operation at a time."), 1u) << table;
  const std::string json = interrupted("--seconds 1 --json -");
  EXPECT_EQ(count(json, "\"complete\": false"), 1u) << json;
  EXPECT_GE(count(json, "\"operation\": \"write\""), 1u) << json;
  EXPECT_TRUE(json.ends_with("\n  ]\n}\n")) << json;
}

TEST(Bench, ProgressCountsAndSaysHowLongStill) {
  const Ran ran =
      fairway("bench --via shm --size 8,64 --operation write,read --seconds 0 --progress 2>&1 >/dev/null | cat");
  EXPECT_EQ(count(ran.out, "1 of 4: shm write 8 B\n"), 1u) << ran.out;
  EXPECT_EQ(count(ran.out, "4 of 4, 0 s left: shm read 64 B\n") + count(ran.out, "4 of 4, 1 s left: shm read 64 B\n"),
            1u)
      << ran.out;
  EXPECT_EQ(
      count(fairway("bench --via shm --size 8 --operation write --seconds 0 2>&1 >/dev/null | cat").out, "1 of 1: "),
      0u);
}

// Two processes that poll, and two that are busy, on one core: no row is told without a word.
TEST(Bench, BusyCoresAreToldOfEachRow) {
  const Ran ran = fairway(
      "completion bash > /dev/null; taskset -cp $(taskset -cp $$ | sed 's/.*[: ,-]//') $$ > /dev/null; for i in 1 2; "
      "do "
      "timeout 60 sh -c 'while :; do :; done' & burn=\"$burn $!\"; done; " FAIRWAY_TOOL
      " bench --via shm --size 8 --operation notify,count --seconds 0.2 2>&1; kill $burn");
  EXPECT_EQ(count(ran.out, "  cores busy\n"), 2u) << ran.out;
  EXPECT_EQ(count(ran.out, "the cores were busy with other work during 2 of 2 rows"), 1u) << ran.out;
}

TEST(BenchLoad, EveryQuestionHasAnAnswer) {
  const auto answers = [](const std::string& arguments, const std::string& path,
                          std::initializer_list<const char*> all) {
    const Ran ran = fairway("bench load --seconds 0.01 --json - " + arguments);
    ASSERT_EQ(ran.exit, 0) << ran.out;
    for (const char* what : all)
      EXPECT_GE(count(ran.out, std::string("\"what\": \"") + what + "\", \"path\": \"" + path + "\""), 1u)
          << what << " over " << path << ": " << ran.out;
    EXPECT_EQ(count(ran.out, "\"p50\": null,"), 0u) << ran.out;
  };
  answers("--via shm --only busy,submit,idle", "shm", {"busy", "submit", "idle"});
  answers("--via tcp --only life", "tcp", {"killed", "restarted", "frozen", "neighbour"});
}

TEST(Bench, WhatMakesNoSenseIsNamedAndHangsNowhere) {
  refuses("bench --size 3Q", "'3Q' is no size", 2);
  refuses("bench --size 0", "'0' is no size", 2);
  refuses("bench --size 10Gb", "'10Gb' is in bits: say 10GB for bytes, or 10G", 2);
  refuses("bench --size 8,4kb", "'4kb' is in bits: say 4kB for bytes, or 4k", 2);
  refuses("bench --size 1T", "'1T' is no size from 1 to 64G", 2);
  refuses("bench --size 32G --pages 1000", "64 GiB", 2);
  refuses("bench --json - --csv - --size 8", "--json and --csv both go to standard output", 2);
  refuses("bench --operation juggle", "juggle", 2);
  refuses("bench --local gpu:99 --size 8", "gpu:99", 1);
  refuses("bench --remote host:numa999 --size 8", "NUMA node 999", 1);
  refuses("bench --remote host:numa --size 8", "host:numa0", 2);
  refuses("bench --remote gup:0 --size 8", "did you mean 'gpu:0'?", 2);
  refuses("bench 127.0.0.1:1 --size 8", "Connection refused", 1);
  refuses("bench --listen 0.0.0.0:0", "key", 1);
  refuses("bench --json /nonexistent/x --size 8 --seconds 0 --via shm", "/nonexistent/x", 1);
  refuses("bench load --only submit --via fabric:rdma", "the provider rdma", 1);
  refuses("explain --from /proc/self/comm", "/proc/self/comm", 2);
  refuses("bench --size 8 --seconds 0 --via shm --from /nonexistent", "/nonexistent", 2);
  refuses("bench --from ''", "the name is empty", 2);
  refuses("explain 127.0.0.1", "HOST:PORT", 2);
  refuses("nccl", "needs a command", 2);
  refuses("bench load --only dancing", "dancing", 2);
  refuses("ping 127.0.0.1:1", "127.0.0.1:1", 1);
  refuses("explain --remote gpu:99", "gpu:99", 1);
}

// --from is a recorded machine everywhere; what it and its neighbours were called is told.
TEST(Bench, OneWordForAMachineAndOneForAMemory) {
  for (const char* command : {"bench", "explain", "bench compare shm"}) {
    const std::string before(command);
    refuses(before + " --from gpu:0",
            "--from is a recorded machine, and gpu:0 is none: the memory of this process is --local gpu:0", 2);
    refuses(before + " --to gpu:0", "--to: is called --remote now", 2);
    refuses(before + " --machine x.json", "--machine: is called --from now", 2);
  }
  refuses("bench load --from host", "--from: is called --local now", 2);
  refuses("bench --listen 127.0.0.1:0 --remote host", "name it with --local", 2);
  const std::string h20 = FAIRWAY_MACHINES "/h20.json";
  for (const std::string& from : {h20, "- < " + h20}) {
    const Ran ran = fairway("bench --via shm --size 8 --operation write --seconds 0 --sleep --csv - --from " + from);
    EXPECT_EQ(ran.exit, 0) << ran.out;
    EXPECT_EQ(count(ran.out, "shm,shared,shared,write,8,"), 1u) << ran.out;
  }
}

// It says how long it takes where that is long, so that nobody waits for an end that he cannot guess.
TEST(Bench, SaysAtItsStartHowLongItTakes) {
  const Ran ran = fairway("completion bash > /dev/null; timeout -s INT --preserve-status 2 " FAIRWAY_TOOL
                          " bench --sleep 2>&1; exit $?");
  EXPECT_TRUE(ran.out.starts_with("fairway bench: up to ")) << ran.out;
  EXPECT_EQ(count(ran.out, " s on idle cores; --via, --operation, --size and --seconds choose"), 1u) << ran.out;
  EXPECT_EQ(count(fairway("bench --via shm --size 8 --operation write --seconds 0 --sleep").out, "idle cores;"), 0u);
}

TEST(Explain, TellsTheWayAndTheOnesLeft) {
  Ran ran = fairway("explain");
  // On busy cores it may look before the peer's memory file has come.
  for (int tries = 0; tries < 4 && ran.out.find("waits for") != std::string::npos; ++tries) ran = fairway("explain");
  EXPECT_EQ(ran.exit, 0) << ran.out;
  EXPECT_NE(ran.out.find("mapped here"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("not used: tcp"), std::string::npos) << ran.out;
  ran = fairway("explain --remote host");
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
    understood += plain.out.compare(at, 12, "export NCCL_") == 0 || plain.out[at] == '#' ||
                  plain.out.compare(at, 24, "export FAIRWAY_JOB_KEY='") == 0;
  EXPECT_EQ(lines, understood) << plain.out;
  EXPECT_EQ(count(fairway("nccl env --everything").out, "export NCCL_P2P_DISABLE='1'\n"), 1u);
  EXPECT_EQ(count(plain.out, "export NCCL_PROTO='^LL128'\n"), 1u) << plain.out;
  ::setenv("NCCL_PROTO", "Simple", 1);
  EXPECT_EQ(count(fairway("nccl env").out, "export NCCL_PROTO"), 0u) << "the user's choice stays";
  ::unsetenv("NCCL_PROTO");
}

// tests/process/nccl/hosts_test.cc runs ranks with them.
TEST(Nccl, AKeyIsMadeWhereThereIsNone) {
  const std::string made = fairway("nccl env").out;
  EXPECT_EQ(count(made, "export FAIRWAY_JOB_KEY='"), 1u) << made;
  EXPECT_EQ(count(made, "#   mpirun -x FAIRWAY_JOB_KEY -x NCCL_NET_PLUGIN -x NCCL_NET -x NCCL_PROTO"), 1u) << made;
  const std::string here = fairway("nccl env --one-host").out;
  EXPECT_EQ(count(here, "export FAIRWAY_LISTEN='127.0.0.1'\n"), 1u) << here;
  EXPECT_EQ(count(here, "FAIRWAY_JOB_KEY"), 0u) << here;
  ::setenv("FAIRWAY_JOB_KEY", "mine", 1);
  EXPECT_EQ(count(fairway("nccl env").out, "export FAIRWAY_JOB_KEY"), 0u) << "the user's choice stays";
  refuses("nccl env --key-file job.key", "FAIRWAY_JOB_KEY is set, and --key-file is given: unset FAIRWAY_JOB_KEY", 1);
  ::unsetenv("FAIRWAY_JOB_KEY");
  ::setenv("SLURM_STEP_ID", "0", 1);
  EXPECT_EQ(count(fairway("nccl env").out, "export FAIRWAY_JOB_KEY"), 0u) << "a rank's would be its alone";
  ::unsetenv("SLURM_STEP_ID");
  char folder[] = "/tmp/fairway-key-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string once = std::string("eval \"$('" FAIRWAY_TOOL "' nccl env --key-file key)\"");
  const Ran twice = fairway("completion bash > /dev/null; cd " + std::string(folder) + " && " + once + " && " + once +
                            " && echo as $FAIRWAY_JOB_KEY_FILE");
  EXPECT_EQ(twice.out, "as " + std::string(folder) + "/key\n")
      << "the same file, in the same shell, as a relative name";
  std::filesystem::remove_all(folder);
  refuses("nccl env --key-file /nonexistent/job.key", "the key file /nonexistent/job.key", 1);
  refuses("nccl env --key-file /tmp", "the key file /tmp is not a file", 1);
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
