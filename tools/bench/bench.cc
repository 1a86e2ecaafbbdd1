#include "bench.h"

#include <algorithm>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "arguments.h"
#include "bench/collectives/collectives.h"
#include "bench/collectives/ways.h"
#include "bench/load/load.h"
#include "bench/paths/case.h"
#include "bench/paths/gpu_paths.h"
#include "bench/paths/measure.h"
#include "command.h"
#include "gpu.h"
#include "interrupt.h"
#include "options.h"
#include "other_process.h"
#include "recorded.h"
#include "rows.h"

namespace fairway::tool {
namespace {

using namespace bench;

std::vector<std::uint64_t> usual_sizes() {
  return {8, 512, 4 << 10, 64 << 10, 1 << 20, 16 << 20};
}

// Ends the command with the exit code of its error: bad options, unreadable input, or a failure.
Exit refuse(Tool& tool, const Status& status) {
  return status.code() == ErrorCode::invalid_argument ? tool.misused(status.message()) : tool.fail(status);
}

// How rows are printed: each at once, or all at the end.
struct Shown {
  std::string (*row)(const std::vector<Row>&) = nullptr;
  std::string (*end)(const std::vector<Row>&) = nullptr;
};
constexpr Shown kTable{table_row, table_end};

void warn_if_busy(const Tool& tool, const std::vector<Row>& rows) {
  const auto busy = [](const Row& row) { return !row.busy.empty(); };
  const auto late = [](const Row& row) { return row.late; };
  if (const auto count = std::ranges::count_if(rows, busy); count != 0)
    tool.remark(fmt::format(
        "the cores were busy with other work during {} of {} rows ({}), so their times are not reliable; measure "
        "on idle cores, or use --sleep",
        count, rows.size(), std::ranges::find_if(rows, busy)->busy));
  if (const auto count = std::ranges::count_if(rows, late); count != 0)
    tool.remark(fmt::format(
        "other work took a core now and then during {} of {} rows ({:.0f} involuntary context switches a second), "
        "so their p99 is the scheduler's",
        count, rows.size(), std::ranges::find_if(rows, late)->cores.switches_per_second));
}

// Whoever starts it without options learns at once how long it takes. A row is measured beside its roof, for twice its
// time at the least.
void say_how_long(const Tool& tool, const Plan& plan, std::size_t cases) {
  constexpr double kLong = 10;
  const std::size_t rows = cases * plan.operations.size() * plan.sizes.size();
  const double seconds = static_cast<double>(rows) * (2.5 * plan.seconds_per_row);
  if (seconds >= kLong)
    tool.remark(
        fmt::format("up to {} rows, about {:.0f} s on idle cores; --via, --operation, --size and --seconds "
                    "choose, and Ctrl-C keeps the rows so far",
                    rows, seconds));
}

Exit finish(Tool& tool, const BenchOptions& options, const Result<Plan>& plan, const std::vector<Case>& cases,
            const Shown& shown, const std::string& command) {
  if (!plan) return tool.misused(plan.status().message());
  if (Status status = check_outputs(options); !status) return refuse(tool, status);
  say_how_long(tool, *plan, cases.size());
  const bool quiet = options.json == "-" || options.csv == "-";
  const Interrupt interrupt;
  std::vector<Row> rows;
  Status status;
  bool unwritten = false;  // standard output takes nothing, and that was said
  {
    Meter meter(tool, options.progress);
    status = measure(meter, options.address, *plan, cases, [&](Row& row) {
      rows.push_back(row);
      if (quiet || shown.row == nullptr) return Status();
      meter.clear();
      unwritten = tool.print(shown.row(rows)) != Exit::done;
      return unwritten ? Status(ErrorCode::closed, "standard output takes nothing") : Status();
    });
  }
  if (unwritten) return Exit::failed;
  // Print what was measured, even if something stopped it.
  if (status || !rows.empty() || Interrupt::came()) {
    if (status && rows.empty())
      return tool.fail("nothing was measured: no operation fits these options (--pages is for write and read)");
    const Exit told = tell(tool, {{options.json, json(rows, command, status.is_ok())}, {options.csv, csv(rows)}},
                           rows.empty() ? std::string() : shown.end(rows));
    warn_if_busy(tool, rows);
    if (status) return told;
  }
  if (!Interrupt::came()) return tool.fail(status);
  tool.remark(fmt::format("interrupted after {} rows", rows.size()));
  return Exit::interrupted;
}

Result<std::vector<Case>> force(Tool& tool, const BenchOptions& options) {
  const auto memory = [](const std::string& wanted) { return wanted.empty() ? "shared" : wanted; };
  if (!options.address.empty() && !options.kinds.empty())
    return Status(ErrorCode::invalid_argument, "--memory makes the memories of both ends, and the one at " +
                                                   options.address +
                                                   " has its own already: name them in full, as in --remote "
                                                   "gpu:1:managed here and --local gpu:1:managed there");
  return cases_of({memory(options.local), memory(options.remote), options.via, options.kinds, options.from},
                  [&tool](const std::string& why) { tool.remark(why); });
}

using Measure = Exit (*)(Tool& tool, const BenchOptions& options);

// With the machine of --from as engines read it.
Exit with_machine(Tool& tool, BenchOptions options, Measure run) {
  auto snapshot = snapshot_of(options.from);
  if (!snapshot) return tool.unreadable(snapshot.status());
  options.from = std::move(*snapshot);
  return run(tool, options);
}

Exit run_table(Tool& tool, const BenchOptions& options) {
  std::vector<Case> cases;
  if (!options.address.empty() || !options.local.empty() || !options.remote.empty() || !options.via.empty() ||
      !options.kinds.empty()) {
    auto forced = force(tool, options);
    if (!forced) return refuse(tool, forced.status());
    cases = std::move(*forced);
  } else {
    cases = {make_case("shm", "shared", "shared"), make_case("shm", "host", "host"), make_case("tcp", "host", "host")};
    const int gpus = gpu_count();
    if (gpus > 1) cases.push_back(make_case("cuda", "gpu:0", "gpu:1"));
    if (gpus > 0) cases.push_back(make_case("cuda", "gpu:0", "pinned"));
  }
  return finish(tool, options, plan_of(options, usual_sizes()), cases, kTable, "bench");
}

Exit run_compare(Tool& tool, const BenchOptions& options) {
  const auto cases = force(tool, options);
  if (!cases) return refuse(tool, cases.status());
  const std::vector<std::uint64_t> sizes{8, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
  return finish(tool, options, plan_of(options, sizes), *cases, {nullptr, comparison}, "bench compare");
}

Exit run_matrix(Tool& tool, const BenchOptions& options) {
  for (const std::string& via : options.via)
    if (is_cuda_path(via))
      return tool.misused(fmt::format(
          "--via {} needs two memories: `fairway bench --local gpu:0 --remote gpu:1 --via {}`; a matrix takes "
          "transports, here cuda",
          via, via));
  std::vector<std::string> memories = options.memories;
  if (memories.empty()) memories = {"host", "shared"};
  if (options.memories.empty())
    for (int i = 0; i < gpu_count(); ++i) memories.push_back(fmt::format("gpu:{}", i));
  std::vector<Case> cases;
  for (const std::string& from : memories)
    for (const std::string& to : memories)
      for (const std::string& via : options.via.empty() ? std::vector<std::string>{""} : options.via)
        cases.push_back(make_case(via, from, to));
  BenchOptions wanted = options;
  if (wanted.operations.empty()) wanted.operations = {"write", "read"};
  return finish(tool, wanted, plan_of(wanted, {64 << 20}), cases, {nullptr, matrix}, "bench matrix");
}

Exit run_serve(Tool& tool, const BenchOptions& options) {
  if (!options.remote.empty()) return tool.misused("--listen serves one memory of its own: name it with --local");
  ServeOptions serving;
  serving.once = options.serve;
  if (!options.listen.empty()) serving.listen = options.listen;
  serving.job_key = options.job_key;
  serving.directory = options.directory;
  serving.sleeping = options.sleep;
  if (!options.local.empty()) serving.memory = options.local;
  for (const std::string& via : options.via) {
    serving.via.push_back(transport_of(via, options.local, options.local));
    serving.memory = memory_of(via, serving.memory);
  }
  serving.rdma = options.rdma;
  if (!options.sizes.empty()) serving.most = options.sizes.front();
  if (serving.once)  // its starter closes its input, or ends
    std::thread([] {
      wait_for_end_of_input();
      ::_exit(0);
    }).detach();
  bool told = false;
  const Status status = serve(serving, [&](const std::string& line) {
    told = true;
    tool.print(line + "\n");
  });
  if (status) return Exit::done;
  return serving.once && !told ? tool.print(fmt::format("{}{}\n", kCannot, status.message())) : tool.fail(status);
}

void add_address(CLI::App& command, BenchOptions& options) {
  CLI::Option* address =
      command.add_option("ADDRESS", options.address,
                         "HOST:PORT of a running `fairway bench --listen` (default: starts a second process here)");
  command
      .add_option("--listen", options.listen, "Serve other `fairway bench` processes at HOST:PORT until interrupted")
      ->type_name("ADDRESS")
      ->check(host_and_port())
      ->excludes(address);
  command.add_option("--directory", options.directory,
                     "Directory in which to look up ADDRESS if it is a name: host:port of an engine, "
                     "redis://host:port, etcd://host:port");
  command.add_option("--key", options.job_key, "Job key, the same at both ends; required beyond loopback");
}

constexpr const char* kViaSentence =
    "Force these paths, one after the other: shm,cuda,verbs,tcp,fabric:PROVIDER,staged:TRANSPORT; for GPU memory also "
    "nvlink,pcie,ipc,fd,staged";

}  // namespace

void add_bench(Tool& tool) {
  CLI::App& command = tool.add(Group::traffic, "bench", "Measure every path of this machine and verify every byte");
  const auto options = std::make_shared<BenchOptions>();
  add_address(command, *options);
  add_via(command, options->via, kViaSentence, Via::paths);
  add_memory_flags(command, *options);
  command.add_flag("--serve", options->serve)->group("");
  add_common_flags(command, *options);
  command.footer(
      "Rows are printed as they are measured. Ctrl-C stops it and keeps the rows so far (exit 130).\n"
      "Examples:\n"
      "  fairway bench                                        shm, tcp, and GPUs where there are some\n"
      "  fairway bench --via shm --size 8,4K,1M --operation write,read\n"
      "  fairway bench --local gpu:0 --remote gpu:1           between the memories of two GPUs\n"
      "  fairway bench --listen 0.0.0.0:7470 --key SECRET     then, on another host:\n"
      "  fairway bench node2:7470 --key SECRET");
  tool.on_run(command, [&tool, &command, options] {
    if (const Status status = check_address(options->address, options->directory, command); !status)
      return tool.misused(status.message());
    return options->serve || !options->listen.empty() ? run_serve(tool, *options)
                                                      : with_machine(tool, *options, run_table);
  });

  CLI::App& compare =
      tool.add_below(command, "compare", "Compare paths side by side: time, rate, CPU, copies, system calls");
  const auto compared = std::make_shared<BenchOptions>();
  add_arguments(compare, "PATHS", compared->via,
                "Paths, as for --via: shm,cuda,verbs,tcp,fabric:PROVIDER,nvlink,pcie,ipc,fd,staged",
                via_word(Via::paths))
      ->required();
  add_memory_flags(compare, *compared);
  add_common_flags(compare, *compared);
  compare.footer("Example:\n  fairway bench compare shm tcp --size 4K,1M --operation write");
  tool.on_run(compare, [&tool, compared] { return with_machine(tool, *compared, run_compare); });

  add_bench_peers(tool, command);

  CLI::App& all = tool.add_below(command, "matrix", "Measure every pair of memories");
  const auto pairs = std::make_shared<BenchOptions>();
  add_arguments(all, "MEMORIES", pairs->memories,
                "Memories, as for --local: host,gpu:0 (default: host, shared and every GPU)", memory_name());
  add_via(all, pairs->via, "Use only these transports", Via::paths);
  add_common_flags(all, *pairs);
  all.footer("Example:\n  fairway bench matrix host shared --via shm,tcp --size 1M");
  tool.on_run(all, [&tool, pairs] { return with_machine(tool, *pairs, run_matrix); });
  add_bench_load(tool, command);
  add_bench_collectives(tool, command);
  add_bench_ways(tool, command);
}

}  // namespace fairway::tool
