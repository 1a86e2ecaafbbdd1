// fairway bench collectives: groups of ranks, in turns with Gloo and MPI, or on GPUs with NCCL.
#include "collectives.h"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "arguments.h"
#include "bench/cores.h"
#include "bench/options.h"
#include "command.h"
#include "gpu.h"
#include "interrupt.h"
#include "nccl.h"
#include "options.h"
#include "recorded.h"

namespace fairway::tool {
namespace {

using namespace bench;

constexpr std::uint64_t kMostRounds = 20000;
constexpr std::uint64_t kTrial = 2, kGpuTrial = 5;  // rounds, to see how long they take
constexpr std::string_view kNccl = "nccl";

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

// One beside ours, and what it took for each of the works.
struct Beside {
  const CollectiveRival* rival;
  std::vector<std::vector<double>> times;
  std::vector<std::uint64_t> wrong;
};

std::string version_of_package(const CollectiveRival& rival) {
  const std::string first = rival.package.substr(0, rival.package.find(' '));
  return version_of(Rival{rival.tool, first, "", "", Operation::write});
}

// The rows of one run, and where they go.
class CollectiveRun {
 public:
  CollectiveRun(Tool& tool, const CollectiveOptions& options, const CollectivePlan& plan)
      : tool_(tool), options_(options), plan_(plan), meter_(tool, options.progress) {}

  // What must be there before any rank is.
  Status prepare() {
    if (options_.namespaces)
      if (const std::string why = RankNetwork::why_not(); !why.empty()) return {ErrorCode::unsupported, why};
    if (!options_.on_gpus()) return {};
    if (Status status = have_gpus(plan_.ranks); !status) return status;
    end_.gpu = options_.gpu();
    if (!options_.beside_nccl()) return {};
    const auto version = nccl_version(options_.nccl_library);
    if (version) end_.nccl = *version;
    return version.status();
  }

  Exit run() {
    const Interrupt interrupt;
    if (options_.beside_nccl())
      end_.rivals = {{std::string(kNccl), "", ""}};
    else if (!options_.beside.empty())
      end_.rivals = collective_rivals(options_.beside);
    if (!options_.on_gpus()) end_.rates = measure_rates();
    const Status status = groups();
    meter_.clear();
    if (status || !rows_.empty() || Interrupt::came()) {
      const Exit told = tell(tool_,
                             {{options_.json, collective_json(rows_, status.is_ok())},
                              {options_.csv, collective_csv(rows_)},
                              {options_.svg, collective_svg(rows_)}},
                             rows_.empty() ? std::string() : text_of(end_));
      if (status) return wrong_ == 0 ? told : tool_.fail(fmt::format("{} elements are wrong", wrong_));
    }
    if (!Interrupt::came()) return tool_.fail(status);
    tool_.remark(fmt::format("interrupted after {} rows", rows_.size()));
    return Exit::interrupted;
  }

 private:
  Status groups() {
    std::size_t rows = 0;
    const std::vector<std::string> paths = options_.on_gpus() ? std::vector<std::string>{"gpu"} : options_.via;
    for (const auto& works : plan_.works) rows += works.size();
    meter_.expect(rows * plan_.ranks.size() * paths.size());
    for (const std::string& path : paths)
      for (const int ranks : plan_.ranks) {
        if (Status status = Interrupt::status(); !status) return status;
        if (Status status = look_at_links(ranks); !status) return status;
        auto group = RankGroup::start(ranks, {path, network_.get(), end_.gpu, options_.seconds});
        if (!group) return group.status();
        end_.joined.push_back({ranks, path, (*group)->join_ms()});
        for (std::vector<CollectiveWork> works : plan_.works) {
          for (CollectiveWork& work : works) work.ranks = ranks;
          if (Status status = one_kind(**group, works, path); !status) return status;
        }
      }
    return {};
  }

  // The links of the next group, from which comes what it can take at the least.
  Status look_at_links(int ranks) {
    if (options_.on_gpus()) {
      const auto rate = gpu_rate(ranks, options_.from);
      if (rate) end_.gpus.emplace_back(ranks, *rate);
      return rate.status();
    }
    if (!options_.namespaces) return {};
    auto network = RankNetwork::make(ranks, options_.per_host);
    if (!network) return network.status().with_context("--namespaces");
    network_ = std::move(*network);
    const auto rate = network_->socket_rate();
    if (rate) end_.sockets.emplace_back(ranks, *rate);
    return rate.status();
  }

  [[nodiscard]] bool does(const CollectiveRival& rival, const CollectiveWork& work, const std::string& path) {
    if (rival.tool != kNccl)
      return rival.why_not.empty() && rival_does(rival, work) && (path == "shm" || rival.tool == "gloo");
    if (nccl_does(work)) return true;
    meter_.clear();
    tool_.remark(fmt::format("NCCL has no {} like this, so no row", work.operation()));
    return false;
  }

  // Every size by ourselves, then every size by each rival, and again: so that all have the same machine. Without a
  // rival a row is shown as soon as it is there.
  Status one_kind(RankGroup& group, const std::vector<CollectiveWork>& works, const std::string& path) {
    std::vector<Beside> beside;
    for (const CollectiveRival& rival : end_.rivals)
      if (does(rival, works.front(), path))
        beside.push_back(
            {&rival, std::vector<std::vector<double>>(works.size()), std::vector<std::uint64_t>(works.size())});
    std::vector<CollectiveRow> ours(works.size());
    std::vector<std::vector<double>> times(works.size());
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
      for (Beside& each : beside)
        if (Status status = measure(group, works, ours, each); !status) return status;
    }
    for (std::size_t i = 0; i < works.size(); ++i) {
      add(ours[i]);
      for (const Beside& each : beside)
        if (!each.times[i].empty()) add(row_of(each, i, ours[i], times[i]));
    }
    return {};
  }

  // A turn of a rival: in ranks of its own, which may fail, or in ours.
  Status measure(RankGroup& group, const std::vector<CollectiveWork>& works, const std::vector<CollectiveRow>& ours,
                 Beside& beside) {
    if (beside.rival->tool == kNccl) {
      for (std::size_t i = 0; i < works.size(); ++i) {
        if (Status status = Interrupt::status(); !status) return status;
        const auto timed = group.run({works[i], ours[i].rounds, true});
        if (!timed) return timed.status().with_context("NCCL");
        beside.times[i].push_back(timed->us);
        beside.wrong[i] += timed->wrong;
        wrong_ += timed->wrong;
      }
      return {};
    }
    if (Status status = Interrupt::status(); !status) return status;
    const auto told = run_collective_rival(*beside.rival, works, options_.seconds, network_.get());
    if (!told) {
      meter_.clear();
      tool_.remark(told.status().message());
      return {};
    }
    for (std::size_t i = 0; i < works.size(); ++i) beside.times[i].push_back((*told)[i]);
    return {};
  }

  [[nodiscard]] CollectiveRow row_of(const Beside& beside, std::size_t i, const CollectiveRow& ours,
                                     const std::vector<double>& times) const {
    const bool is_nccl = beside.rival->tool == kNccl;
    CollectiveRow row;
    row.work = ours.work;
    row.tool = beside.rival->tool;
    row.version = is_nccl ? end_.nccl : version_of_package(*beside.rival);
    row.path = row.tool == "gloo" ? "tcp" : ours.path;
    row.rounds = is_nccl ? ours.rounds : 0;
    row.gpu = ours.gpu;
    row.graph = ours.graph;
    row.namespaces = ours.namespaces;
    row.per_host = ours.per_host;
    row.us = median(beside.times[i]);
    row.wrong = beside.wrong[i];
    row.ratio = ratio_of(beside.times[i], times);
    return row;
  }

  // One turn: a few rounds to see how long they take, then as many as fill the time.
  Status measure(RankGroup& group, const CollectiveWork& work, const std::string& path, CollectiveRow& row,
                 std::vector<double>& times) {
    if (Status status = Interrupt::status(); !status) return status;
    std::uint64_t rounds = row.rounds;
    if (rounds == 0) {
      const auto first = group.run({work, options_.on_gpus() ? kGpuTrial : kTrial});
      if (!first) return first.status();
      rounds = static_cast<std::uint64_t>(
          std::clamp(options_.seconds * 1e6 / std::max(first->us, 0.1), 3.0, static_cast<double>(kMostRounds)));
      if (options_.graph) rounds = rounds_of_graphs(work, rounds);
    }
    const CoreWatch watch;
    const auto timed = group.run({work, rounds});
    if (!timed) return timed.status();
    times.push_back(timed->us);
    row.work = work;
    row.version = std::string(version());
    row.path = path;
    row.rounds = rounds;
    row.join_ms = group.join_ms();
    row.algorithm = timed->algorithm + (work.local && work.has_root() ? " local" : "");
    row.us = median(times);
    row.gpu = options_.on_gpus();
    row.graph = options_.graph;
    row.namespaces = options_.namespaces;
    row.per_host = options_.per_host;
    row.bound_us = least_us(work, path);
    row.wrong += timed->wrong;
    wrong_ += timed->wrong;
    row.busy = busy_text(watch.use(), false);
    return {};
  }

  [[nodiscard]] double least_us(const CollectiveWork& work, const std::string& path) const {
    if (options_.on_gpus()) return gpu_bound_us(work, end_.gpus.back().second);
    const int hosts = (work.ranks + options_.per_host - 1) / options_.per_host;
    return options_.namespaces ? network_bound_us(work, hosts, end_.sockets.back().second, end_.rates.cores)
                               : bound_us(work, path, end_.rates);
  }

  void add(const CollectiveRow& row) {
    rows_.push_back(row);
    meter_.clear();
    if (options_.json != "-" && options_.csv != "-" && options_.svg != "-")
      (void)tool_.print((rows_.size() == 1 ? collective_head() : std::string()) + collective_line(row));
  }

  Tool& tool_;
  const CollectiveOptions& options_;
  const CollectivePlan& plan_;
  Meter meter_;
  std::unique_ptr<RankNetwork> network_;  // that of the group, if there is one
  CollectiveEnd end_;
  std::vector<CollectiveRow> rows_;
  std::uint64_t wrong_ = 0;
};

Exit run_collectives(Tool& tool, CollectiveOptions& options) {
  if (options.rank >= 0) {
    be_rank({options.rank, std::atoi(options.ranks.front().c_str()), options.via, options.listen, options.gpu()});
    return Exit::done;
  }
  if (options.via.empty() && !options.on_gpus()) options.via = {options.namespaces ? "tcp" : "shm"};
  const std::pair<const char*, std::string> outputs[] = {
      {"--json", options.json}, {"--csv", options.csv}, {"--svg", options.svg}};
  if (Status status = one_output_each(outputs); !status) return tool.misused(status.message());
  for (const auto& [flag, file] : outputs)
    if (Status status = can_write(file); !status) return tool.fail(status);
  const auto plan = plan_of(options);
  if (!plan) return tool.misused(plan.status().message());
  auto snapshot = snapshot_of(options.from);
  if (!snapshot) return tool.unreadable(snapshot.status());
  options.from = std::move(*snapshot);
  CollectiveRun run(tool, options, *plan);
  if (Status status = run.prepare(); !status) return tool.fail(status.message());
  return run.run();
}

}  // namespace

void add_bench_collectives(Tool& tool, CLI::App& bench) {
  CLI::App& command =
      tool.add_below(bench, "collectives", "Measure collectives between processes of this machine, as nccl-tests does");
  const auto options = std::make_shared<CollectiveOptions>();
  add_collective_flags(command, *options);
  command.footer(
      "Examples:\n"
      "  fairway bench collectives --ranks 4 --size 8,64K,8M\n"
      "  fairway bench collectives --operation all_gather --type u8 --size 7000 --beside openmpi");
  tool.on_run(command, [&tool, options] { return run_collectives(tool, *options); });
}

}  // namespace fairway::tool
