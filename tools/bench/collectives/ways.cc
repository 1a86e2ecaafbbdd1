#include "ways.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "fairway/collectives.h"

#include "arguments.h"
#include "command.h"
#include "other_process.h"
#include "sys/cuda.h"

namespace fairway::tool {
namespace {

constexpr std::chrono::minutes kAnswer{10};  // of a rank; its operations end after kTimeout
constexpr std::chrono::minutes kTimeout{1};
constexpr int kMostRanks = 8, kMostOnHost = 64;
constexpr std::uint64_t kMostOfHost = std::uint64_t{64} << 20;
constexpr std::string_view kEnd = ".";  // behind a rank's lines

struct WaysOptions {
  int ranks = 0, rank = -1;
  std::uint64_t most = std::uint64_t{64} << 20;
  std::string nccl, table;
  std::string memory = "gpu";
  bool compare = false, unguarded = false;
  [[nodiscard]] bool on_host() const { return memory == "host"; }
};

std::vector<std::string> words_of(const WaysOptions& options, int rank) {
  std::vector<std::string> words{"bench",    "ways",
                                 "--rank",   fmt::format("{}", rank),
                                 "--ranks",  fmt::format("{}", options.ranks),
                                 "--most",   fmt::format("{}", options.most),
                                 "--memory", options.memory};
  const auto add = [&](const char* name, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {name, value});
  };
  add("--nccl", options.nccl);
  add("--table", options.table);
  if (options.compare) words.emplace_back("--compare");
  if (options.unguarded) words.emplace_back("--unguarded");
  return words;
}

void say(const std::string& lines) {
  std::fputs((lines + "\n").c_str(), stdout);
  (void)std::fflush(stdout);
}

Result<std::string> measure(const WaysOptions& options) {
  EngineOptions wanted;
  wanted.name = fmt::format("rank-{}", options.rank);
  if (options.on_host()) wanted.progress = Progress::caller;  // as Communicator::join() has it
  auto engine = Engine::open(wanted);
  if (!engine) return engine.status();
  say(engine->address());
  std::string line, address;
  std::getline(std::cin, line);
  std::vector<std::string> addresses;
  for (std::istringstream words(line); words >> address;) addresses.push_back(address);
  auto group = Communicator::create(*engine, options.rank, addresses, {.timeout = kTimeout});
  if (!group) return group.status();
  if (options.on_host()) return group->measure(options.most, options.compare);
  auto driver = sys::CudaDriver::open();
  if (!driver) return driver.status();
  GpuOptions by;
  by.guarded = !options.unguarded;
  by.nccl_library = options.nccl;
  by.table = options.table;
  if (Status status = group->use_gpu(options.rank % (*driver)->devices(), by); !status) return status;
  return group->measure_gpu(options.most, options.compare);
}

Exit be_rank(const WaysOptions& options) {
  const auto text = measure(options);
  if (!text) {
    say(std::string(kCannot) + text.status().to_string());
    return Exit::failed;
  }
  if (options.rank == 0) say(*text);
  say(std::string(kEnd));
  wait_for_end_of_input();
  return Exit::done;
}

Exit run_ways(Tool& tool, WaysOptions options) {
  if (options.rank >= 0) return be_rank(options);
  if (options.on_host()) {
    if (!options.nccl.empty() || !options.table.empty() || options.unguarded)
      return tool.misused("--nccl, --table and --unguarded are of GPU memory");
    if (options.ranks == 0)
      options.ranks = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 2, kMostRanks);
    options.most = std::min(options.most, kMostOfHost);
  } else {
    if (options.ranks > kMostRanks)
      return tool.misused(fmt::format("--ranks: on GPUs there are {} at most", kMostRanks));
    const auto driver = sys::CudaDriver::open();
    if (!driver) return tool.fail(driver.status());
    if (options.ranks == 0) options.ranks = std::min((*driver)->devices(), kMostRanks);
    if (options.ranks < 2) return tool.fail("one GPU: nothing goes between ranks; name --ranks to put several on it");
  }
  std::vector<std::unique_ptr<OtherProcess>> ranks;
  std::string addresses;
  for (int rank = 0; rank < options.ranks; ++rank) {
    ranks.push_back(std::make_unique<OtherProcess>());
    const auto address = ranks.back()->start(words_of(options, rank));
    if (!address) return tool.fail(address.status().with_context(fmt::format("rank {}", rank)));
    addresses += (addresses.empty() ? "" : " ") + *address;
  }
  for (const auto& rank : ranks)
    if (Status status = rank->say(addresses + "\n"); !status) return tool.fail(status);
  for (int rank = 0; rank < options.ranks; ++rank)
    for (;;) {
      const auto line = ranks[static_cast<std::size_t>(rank)]->hear(kAnswer);
      if (!line) return tool.fail(line.status().with_context(fmt::format("rank {}", rank)));
      if (line->starts_with(kCannot)) return tool.fail(line->substr(kCannot.size()));
      if (*line == kEnd) break;
      if (const Exit exit = tool.print(*line + "\n"); exit != Exit::done) return exit;
    }
  return Exit::done;
}

}  // namespace

void add_bench_ways(Tool& tool, CLI::App& bench) {
  CLI::App& command = tool.add_below(
      bench, "ways",
      "Measure who is the fastest in collectives, and keep it for this machine: on GPU memory Fairway or NCCL, on host "
      "memory each algorithm");
  const auto options = std::make_shared<WaysOptions>();
  command.add_option("--memory", options->memory, "gpu or host")->check(one_of({"gpu", "host"}))->capture_default_str();
  command
      .add_option(
          "--ranks", options->ranks,
          "Number of ranks, a process each; on GPUs one each (default: all GPUs, or as many as cores, at most 8)")
      ->check(CLI::Range(2, kMostOnHost));
  add_size(command, "--most", options->most, "Longest operation, in bytes of all blocks (default: 64M)",
           {512, std::uint64_t{256} << 20});
  command.add_option("--nccl", options->nccl, "NCCL's library (default: FAIRWAY_NCCL_LIBRARY)")->type_name("FILE");
  command.add_option("--table", options->table, "Where to keep the table (default: in this user's cache)")
      ->type_name("FILE");
  command.add_flag("--compare", options->compare, "Then measure what is chosen by the table, beside each way");
  command.add_flag("--unguarded", options->unguarded, "With --compare: choose NCCL without the round before it");
  command.add_option("--rank", options->rank)->group("");
  command.footer("Example:\n  fairway bench ways --memory host --ranks 4 --most 8M --compare");
  tool.on_run(command, [&tool, options] { return run_ways(tool, *options); });
}

}  // namespace fairway::tool
