// fairway sim: whole systems in virtual time, from a seed.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "arguments.h"
#include "bench/rows.h"
#include "collectives.h"
#include "command.h"
#include "help.h"
#include "sim/group_measure.h"
#include "sim/simulate.h"

namespace fairway::tool {
namespace {

struct Range {
  std::uint64_t first = 1;
  std::uint64_t last = 1;
};

// A number from 1; no sign, no space.
bool parse_seed(std::string_view text, std::uint64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && out > 0;
}

// "7" or "1..1000".
bool parse_range(std::string_view text, Range& out) {
  const std::size_t dots = text.find("..");
  if (!parse_seed(text.substr(0, dots), out.first)) return false;
  out.last = out.first;
  return dots == std::string_view::npos || (parse_seed(text.substr(dots + 2), out.last) && out.last >= out.first);
}

// What every seed of a campaign has.
struct World {
  std::vector<std::string> faults;
  std::uint32_t drift = SimulationRequest().drift;
};

std::string words_of(const World& world) {
  std::string given = world.faults.empty() ? "" : fmt::format(" --faults {}", fmt::join(world.faults, ","));
  return given + (world.drift == SimulationRequest().drift ? "" : fmt::format(" --drift {}", world.drift));
}

std::string replay(std::uint64_t seed, const World& world) {
  return fmt::format("fairway sim --seed {}{} --trace", seed, words_of(world));
}

SimulationRequest request_of(std::uint64_t seed, const World& world) {
  SimulationRequest request;
  request.seed = seed;
  request.faults = world.faults;
  request.drift = world.drift;
  return request;
}

// A run that can neither go on nor end leaves nothing to unwind.
[[noreturn]] void hopeless(const SimulationRequest& request, const std::string& why) {
  std::fputs(fmt::format("fairway sim: seed {} hangs: {}\n  {}\n", request.seed, why,
                         replay(request.seed, {request.faults, request.drift}))
                 .c_str(),
             stderr);
  std::_Exit(static_cast<int>(Exit::failed));
}

bench::Fields row_of(const SimulationReport& report) {
  const auto number = [](std::uint64_t value) { return fmt::format("{}", value); };
  return {{"seed", number(report.seed)},
          {"engines", number(report.engines)},
          {"faults", number(report.faults)},
          {"transfers", number(report.transfers)},
          {"succeeded", number(report.succeeded)},
          {"late_landed", number(report.late_landed)},
          {"late_stopped", number(report.late_stopped)},
          {"events", number(report.events)},
          {"virtual_seconds", fmt::format("{:.6f}", static_cast<double>(report.virtual_us) / 1e6)},
          {"hash", fmt::format("{:016x}", report.hash), true},
          {"failure", report.failure, true}};
}

Exit one(Tool& tool, std::uint64_t seed, const World& world, bool trace, const std::string& json) {
  SimulationRequest request = request_of(seed, world);
  if (trace) request.trace = [&tool](const std::string& line) { tool.print(line + "\n"); };
  request.hopeless = [&request](const std::string& why) { hopeless(request, why); };
  const SimulationReport report = simulate(request);
  const std::string text = fmt::format(
      "seed {}: {} engines, {} faults, {} of {} transfers ok, {} events in {:.3f} virtual ms, hash {:016x}\n{}",
      report.seed, report.engines, report.faults, report.succeeded, report.transfers, report.events,
      static_cast<double>(report.virtual_us) / 1000, report.hash, report.failure);
  const std::string words = fmt::format("sim --seed {}{}", seed, words_of(world));
  const Exit told = bench::tell(tool, {{json, bench::json_of("fairway-sim", words, {row_of(report)})}}, text);
  if (report.passed) return told;
  return tool.fail(fmt::format("seed {} breaks a promise", seed));
}

// What the threads of a campaign add to; `mutex` guards all but `next`.
struct Sum {
  std::atomic<std::uint64_t> next{0};
  std::mutex mutex;
  std::uint64_t seeds = 0, engines = 0, faults = 0, transfers = 0, succeeded = 0, events = 0, landed = 0, stopped = 0;
  double virtual_seconds = 0;
  SimulationCoverage met;
  std::vector<SimulationReport> failed;
  bool keeps_rows = false;
  std::vector<std::pair<std::uint64_t, bench::Fields>> rows;  // by seed
};

// What a campaign must have met, by its own name.
struct Meeting {
  const char* what;
  std::uint64_t SimulationCoverage::*count;
};
constexpr Meeting kMeetings[] = {
    {"a cancel that is fenced", &SimulationCoverage::cancels_fenced},
    {"a cancel that is not fenced", &SimulationCoverage::cancels_not_fenced},
    {"a deregister that is fenced", &SimulationCoverage::deregisters_fenced},
    {"a deregister that is not fenced", &SimulationCoverage::deregisters_not_fenced},
    {"a garbled byte under a checksum", &SimulationCoverage::garbled},
    {"a checksum that differs", &SimulationCoverage::mismatches},
    {"a peer's end that was due", &SimulationCoverage::deaths},
    {"a send that is held back", &SimulationCoverage::sends_held_back},
    {"a transfer that is complete at once", &SimulationCoverage::moves_at_once},
    {"a message that is handed over at once", &SimulationCoverage::sends_at_once},
    {"a caller that computes", &SimulationCoverage::computations},
    {"a way that is cut in one direction", &SimulationCoverage::one_way_cuts},
    {"a slow way", &SimulationCoverage::slow_paths},
    {"a way that swallows long segments", &SimulationCoverage::mtu_holes},
    {"a clock that drifts", &SimulationCoverage::drifting_clocks},
};
constexpr std::uint64_t kMeetsAll = 1000;  // seeds that cannot miss one of them by chance

void work(Sum& sum, const Range& range, const World& world) {
  for (;;) {
    const std::uint64_t seed = sum.next.fetch_add(1);
    if (seed > range.last || seed < range.first) return;  // beyond the last, or of all numbers
    SimulationRequest request = request_of(seed, world);
    request.hopeless = [&request](const std::string& why) { hopeless(request, why); };
    SimulationReport report = simulate(request);
    std::lock_guard lock(sum.mutex);
    ++sum.seeds;
    sum.engines += report.engines;
    sum.faults += report.faults;
    sum.transfers += report.transfers;
    sum.succeeded += report.succeeded;
    sum.events += report.events;
    sum.landed += report.late_landed;
    sum.stopped += report.late_stopped;
    for (const Meeting& one : kMeetings) sum.met.*one.count += report.coverage.*one.count;
    sum.virtual_seconds += static_cast<double>(report.virtual_us) / 1e6;
    if (sum.keeps_rows) sum.rows.emplace_back(report.seed, row_of(report));
    if (!report.passed) sum.failed.push_back(std::move(report));
  }
}

// Every seed as a row of JSON.
Exit write_rows(Tool& tool, Sum& sum, const std::string& file, const std::string& words) {
  std::ranges::sort(sum.rows, [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<bench::Fields> rows;
  for (auto& [seed, row] : sum.rows) rows.push_back(std::move(row));
  return bench::tell(tool, {{file, bench::json_of("fairway-sim", words, rows)}}, "");
}

Exit many(Tool& tool, const Range& range, const World& world, unsigned jobs, const std::string& json) {
  Sum sum;
  sum.next = range.first;
  sum.keeps_rows = !json.empty();
  const std::clock_t worked = std::clock();
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < jobs; ++i) threads.emplace_back([&] { work(sum, range, world); });
  const std::uint64_t count = range.last - range.first + 1;
  std::uint64_t shown = 0;
  while (tool.surroundings().stdout_is_tty) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    std::lock_guard lock(sum.mutex);
    if (sum.seeds == count) break;
    if (sum.seeds == shown) continue;
    shown = sum.seeds;
    std::fputs(fmt::format("\r{} of {} seeds, {} failed ", sum.seeds, count, sum.failed.size()).c_str(), stderr);
  }
  for (std::thread& thread : threads) thread.join();
  if (shown != 0) std::fputs("\r\033[K", stderr);
  const double processor = static_cast<double>(std::clock() - worked) / CLOCKS_PER_SEC;  // of all threads
  const std::string words = fmt::format("sim --seeds {}..{}{}", range.first, range.last, words_of(world));
  if (!json.empty())
    if (const Exit told = write_rows(tool, sum, json, words); told != Exit::done) return told;
  const auto say = [&](const std::string& text) {
    if (json != "-") tool.print(text);
  };
  say(fmt::format(
      "seeds         {:>12}   {}..{}, {:.3f} ms CPU each\n"
      "engines       {:>12}   restarts included; {} clocks run faster than time\n"
      "faults        {:>12}   links, devices, hosts, partitions\n"
      "transfers     {:>12}   {:.1f} % ok, the others failed as they should\n"
      "late frames   {:>12}   of broken links: {} landed before their fence, {} were stopped by it\n"
      "cancel        {:>12}   fenced, {} not: their memory waited for the completion\n"
      "deregister    {:>12}   fenced, {} not\n"
      "garbled       {:>12}   transfers with a checksum, {} failed for it\n"
      "deaths due    {:>12}   killed, frozen and cut-off peers, each noticed in time\n"
      "sends waited  {:>12}   at their sender, since their target had no space\n"
      "done at once  {:>12}   transfers that were complete when submit() returned\n"
      "computations  {:>12}   of callers, longer than their peers' timeout\n"
      "ways          {:>12}   cut in one direction, {} slow, {} that swallow long segments\n"
      "virtual time  {:>10.1f} s   {} events\n"
      "failed        {:>12}\n",
      sum.seeds, range.first, range.last, processor * 1000 / static_cast<double>(sum.seeds), sum.engines,
      sum.met.drifting_clocks, sum.faults, sum.transfers,
      100.0 * static_cast<double>(sum.succeeded) / static_cast<double>(std::max<std::uint64_t>(1, sum.transfers)),
      sum.landed + sum.stopped, sum.landed, sum.stopped, sum.met.cancels_fenced, sum.met.cancels_not_fenced,
      sum.met.deregisters_fenced, sum.met.deregisters_not_fenced, sum.met.garbled, sum.met.mismatches, sum.met.deaths,
      sum.met.sends_held_back, sum.met.moves_at_once, sum.met.computations, sum.met.one_way_cuts, sum.met.slow_paths,
      sum.met.mtu_holes, sum.virtual_seconds, sum.events, sum.failed.size()));
  for (const SimulationReport& report : sum.failed)
    say(fmt::format("\nseed {} failed; replay: {}\n{}", report.seed, replay(report.seed, world), report.failure));
  for (const Meeting& one : kMeetings)
    if (world.faults.empty() && world.drift != 0 && count >= kMeetsAll && sum.met.*one.count == 0)
      return tool.fail(
          fmt::format("the campaign never met {}, so it proves nothing about it; run more seeds", one.what));
  return sum.failed.empty() ? Exit::done : tool.fail(fmt::format("{} seeds break a promise", sum.failed.size()));
}

struct SimOptions {
  std::string seed, seeds, json;
  World world;
  unsigned jobs = std::max(1u, std::thread::hardware_concurrency());
  bool trace = false;
  SimCollectives collectives;
};

}  // namespace

void add_sim(Tool& tool) {
  CLI::App& command =
      tool.add(Group::insight, "sim", "Simulate engines, clocks, sockets and NICs, and check every promise");
  const auto options = std::make_shared<SimOptions>();
  CLI::Option* seed =
      command.add_option("--seed", options->seed, "Run one seed; the same seed repeats the same events (default: 1)");
  CLI::Option* seeds =
      command.add_option("--seeds", options->seeds, "Run the seeds of a range, 1..1000; one number is that seed alone")
          ->excludes(seed);
  command.add_option("--jobs", options->jobs, "Threads of a campaign (default: as many as cores)")
      ->check(CLI::Range(1u, 1024u))
      ->capture_default_str();
  CLI::Option* trace =
      command.add_flag("--trace", options->trace, "With --seed or --collectives: print every event")->excludes(seeds);
  auto* const collectives =
      command
          .add_option(
              "--collectives", options->collectives.ranks,
              "Run every collective with so many ranks, beside what the formulas say: 64,256 (default: a seed instead)")
          ->delimiter(',')
          ->check(CLI::Range(2, 1024))
          ->excludes(seed)
          ->excludes(seeds);
  command
      .add_option("--json", options->json,
                  "With --seed or --seeds: write a row for each seed as JSON; - is standard output")
      ->type_name("FILE")
      ->excludes(trace)
      ->excludes(collectives);
  auto* const svg =
      command
          .add_option("--svg", options->collectives.svg,
                      "With --collectives, of up to 8 ranks: instead draw each collective's messages over time, a "
                      "file for each algorithm in this folder")
          ->type_name("FOLDER")
          ->check(no_empty_name())
          ->excludes(trace)
          ->needs(collectives);
  command
      .add_option("--most-bytes", options->collectives.most_bytes,
                  "With --collectives: the most bytes in a rank's buffer")
      ->capture_default_str()
      ->excludes(svg)
      ->needs(collectives);
  command
      .add_option("--only", options->collectives.only,
                  "With --collectives: these kinds and algorithms: barrier,recursive_doubling (default: all)")
      ->delimiter(',')
      ->check(CLI::IsMember(sim::names_of_calls()))
      ->needs(collectives);
  command
      .add_option("--slot-bytes", options->collectives.slot_bytes,
                  "With --collectives: the longest message; 16 slots of it for each pair of ranks take the memory")
      ->check(CLI::Range(64, 65536))
      ->capture_default_str()
      ->excludes(svg)
      ->needs(collectives);
  command
      .add_option("--per-host", options->collectives.per_host,
                  "With --collectives: consecutive ranks that take themselves for those of one host")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str()
      ->needs(collectives);
  command
      .add_flag("--local-completion", options->collectives.local,
                "With --collectives: those that have a root, each rank of which ends apart from the others")
      ->excludes(svg)
      ->needs(collectives);
  add_names(command, "--faults", options->world.faults,
            "With --seed or --seeds: only faults of these kinds, and at least one a seed (default: the seed's choice)",
            simulated_faults())
      ->excludes(collectives);
  command
      .add_option("--drift", options->world.drift,
                  "With --seed or --seeds: millionths by which a host's clock runs faster than time, at most; 0: all "
                  "clocks run alike")
      ->check(CLI::Range(0u, 100'000u))
      ->capture_default_str()
      ->excludes(collectives);
  command.footer(
      "A host's way to another may be cut, in one direction too, be slow, or swallow long segments; NICs share their "
      "rate among all that read from and write to them, links break, frames come late, hosts are killed and frozen, "
      "and their clocks drift apart. docs/guarantees.md lists the promises that are checked.\n"
      "Examples:\n"
      "  fairway sim --seeds 1..1000                          whatever the seeds choose\n"
      "  fairway sim --seeds 1..1000 --faults mtu_hole,one_way\n"
      "  fairway sim --seeds 1..1000 --drift 10000            clocks that are up to 1 % too fast\n"
      "  fairway sim --seed 7 --trace                         one of them, event by event\n"
      "  fairway sim --collectives 64                         collectives of many ranks, beside the formulas");
  tool.on_run(command, [&tool, options, seed, seeds] {
    options->collectives.trace = options->trace;
    if (!options->collectives.svg.empty()) return draw_collectives(tool, options->collectives);
    if (!options->collectives.ranks.empty()) return simulate_collectives(tool, options->collectives);
    if (Status status = can_write(options->json); !status) return tool.fail(status);
    Range range;
    if (seeds->count() > 0) {
      if (parse_range(options->seeds, range)) return many(tool, range, options->world, options->jobs, options->json);
      return tool.misused(fmt::format("--seeds: '{}' is neither one seed, a number from 1, nor a range such as 1..1000",
                                      options->seeds));
    }
    if (seed->count() > 0 && !parse_seed(options->seed, range.first))
      return tool.misused(fmt::format("--seed: '{}' is no number from 1", options->seed));
    return one(tool, range.first, options->world, options->trace, options->json);
  });
}

}  // namespace fairway::tool
