// fairway bench collectives: groups of ranks, in turns with Gloo and MPI where they are installed.
#include "bench_collectives.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "bench_cores.h"
#include "bench_options.h"
#include "command.h"
#include "help.h"
#include "interrupt.h"
#include "words.h"

namespace fairway::tool {
namespace {

using namespace bench;

struct CollectiveOptions {
  std::vector<std::string> ranks{"2", "4"};
  std::vector<std::string> operations{"all_reduce"};
  std::vector<std::string> via;
  bool namespaces = false, local = false;
  int per_host = 1;
  std::vector<std::string> beside;
  std::vector<std::uint64_t> sizes;
  std::string type = "f32", reduction = "sum", algorithm = "automatic";
  double seconds = 0.15;
  unsigned turns = 3;
  bool progress = false;
  std::string json, csv, svg, listen;
  int rank = -1;
};

constexpr std::uint64_t kMostRounds = 20000;
constexpr int kMostRanks = 64;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

std::string version_of_package(const CollectiveRival& rival) {
  const std::string first = rival.package.substr(0, rival.package.find(' '));
  return version_of(Rival{rival.tool, first, "", "", Operation::write});
}

// The rows of one run, and where they go.
class CollectiveRun {
 public:
  CollectiveRun(Tool& tool, const CollectiveOptions& options)
      : tool_(tool), options_(options), meter_(tool, options.progress) {}

  Exit run() {
    const Interrupt interrupt;
    if (!options_.beside.empty()) rivals_ = collective_rivals(options_.beside);
    rates_ = measure_rates();
    const Status status = groups();
    meter_.clear();
    if (status || !rows_.empty() || Interrupt::came()) {
      const Exit told = tell(tool_,
                             {{options_.json, collective_json(rows_, status.is_ok())},
                              {options_.csv, collective_csv(rows_)},
                              {options_.svg, collective_svg(rows_)}},
                             rows_.empty() ? std::string() : collective_end(rivals_, rates_, sockets_, joined_));
      if (status) return wrong_ == 0 ? told : tool_.fail(fmt::format("{} elements are wrong", wrong_));
    }
    if (!Interrupt::came()) return tool_.fail(status);
    tool_.remark(fmt::format("interrupted after {} rows", rows_.size()));
    return Exit::interrupted;
  }

  Status prepare() {
    const auto type = type_of(options_.type);
    const auto reduction = reduction_of(options_.reduction);
    const auto algorithm = algorithm_of(options_.algorithm);
    if (!type) return type.status();
    if (!reduction) return reduction.status();
    if (!algorithm) return algorithm.status();
    if (options_.namespaces) {
      if (options_.via != std::vector<std::string>{"tcp"})
        return {ErrorCode::invalid_argument,
                "--namespaces: ranks reach each other by tcp there, so --via takes only that"};
      for (const std::string& tool : options_.beside)
        if (tool != "gloo")
          return {ErrorCode::invalid_argument, fmt::format("--namespaces: only gloo runs beside it, not {}", tool)};
    }
    if (options_.per_host > 1 && !options_.namespaces)
      return {ErrorCode::invalid_argument, "--per-host: without --namespaces all ranks are on this host"};
    for (const std::string& text : options_.ranks) {
      const int ranks = std::atoi(text.c_str());
      if (ranks < 1 || ranks > kMostRanks || fmt::format("{}", ranks) != text)
        return {ErrorCode::invalid_argument, fmt::format("--ranks: '{}' is no number of 1 to {}", text, kMostRanks)};
      ranks_.push_back(ranks);
    }
    for (const std::string& name : options_.operations) {
      CollectiveWork work{.type = *type, .reduction = *reduction, .algorithm = *algorithm, .ranks = 0};
      if (Status status = set_operation(work, name); !status) return status;
      work.local = options_.local;
      if (work.messages && *algorithm != Algorithm::automatic)
        return {ErrorCode::invalid_argument, "--algorithm: send_recv has none"};
      std::vector<CollectiveWork> works;
      for (const std::uint64_t size : name == "barrier" ? std::vector<std::uint64_t>{0} : sizes()) {
        work.bytes = size;
        works.push_back(work);
      }
      works_.push_back(std::move(works));
    }
    return {};
  }

 private:
  [[nodiscard]] std::vector<std::uint64_t> sizes() const {
    if (!options_.sizes.empty()) return options_.sizes;
    return {8, 64, 512, 4 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20, 64 << 20};
  }

  Status groups() {
    std::size_t rows = 0;
    for (const auto& works : works_) rows += works.size();
    meter_.expect(rows * ranks_.size() * options_.via.size());
    for (const std::string& path : options_.via)
      for (const int ranks : ranks_) {
        if (options_.namespaces) {
          auto network = RankNetwork::make(ranks, options_.per_host);
          if (!network) return network.status().with_context("--namespaces");
          network_ = std::move(*network);
          const auto rate = network_->socket_rate();
          if (!rate) return rate.status();
          sockets_.emplace_back(ranks, *rate);
        }
        auto group = RankGroup::start(ranks, path, network_.get());
        if (!group) return group.status();
        joined_.push_back({ranks, path, (*group)->join_ms()});
        for (std::vector<CollectiveWork> works : works_) {
          for (CollectiveWork& work : works) work.ranks = ranks;
          if (Status status = one_kind(**group, works, path); !status) return status;
        }
      }
    return {};
  }

  // Every size by ourselves, then every size by each rival, and again: so that all have the same machine. Without a
  // rival a row is shown as soon as it is there.
  Status one_kind(RankGroup& group, const std::vector<CollectiveWork>& works, const std::string& path) {
    std::vector<const CollectiveRival*> beside;
    for (const CollectiveRival& rival : rivals_)
      if (rival.why_not.empty() && rival_does(rival, works.front()) && (path == "shm" || rival.tool == "gloo"))
        beside.push_back(&rival);
    std::vector<CollectiveRow> ours(works.size());
    std::vector<std::vector<double>> times(works.size());
    std::vector<std::vector<std::vector<double>>> theirs(beside.size(), times);
    const unsigned turns = std::max(1U, options_.turns);
    for (unsigned turn = 0; turn < turns; ++turn) {
      for (std::size_t i = 0; i < works.size(); ++i) {
        if (turn == 0)
          meter_(fmt::format("{} of {}, {} ranks", works[i].operation(), size_text(works[i].bytes), works[i].ranks));
        do {
          if (Status status = measure(group, works[i], path, ours[i], times[i]); !status) return status;
        } while (beside.empty() && times[i].size() < turns);
        if (beside.empty()) add(ours[i]);
      }
      if (beside.empty()) return {};
      for (std::size_t r = 0; r < beside.size(); ++r) {
        if (Status status = Interrupt::status(); !status) return status;
        const auto told = run_collective_rival(*beside[r], works, options_.seconds, network_.get());
        if (!told) {
          meter_.clear();
          tool_.remark(told.status().message());
          continue;
        }
        for (std::size_t i = 0; i < works.size(); ++i) theirs[r][i].push_back((*told)[i]);
      }
    }
    for (std::size_t i = 0; i < works.size(); ++i) {
      add(ours[i]);
      for (std::size_t r = 0; r < beside.size(); ++r) {
        if (theirs[r][i].empty()) continue;
        CollectiveRow row;
        row.work = works[i];
        row.tool = beside[r]->tool;
        row.version = version_of_package(*beside[r]);
        row.path = row.tool == "gloo" ? "tcp" : path;
        row.namespaces = options_.namespaces;
        row.per_host = options_.per_host;
        row.us = median(theirs[r][i]);
        row.ratio = ratio_of(theirs[r][i], times[i]);
        add(row);
      }
    }
    return {};
  }

  // One turn: a few rounds to see how long they take, then as many as fill the time.
  Status measure(RankGroup& group, const CollectiveWork& work, const std::string& path, CollectiveRow& row,
                 std::vector<double>& times) {
    if (Status status = Interrupt::status(); !status) return status;
    std::uint64_t rounds = row.rounds;
    if (rounds == 0) {
      const auto first = group.run(work, 2);
      if (!first) return first.status();
      rounds = static_cast<std::uint64_t>(
          std::clamp(options_.seconds * 1e6 / std::max(first->us, 0.1), 3.0, static_cast<double>(kMostRounds)));
    }
    const CoreWatch watch;
    const auto timed = group.run(work, rounds);
    if (!timed) return timed.status();
    times.push_back(timed->us);
    row.work = work;
    row.version = std::string(version());
    row.path = path;
    row.rounds = rounds;
    row.join_ms = group.join_ms();
    row.algorithm = timed->algorithm + (work.local && work.has_root() ? " local" : "");
    row.us = median(times);
    row.namespaces = options_.namespaces;
    row.per_host = options_.per_host;
    const int hosts = (work.ranks + options_.per_host - 1) / options_.per_host;
    row.bound_us = options_.namespaces ? network_bound_us(work, hosts, sockets_.back().second, rates_.cores)
                                       : bound_us(work, path, rates_);
    row.wrong += timed->wrong;
    wrong_ += timed->wrong;
    row.busy = busy_text(watch.use(), false);
    return {};
  }

  void add(const CollectiveRow& row) {
    rows_.push_back(row);
    meter_.clear();
    if (options_.json != "-" && options_.csv != "-" && options_.svg != "-")
      (void)tool_.print((rows_.size() == 1 ? collective_head() : std::string()) + collective_line(row));
  }

  Tool& tool_;
  const CollectiveOptions& options_;
  Meter meter_;
  std::vector<int> ranks_;
  std::vector<std::vector<CollectiveWork>> works_;  // of each operation
  std::vector<CollectiveRival> rivals_;
  MachineRates rates_;
  std::unique_ptr<RankNetwork> network_;         // that of the group, if there is one
  std::vector<std::pair<int, double>> sockets_;  // bytes per second between two namespaces, by number of ranks
  std::vector<Joined> joined_;                   // each group
  std::vector<CollectiveRow> rows_;
  std::uint64_t wrong_ = 0;
};

Exit run_collectives(Tool& tool, CollectiveOptions& options) {
  if (options.via.empty()) options.via = {options.namespaces ? "tcp" : "shm"};
  if (options.rank >= 0) {
    const Status status = be_rank(options.rank, std::atoi(options.ranks.front().c_str()), options.via, options.listen);
    return status ? Exit::done : tool.print(fmt::format("{}{}\n", kCannot, status.message()));
  }
  const std::pair<const char*, std::string> outputs[] = {
      {"--json", options.json}, {"--csv", options.csv}, {"--svg", options.svg}};
  if (Status status = one_output_each(outputs); !status) return tool.misused(status.message());
  for (const auto& [flag, file] : outputs)
    if (Status status = can_write(file); !status) return tool.fail(status);
  CollectiveRun run(tool, options);
  if (Status status = run.prepare(); !status) return tool.misused(status.message());
  if (options.namespaces)
    if (const std::string why = RankNetwork::why_not(); !why.empty()) return tool.fail(why);
  return run.run();
}

}  // namespace

void add_bench_collectives(Tool& tool, CLI::App& bench) {
  CLI::App& command =
      tool.add_below(bench, "collectives", "Measure collectives between processes of this machine, as nccl-tests does");
  const auto options = std::make_shared<CollectiveOptions>();
  add_list(command, "--ranks", options->ranks, "Numbers of ranks: 2,4,8 (default: 2,4)");
  add_names(command, "--operation", options->operations, "Operations (default: all_reduce)", collective_operations());
  add_sizes(command, "--size", options->sizes, "Bytes of the whole buffer: 8,4K,1MB (default: a range)",
            {1, std::uint64_t{1} << 30});
  command.add_option("--type", options->type, "Type of the elements")
      ->check(one_of(collective_types()))
      ->capture_default_str();
  command.add_option("--reduction", options->reduction, "How they are combined")
      ->check(one_of(collective_reductions()))
      ->capture_default_str();
  command.add_option("--algorithm", options->algorithm, "Force one: direct, ring, bruck (default: as the size asks)")
      ->check(one_of({"automatic", "one_shot", "direct", "recursive_doubling", "ring", "binomial", "chain", "bruck",
                      "dissemination", "hierarchical"}));
  command.add_flag("--local-completion", options->local,
                   "What has a root ends at each rank apart from the others, as MPI's does");
  add_via(command, options->via, "Transports, one after the other (default: shm; tcp with --namespaces)",
          Via::transports);
  command.add_flag(
      "--namespaces", options->namespaces,
      "Give each rank a network namespace, joined by veth pairs and a bridge, as a host of its own; needs root");
  command
      .add_option("--per-host", options->per_host,
                  "With --namespaces: ranks in each, which reach each other by shm; consecutive ones")
      ->check(CLI::Range(1, kMostRanks))
      ->capture_default_str();
  add_names(command, "--beside", options->beside, "Run these in turns with it, where installed: gloo,mpi,openmpi,mpich",
            {"gloo", "mpi", "openmpi", "mpich"});
  command.add_option("--turns", options->turns, "How often each row is measured; more give a narrower interval")
      ->check(CLI::Range(1U, 1000U))
      ->capture_default_str();
  command.add_option("--seconds", options->seconds, "Least time to measure each row in each turn")
      ->check(number_in(0.0, 3600.0))
      ->capture_default_str();
  command.add_option("--json", options->json, "Write the rows as JSON; - is standard output")
      ->type_name("FILE")
      ->check(no_empty_name());
  command.add_option("--csv", options->csv, "Write the rows as CSV; - is standard output")
      ->type_name("FILE")
      ->check(no_empty_name());
  command.add_option("--svg", options->svg, "Draw the rows; - is standard output")
      ->type_name("FILE")
      ->check(no_empty_name());
  command.add_flag("--progress", options->progress, "Show progress on stderr (always on a terminal)");
  command.add_option("--rank", options->rank)->group("");
  command.add_option("--listen", options->listen)->group("");
  tool.on_run(command, [&tool, options] { return run_collectives(tool, *options); });
}

}  // namespace fairway::tool
