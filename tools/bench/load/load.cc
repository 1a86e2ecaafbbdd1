#include "load.h"

#include <algorithm>
#include <memory>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "arguments.h"
#include "bench/rows.h"
#include "command.h"
#include "help.h"
#include "interrupt.h"
#include "rdma_flags.h"
#include "target.h"
#include "via.h"

namespace fairway::tool::bench {

Result<LoadEngine> LoadEngine::open(EngineOptions options, const LoadPlan& plan, const std::string& path,
                                    std::uint64_t bytes) {
  use_only(options, {path});
  auto engine = Engine::open(options);
  if (!engine) return engine.status();
  auto ours = open_memory(*engine, plan.from, bytes, Access::none);
  if (!ours) return ours.status();
  return LoadEngine{std::move(*engine), std::move(*ours)};
}

Result<LoadTarget> LoadTarget::meet(Engine& engine, const std::string& address) {
  const auto peer = engine.connect(address, std::chrono::seconds(20));
  if (!peer) return peer.status();
  const auto memory = engine.lookup(*peer, kLoadMemory);
  if (!memory) return memory.status();
  return LoadTarget{*peer, *memory};
}

Status write_once(LoadEngine& from, const LoadTarget& to, std::uint64_t size) {
  const auto id = from.engine.write(to.peer, Extent{{from.ours.region.id, 0, size}, {to.memory.id, 0}});
  if (!id) return id.status();
  const auto done = from.engine.wait(*id, std::chrono::seconds(30));
  return done ? done->status : done.status();
}

double percentile_of(std::vector<double>& values, double part) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[std::min(values.size() - 1, static_cast<std::size_t>(part * static_cast<double>(values.size())))];
}

Status serve_load(const LoadServe& serve, const std::function<void(const std::string&)>& say) {
  std::vector<NamedMemory> held;
  std::vector<Engine> open;  // closed before their memory is freed
  std::string addresses;
  for (unsigned i = 0; i < serve.engines; ++i) {
    EngineOptions options;
    use_only(options, {serve.path});
    options.rdma = serve.rdma;
    if (!serve.listen.empty()) options.listen = serve.listen;
    auto engine = Engine::open(options);
    if (!engine) return engine.status();
    auto memory = open_memory(*engine, serve.memory, serve.bytes, Access::all);
    if (!memory) return memory.status();
    if (Status status = engine->publish(kLoadMemory, memory->region); !status) return status;
    held.push_back(std::move(*memory));
    addresses += (addresses.empty() ? "" : " ") + engine->address();
    open.push_back(std::move(*engine));
  }
  say(addresses);
  wait_for_end_of_input();
  return {};
}

LoadServe serve_of(const LoadPlan& plan, const std::string& path, unsigned engines, std::uint64_t bytes,
                   const std::string& listen) {
  return {path, engines, bytes, listen, plan.to, plan.rdma};
}

std::vector<std::string> words_of(const LoadServe& serve) {
  std::vector<std::string> words{"bench",    "load",
                                 "--via",    serve.path,
                                 "--serve",  fmt::format("{}", serve.engines),
                                 "--bytes",  fmt::format("{}", serve.bytes),
                                 "--remote", serve.memory};
  if (!serve.listen.empty()) words.insert(words.end(), {"--listen", serve.listen});
  const auto flags = tool::words_of(serve.rdma);
  words.insert(words.end(), flags.begin(), flags.end());
  return words;
}

namespace {

std::string number(double value) {
  return value == 0 ? "-" : value < 10 ? fmt::format("{:.2f}", value) : fmt::format("{:.0f}", value);
}

}  // namespace

std::string load_head() {
  return fmt::format("{:<9} {:<10} {:<46} {:>6} {:>6} {:>7} {:>6} {}\n", "what", "path", "how", "p50", "p99", "raw p99",
                     "target", "unit");
}

std::string load_row(const LoadRow& row) {
  return fmt::format("{:<9} {:<10} {:<46} {:>6} {:>6} {:>7} {:>6} {}{}\n", row.what, row.path, row.how, number(row.p50),
                     number(row.p99), number(row.beside_p99), number(row.target), row.unit,
                     row.reached() ? "" : "  MISSED");
}

std::string load_json(const std::vector<LoadRow>& rows, bool complete) {
  const auto figure = [](double value) { return value == 0 ? std::string() : fmt::format("{:.4g}", value); };
  std::vector<Fields> all;
  for (const LoadRow& row : rows)
    all.push_back({{"what", row.what, true},
                   {"path", row.path, true},
                   {"how", row.how, true},
                   {"unit", row.unit, true},
                   {"p50", figure(row.p50)},
                   {"p99", figure(row.p99)},
                   {"raw_p99", figure(row.beside_p99)},
                   {"target", figure(row.target)},
                   {"reached", row.target == 0 ? ""
                               : row.reached() ? "true"
                                               : "false"}});
  return json_of("fairway-bench-load", "bench load", all, complete);
}

}  // namespace fairway::tool::bench

namespace fairway::tool {
namespace {

using namespace bench;

struct LoadOptions {
  std::vector<std::string> via{"shm", "tcp"}, only;
  double seconds = 2;
  bool progress = false;
  std::string json, listen, local = "shared", remote = "shared";
  unsigned serve = 0;
  std::uint64_t bytes = 4096;
  RdmaOptions rdma;
};

Exit run_load(Tool& tool, const LoadOptions& options) {
  if (options.serve != 0) {
    const auto say = [&](const std::string& line) { tool.print(line + "\n"); };
    const Status status = serve_load(
        {options.via.front(), options.serve, options.bytes, options.listen, options.remote, options.rdma}, say);
    if (!status) say(std::string(kCannot) + status.message());  // it failed before it had an address
    return Exit::done;
  }
  if (Status status = can_write(options.json); !status) return tool.fail(status);
  const Interrupt interrupt;
  Meter meter(tool, options.progress);
  LoadPlan plan;
  plan.paths = options.via;
  plan.from = options.local;
  plan.to = options.remote;
  plan.seconds = options.seconds;
  plan.rdma = options.rdma;
  std::vector<LoadRow> rows;
  std::size_t shown = 0;
  const auto show = [&] {  // the rows that are new
    meter.clear();
    for (; shown < rows.size(); ++shown)
      if (options.json != "-") tool.print((shown == 0 ? load_head() : std::string()) + load_row(rows[shown]));
  };
  plan.progress = [&](const std::string& what) {
    show();
    meter(what);
    return Interrupt::status();
  };
  constexpr std::pair<const char*, Status (*)(const LoadPlan&, std::vector<LoadRow>&)> kParts[] = {
      {"busy", measure_busy}, {"submit", measure_submit}, {"idle", measure_idle}, {"life", measure_life}};
  Status status;
  for (const auto& [name, measure] : kParts)
    if (status && (options.only.empty() || std::ranges::find(options.only, name) != options.only.end()))
      status = measure(plan, rows);
  show();
  // Print what was measured, even if something stopped it.
  if (status || !rows.empty() || Interrupt::came()) {
    const Exit told = tell(tool, {{options.json, load_json(rows, status.is_ok())}}, "");
    if (status) return told;
  }
  if (!Interrupt::came()) return tool.fail(status);
  tool.remark(fmt::format("interrupted after {} rows", rows.size()));
  return Exit::interrupted;
}

}  // namespace

void add_bench_load(Tool& tool, CLI::App& bench) {
  CLI::App& command = tool.add_below(
      bench, "load", "Measure the cost of submit, latency on busy cores, idle engines, failure detection");
  const auto options = std::make_shared<LoadOptions>();
  add_via(command, options->via, "Transports, one after the other (default: shm,tcp)", Via::transports);
  add_memories(command, options->local, options->remote);
  was_called(command, "--from", "--local");
  add_names(command, "--only", options->only, "Measure only these (default: all)", {"busy", "submit", "idle", "life"});
  command.add_option("--seconds", options->seconds, "Least time to measure each row")
      ->check(number_in(0.0, 3600.0))
      ->capture_default_str();
  add_file(command, "--json", options->json, "Write the rows as JSON; - is standard output");
  command.add_flag("--progress", options->progress, "Show progress on stderr (always on a terminal)");
  command.add_option("--serve", options->serve)->group("");
  command.add_option("--bytes", options->bytes)->group("");
  command.add_option("--listen", options->listen)->group("");
  add_rdma_flags(command, options->rdma);
  command.footer("Example:\n  fairway bench load --via shm --only submit,idle");
  tool.on_run(command, [&tool, options] { return run_load(tool, *options); });
}

}  // namespace fairway::tool
