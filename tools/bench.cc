#include "bench.h"

#include <algorithm>
#include <memory>
#include <set>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "bench_case.h"
#include "bench_gpu.h"
#include "bench_load.h"
#include "bench_measure.h"
#include "bench_peers.h"
#include "bench_rows.h"
#include "bench_verbs.h"
#include "bench_ways.h"
#include "command.h"
#include "help.h"
#include "other_process.h"
#include "rdma_flags.h"

namespace fairway::tool {
namespace {

using namespace bench;

struct BenchOptions {
  std::string address, listen, job_key, machine;
  std::string from, to;
  std::vector<std::string> via, kinds, paths, memories;
  std::vector<std::string> operations;
  std::vector<std::string> sizes;
  std::uint64_t pages = 0, depth = 1;
  double seconds = 0.15;
  bool sleep = false, serve = false;
  unsigned turns = 3;
  std::vector<std::string> tools;
  std::string json, csv, svg;
  RdmaOptions rdma;
};

Result<Plan> plan_of(const BenchOptions& options, std::vector<std::uint64_t> sizes) {
  Plan plan;
  if (!options.sizes.empty()) {
    sizes.clear();
    for (const std::string& text : options.sizes) {
      const auto size = parse_size(text);
      if (!size) return size.status();
      sizes.push_back(*size);
    }
  }
  plan.sizes = std::move(sizes);
  for (const Operation operation :
       {Operation::write, Operation::read, Operation::send, Operation::notify, Operation::count, Operation::fetch_add})
    if (options.operations.empty() ? operation != Operation::fetch_add
                                   : std::find(options.operations.begin(), options.operations.end(),
                                               name_of(operation)) != options.operations.end())
      plan.operations.push_back(operation);
  plan.settings.sleeping = options.sleep;
  plan.settings.pages = options.pages;
  plan.settings.depth = options.depth;
  plan.settings.job_key = options.job_key;
  plan.settings.machine = options.machine;
  plan.settings.rdma = options.rdma;
  plan.seconds_per_row = options.seconds;
  const std::uint64_t largest = *std::max_element(plan.sizes.begin(), plan.sizes.end());
  const std::uint64_t one = std::max<std::uint64_t>(1, options.pages);
  if (largest > (std::uint64_t{64} << 30) / one)
    return Status(ErrorCode::out_of_range, "pages x size is more than 64 GiB");
  plan.settings.most = std::max<std::uint64_t>(largest * one, 4 << 20);
  return plan;
}

Meter meter_of(Tool& tool) {
  return Meter(tool.surroundings().stdout_is_tty);
}

std::vector<std::uint64_t> usual_sizes() {
  return {8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20};
}

Exit finish(Tool& tool, const BenchOptions& options, const Result<Plan>& plan, const std::vector<Case>& cases,
            std::string (*text)(const std::vector<Row>&), const std::string& command,
            std::string (*picture)(const std::vector<Row>&, const std::string&) = svg) {
  if (!plan) return tool.misused(plan.status().message());
  for (const std::string* file : {&options.json, &options.csv, &options.svg})
    if (Status status = can_write(*file); !status) return tool.fail(status);
  std::vector<Row> rows;
  if (Status status = measure(meter_of(tool), options.address, *plan, cases, rows); !status) return tool.fail(status);
  if (rows.empty()) return tool.fail("nothing was measured: no operation fits these options (pages: write and read)");
  return tell(tool,
              {{options.json, json(rows, command)},
               {options.csv, csv(rows)},
               {options.svg, picture(rows, "fairway " + command)}},
              text(rows));
}

Result<std::vector<Case>> force(Tool& tool, const BenchOptions& options, const std::vector<std::string>& via) {
  const auto memory = [](const std::string& wanted) { return wanted.empty() ? "shared" : wanted; };
  if (!options.address.empty() && !options.kinds.empty())
    return Status(ErrorCode::invalid_argument,
                  "--memory makes the memories of both ends, and the one at " + options.address +
                      " has its own already: name them in full, as in --to gpu:1:managed, here and there");
  return cases_of({memory(options.from), memory(options.to), via, options.kinds, options.machine},
                  [&tool](const std::string& why) { tool.remark(why); });
}

Exit refuse(Tool& tool, const Status& status) {
  return status.code() == ErrorCode::invalid_argument ? tool.misused(status.message()) : tool.fail(status);
}

Exit run_table(Tool& tool, const BenchOptions& options) {
  std::vector<Case> cases;
  if (!options.address.empty() || !options.from.empty() || !options.to.empty() || !options.via.empty() ||
      !options.kinds.empty()) {
    auto forced = force(tool, options, options.via);
    if (!forced) return refuse(tool, forced.status());
    cases = std::move(*forced);
  } else {
    cases = {make_case("shm", "shared", "shared"), make_case("shm", "host", "host"), make_case("tcp", "host", "host")};
    const int gpus = gpu_count();
    if (gpus > 1) cases.push_back(make_case("cuda", "gpu:0", "gpu:1"));
    if (gpus > 0) cases.push_back(make_case("cuda", "gpu:0", "pinned"));
  }
  return finish(tool, options, plan_of(options, usual_sizes()), cases, table, "bench");
}

Exit run_compare(Tool& tool, const BenchOptions& options) {
  const auto cases = force(tool, options, options.paths);
  if (!cases) return refuse(tool, cases.status());
  const std::vector<std::uint64_t> sizes{8, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
  return finish(tool, options, plan_of(options, sizes), *cases, comparison, "bench compare");
}

Exit run_matrix(Tool& tool, const BenchOptions& options) {
  for (const std::string& via : options.via)
    if (is_rung(via))
      return tool.misused(
          fmt::format("--via {} is between two memories: `fairway bench --from gpu:0 --to gpu:1 --via "
                      "{}`; a matrix takes transports, here cuda",
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
  return finish(tool, wanted, plan_of(wanted, {64 << 20}), cases, matrix, "bench matrix", matrix_svg);
}

// Ours and theirs in turns; medians. False, with a remark: its tool told no figure.
Result<bool> beside(Tool& tool, const BenchOptions& options, Plan mine, const Rival& rival, std::vector<PeerRow>& out) {
  std::vector<double> theirs, ours;
  const std::uint64_t size = mine.sizes.front();
  for (unsigned turn = 0; turn < options.turns; ++turn) {
    const auto time = run_rival(rival, size);
    if (!time) {
      tool.remark(time.status().message());
      return false;
    }
    theirs.push_back(*time);
    std::vector<Row> rows;
    const Case one{rival.path, "shared", "shared", Roof::none, "", rival.path, ""};
    if (Status status = measure(meter_of(tool), options.address, mine, {one}, rows); !status) return status;
    ours.push_back(rows.front().p50_us);
  }
  const Ratio ratio = ratio_of(theirs, ours);
  std::sort(theirs.begin(), theirs.end());
  std::sort(ours.begin(), ours.end());
  const std::size_t middle = theirs.size() / 2;
  out.push_back(
      {rival.tool, version_of(rival), rival.what, rival.path, size, rival.depth, theirs[middle], ours[middle], ratio});
  return true;
}

// Empty, or which of the paths is compared with nothing, and what is.
std::string not_compared(const std::vector<std::string>& via, const std::vector<std::string>& tools) {
  std::vector<std::string> paths{"fabric:tcp", "fabric:shm"};
  for (const Rival& rival : rivals())
    if (std::find(paths.begin(), paths.end(), rival.path) == paths.end()) paths.emplace_back(rival.path);
  for (const std::string& each : via)
    if (std::find(paths.begin(), paths.end(), each) == paths.end())
      return fmt::format("\"{}\" is compared with nothing: --via takes {}", each, fmt::join(paths, ", "));
  std::set<std::string> known;
  for (const Rival& rival : rivals()) known.insert(rival.tool);
  for (const std::string& each : tools)
    if (!known.contains(each))
      return fmt::format("\"{}\" is no tool that is run here: --tool takes {}", each, fmt::join(known, ", "));
  return {};
}

Exit run_peers(Tool& tool, const BenchOptions& options) {
  if (const std::string wrong = not_compared(options.via, options.tools); !wrong.empty()) return tool.misused(wrong);
  const auto plan = plan_of(options, {8, 4 << 10, 64 << 10, 1 << 20, 16 << 20});
  if (!plan) return tool.misused(plan.status().message());
  for (const std::string* file : {&options.json, &options.csv})
    if (Status status = can_write(*file); !status) return tool.fail(status);
  std::set<std::string> missing;
  std::vector<PeerRow> peers;
  const Meter meter = meter_of(tool);
  const auto wanted = [&](const std::string& path) {
    return options.via.empty() || std::find(options.via.begin(), options.via.end(), path) != options.via.end();
  };
  const auto asked = [&](const std::string& name) {
    return options.tools.empty() || std::find(options.tools.begin(), options.tools.end(), name) != options.tools.end();
  };
  for (const Rival& rival : rivals()) {
    if (!wanted(rival.path) || !asked(rival.tool)) continue;
    if (!installed(rival)) {
      missing.insert(fmt::format("{} (Debian's {})", rival.tool, rival.package));
      continue;
    }
    for (const std::uint64_t size : plan->sizes) {
      if (!rival.does(size)) continue;
      meter(fmt::format("{} {} {}", rival.tool, rival.what, size_text(size)));
      Plan mine = *plan;
      mine.operations = {rival.operation};
      mine.sizes = {size};
      if (rival.depth > 1) mine.settings.depth = rival.depth;
      const auto told = beside(tool, options, std::move(mine), rival, peers);
      if (!told) return tool.fail(told.status());
      if (!*told) break;
    }
  }
  // libfabric has no such tool that is packaged: a loop over its bare interface, batch by batch in turns with ours.
  for (const char* provider : {"tcp", "shm"}) {
    Plan mine = *plan;
    mine.operations = {Operation::write, Operation::read, Operation::send};
    std::vector<Row> rows;
    const std::string via = std::string("fabric:") + provider;
    if (!wanted(via) || !options.tools.empty()) continue;
    meter(via);
    if (Status status = measure(meter_of(tool), options.address, mine, {make_case(via, "shared", "shared")}, rows);
        !status) {
      tool.remark(status.message());
      continue;
    }
    for (const Row& row : rows)
      if (row.roof_us > 0)
        peers.push_back({"bare libfabric", "", name_of(row.operation), provider, row.size, 1, row.roof_us, row.p50_us,
                         ratio_of({row.roof_us}, {row.p50_us})});
  }
  std::vector<Fields> all;
  for (const PeerRow& row : peers) all.push_back(fields(row));
  return tell(tool, {{options.json, json_of("fairway-bench-peers", "bench peers", all)}, {options.csv, csv_of(all)}},
              table(peers, {missing.begin(), missing.end()}));
}

Exit run_serve(Tool& tool, const BenchOptions& options) {
  ServeOptions serving;
  serving.once = options.serve;
  if (!options.listen.empty()) serving.listen = options.listen;
  serving.job_key = options.job_key;
  serving.sleeping = options.sleep;
  if (!options.to.empty()) serving.memory = options.to;
  for (const std::string& via : options.via) {
    serving.via.push_back(transport_of(via, options.to, options.to));
    serving.memory = memory_of(via, serving.memory);
  }
  serving.rdma = options.rdma;
  if (!options.sizes.empty()) {
    const auto most = parse_size(options.sizes.front());
    if (!most) return tool.misused(most.status().message());
    serving.most = *most;
  }
  if (serving.once)  // its starter lets go of it by closing its input, or by ending
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

void add_common(CLI::App& command, BenchOptions& options) {
  command.add_option("--size", options.sizes, "Sizes: 8,4K,1M (default: a range)")->delimiter(',');
  command
      .add_option("--operation", options.operations,
                  "Which: write,read,send,notify,count,fetch_add (default: all but fetch_add)")
      ->delimiter(',')
      ->check(CLI::IsMember({"write", "read", "send", "notify", "count", "fetch_add"}));
  command.add_option("--pages", options.pages, "So many pages of that size in each request, scattered")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 20));
  command
      .add_option("--depth", options.depth, "So many writes or reads on their way at once; the time is each one's part")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{64}))
      ->capture_default_str();
  command.add_option("--seconds", options.seconds, "Measure each row at least so long")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  command
      .add_option("--machine", options.machine,
                  "A file that says what this machine is, for what to expect; else it is looked at")
      ->type_name("FILE")
      ->check(no_empty_name());
  command.add_flag("--sleep", options.sleep, "Both sides wait in the kernel; else both poll");
  command.add_option("--json", options.json, "Write the rows there; - is stdout")->type_name("FILE");
  command.add_option("--csv", options.csv, "The same as CSV")->type_name("FILE");
  command.add_option("--svg", options.svg, "Charts of time and rate over size")->type_name("FILE");
  add_rdma_flags(command, options.rdma);
}

void add_memory_flag(CLI::App& command, BenchOptions& options) {
  command.add_option("--memory", options.kinds, "What gpu:N of --from and --to is made of, one kind after the other")
      ->delimiter(',')
      ->check(CLI::IsMember({"device", "managed", "pinned", "pageable", "shared"}));
}

}  // namespace

void add_bench(Tool& tool) {
  CLI::App& command = tool.add(Group::traffic, "bench", "Measure every path of this machine, every byte verified");
  const auto options = std::make_shared<BenchOptions>();
  command.add_option("address", options->address,
                     "host:port of a `fairway bench --listen`; else a process is started here");
  command.add_option("--listen", options->listen, "Serve measuring processes at host:port, until interrupted");
  command.add_option("--key", options->job_key, "The job's key, the same at both ends; needed beyond loopback");
  command.add_option(
      "--from", options->from,
      "Memory of this process: host, host:numaN, shared, pinned, gpu:N, gpu:N:mapped, gpu:N:locked, gpu:N:managed");
  command.add_option("--to", options->to, "Memory of the other process");
  command
      .add_option("--via", options->via,
                  "Force these ways, one after the other: shm,cuda,verbs,tcp,fabric:PROVIDER,staged:TRANSPORT; of GPU "
                  "memory also nvlink,pcie,ipc,fd,staged")
      ->delimiter(',');
  add_memory_flag(command, *options);
  command.add_flag("--serve", options->serve)->group("");
  add_common(command, *options);
  tool.on_run(command, [&tool, options] {
    return options->serve || !options->listen.empty() ? run_serve(tool, *options) : run_table(tool, *options);
  });

  CLI::App& compare =
      tool.add_below(command, "compare", "Put paths side by side: time, rate, CPU, copies, system calls");
  const auto compared = std::make_shared<BenchOptions>();
  compare.add_option("paths", compared->paths, "As --via: shm cuda verbs tcp fabric:PROVIDER ipc fd staged")
      ->required();
  compare.add_option(
      "--from", compared->from,
      "Memory of this process: host, host:numaN, shared, pinned, gpu:N, gpu:N:mapped, gpu:N:locked, gpu:N:managed");
  compare.add_option("--to", compared->to, "Memory of the other process");
  add_memory_flag(compare, *compared);
  add_common(compare, *compared);
  tool.on_run(compare, [&tool, compared] { return run_compare(tool, *compared); });

  CLI::App& peers = tool.add_below(
      command, "peers", "Measure beside what else is installed: ucx_perftest, fi_pingpong, iperf3, perftest");
  const auto in_turns = std::make_shared<BenchOptions>();
  peers.add_option("--size", in_turns->sizes, "Sizes: 8,4K,1M (default: a range)")->delimiter(',');
  peers.add_option("--seconds", in_turns->seconds, "Measure each of ours at least so long")
      ->check(CLI::Range(0.0, 3600.0));
  peers.add_option("--turns", in_turns->turns, "So many times each of both; the more, the narrower the interval")
      ->check(CLI::Range(1U, 1000U))
      ->capture_default_str();
  peers.add_option("--tool", in_turns->tools, "These tools alone: ib_write_bw,ucx_perftest")->delimiter(',');
  peers.add_option("--via", in_turns->via, "These paths alone: shm,tcp,verbs,fabric:tcp,fabric:shm")->delimiter(',');
  peers.add_flag("--sleep", in_turns->sleep, "Both sides of ours wait in the kernel; else both poll");
  peers.add_option("--json", in_turns->json, "Write the rows there; - is stdout")->type_name("FILE");
  peers.add_option("--csv", in_turns->csv, "The same as CSV")->type_name("FILE");
  add_rdma_flags(peers, in_turns->rdma);
  tool.on_run(peers, [&tool, in_turns] { return run_peers(tool, *in_turns); });

  CLI::App& all = tool.add_below(command, "matrix", "Measure every pair of memories");
  const auto pairs = std::make_shared<BenchOptions>();
  all.add_option("memories", pairs->memories, "Memories as for --from (default: host, shared and every GPU)");
  all.add_option("--via", pairs->via, "Force these transports")->delimiter(',');
  add_common(all, *pairs);
  tool.on_run(all, [&tool, pairs] { return run_matrix(tool, *pairs); });
  add_bench_load(tool, command);
  add_bench_verbs(tool, command);
}

}  // namespace fairway::tool
