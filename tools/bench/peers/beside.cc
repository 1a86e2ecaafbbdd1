// fairway bench peers: other tools and ours, in turn.
#include <algorithm>
#include <memory>
#include <set>

#include <fmt/format.h>

#include "arguments.h"
#include "bench/options.h"
#include "bench/paths/measure.h"
#include "command.h"
#include "interrupt.h"
#include "other_program.h"
#include "peers.h"
#include "rdma_flags.h"

namespace fairway::tool::bench {
namespace {

// The tools, and the paths on which they are compared.
const std::vector<std::string> kTools{"ucx_perftest", "fi_pingpong", "iperf3",      "ib_write_lat",  "ib_write_bw",
                                      "ib_read_lat",  "ib_read_bw",  "ib_send_lat", "ib_atomic_lat", "ib_atomic_bw"};
const std::vector<std::string> kPaths{"shm", "tcp", "verbs", "fabric:tcp", "fabric:shm"};

// Our part of a comparison, without output.
Result<std::vector<Row>> measure_ours(const Plan& plan, const Case& one) {
  Meter silent;
  std::vector<Row> rows;
  const Status status = measure(silent, "", plan, {one}, [&rows](Row& row) {
    rows.push_back(row);
    return Status();
  });
  return status ? Result<std::vector<Row>>(std::move(rows)) : status;
}

// The rows of one run, and where they go.
class PeersRun {
 public:
  PeersRun(Tool& tool, const BenchOptions& options, const Plan& plan)
      : tool_(tool), options_(options), plan_(plan), meter_(tool, options.progress) {}

  Exit run() {
    const Interrupt interrupt;
    Status status = with_tools();
    if (status) status = with_bare_libfabric();
    meter_.clear();
    std::vector<Fields> all;
    for (const PeerRow& row : rows_) all.push_back(fields(row));
    const Exit told = tell(tool_,
                           {{options_.json, json_of("fairway-bench-peers", "bench peers", all, status.is_ok())},
                            {options_.csv, csv_of(all)}},
                           environments() + peer_end({missing_.begin(), missing_.end()}));
    if (status) return told;
    if (!Interrupt::came()) return tool_.fail(status);
    tool_.remark(fmt::format("interrupted after {} rows", rows_.size()));
    return Exit::interrupted;
  }

 private:
  static bool wanted(const std::vector<std::string>& named, const std::string& name) {
    return named.empty() || std::ranges::find(named, name) != named.end();
  }

  // With which of its variables a tool ran, where there are any.
  [[nodiscard]] std::string environments() const {
    std::string text;
    for (const std::string& each : environments_)
      if (!each.empty()) text += fmt::format("environment: {}\n", each);
    return text;
  }

  void add(PeerRow row) {
    rows_.push_back(std::move(row));
    meter_.clear();
    if (options_.json != "-" && options_.csv != "-")
      tool_.print((rows_.size() == 1 ? peer_head() : std::string()) + peer_row(rows_.back()));
  }

  // The installed tools, in turn with ours.
  Status with_tools() {
    std::vector<Rival> chosen;
    for (const Rival& rival : rivals()) {
      if (!wanted(options_.via, rival.path) || !wanted(options_.tools, rival.tool)) continue;
      if (on_path(rival.tool))
        chosen.push_back(rival);
      else
        missing_.insert(fmt::format("{} (Debian's {})", rival.tool, rival.package));
    }
    meter_.expect(chosen.size() * plan_.sizes.size());
    for (const Rival& rival : chosen) {
      bool tells = true;
      for (const std::uint64_t size : plan_.sizes) {
        meter_(fmt::format("{} {} {}", rival.tool, rival.what, size_text(size)));
        if (!tells || !rival.does(size)) continue;
        const auto told = in_turns(rival, size);
        if (!told) return told.status();
        tells = *told;
      }
    }
    return {};
  }

  // Medians of the turns. False, with a remark: the tool printed no figure.
  Result<bool> in_turns(const Rival& rival, std::uint64_t size) {
    Plan mine = plan_;
    mine.operations = {rival.operation};
    mine.sizes = {size};
    if (rival.depth > 1) mine.settings.depth = rival.depth;
    std::vector<double> theirs, ours;
    for (unsigned turn = 0; turn < options_.turns; ++turn) {
      const auto time = run_rival(rival, size);
      if (Status status = Interrupt::status(); !status) return status;
      if (!time) {
        meter_.clear();
        tool_.remark(time.status().message());
        return false;
      }
      theirs.push_back(*time);
      const auto rows = measure_ours(mine, {rival.path, "shared", "shared", Roof::none, "", rival.path, ""});
      if (!rows) return rows.status();
      if (rows->empty())
        return Status(ErrorCode::invalid_argument, fmt::format("{} of {} is not measured with these options",
                                                               name_of(rival.operation), size_text(size)));
      ours.push_back(rows->front().p50_us);
    }
    const Ratio ratio = ratio_of(theirs, ours);
    std::ranges::sort(theirs);
    std::ranges::sort(ours);
    const std::size_t middle = theirs.size() / 2;
    environments_.insert(environment_of(rival));
    add({rival.tool, version_of(rival), environment_of(rival), rival.test(), rival.path, size, rival.depth,
         theirs[middle], ours[middle], ratio});
    return true;
  }

  // No such libfabric tool is packaged: a loop over its API, in turn with ours batch by batch.
  Status with_bare_libfabric() {
    if (!options_.tools.empty()) return {};
    std::string said;  // both fail for one reason where libfabric is absent
    for (const char* provider : {"tcp", "shm"}) {
      Plan mine = plan_;
      mine.operations = {Operation::write, Operation::read, Operation::send};
      const std::string via = std::string("fabric:") + provider;
      if (!wanted(options_.via, via)) continue;
      meter_.expect(1);
      meter_(via);
      const auto rows = measure_ours(mine, make_case(via, "shared", "shared"));
      if (Status status = Interrupt::status(); !status) return status;
      if (!rows) {
        meter_.clear();
        if (said != rows.status().message()) tool_.remark(said = rows.status().message());
        continue;
      }
      for (const Row& row : *rows)
        if (row.roof_us > 0)
          add({"bare libfabric", "", "", name_of(row.operation), provider, row.size, 1, row.roof_us, row.p50_us,
               ratio_of({row.roof_us}, {row.p50_us})});
    }
    return {};
  }

  Tool& tool_;
  const BenchOptions& options_;
  const Plan& plan_;
  Meter meter_;
  std::vector<PeerRow> rows_;
  std::set<std::string> missing_, environments_;
};

Exit run_peers(Tool& tool, const BenchOptions& options) {
  const auto plan = plan_of(options, {8, 4 << 10, 64 << 10, 1 << 20, 16 << 20});
  if (!plan) return tool.misused(plan.status().message());
  if (Status status = check_outputs(options); !status)
    return status.code() == ErrorCode::invalid_argument ? tool.misused(status.message()) : tool.fail(status);
  return PeersRun(tool, options, *plan).run();
}

}  // namespace

void add_bench_peers(Tool& tool, CLI::App& bench) {
  CLI::App& command = tool.add_below(
      bench, "peers", "Measure beside other tools that are installed: ucx_perftest, fi_pingpong, iperf3, perftest");
  const auto options = std::make_shared<BenchOptions>();
  add_sizes_flag(command, *options);
  command.add_option("--seconds", options->seconds, "Least time to measure each row of ours")
      ->check(number_in(0.0, 3600.0))
      ->capture_default_str();
  command.add_option("--turns", options->turns, "How often each tool runs; more turns give a narrower interval")
      ->check(CLI::Range(1U, 1000U))
      ->capture_default_str();
  add_list(command, "--tool", options->tools,
           "Only these tools: ib_write_bw,ucx_perftest (default: all that are installed)", one_of(kTools));
  add_list(command, "--via", options->via, "Only these paths: shm,tcp,verbs,fabric:tcp,fabric:shm (default: all)",
           one_of(kPaths));
  command.add_flag("--sleep", options->sleep, "Wait in the kernel on both sides of ours (default: poll)");
  add_output_flags(command, *options);
  add_rdma_flags(command, options->rdma);
  command.footer(
      "Example:\n  fairway bench peers --tool ucx_perftest --via shm --size 8,1M --turns 5 --json peers.json");
  tool.on_run(command, [&tool, options] { return run_peers(tool, *options); });
}

}  // namespace fairway::tool::bench
