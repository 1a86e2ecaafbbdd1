#include "soak.h"

#include <chrono>
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "arguments.h"
#include "bench/gpu.h"
#include "bench/rows.h"
#include "command.h"
#include "group_soak.h"
#include "help.h"
#include "interrupt.h"
#include "other_process.h"
#include "rdma_flags.h"
#include "soak_lead.h"
#include "soak_totals.h"

namespace fairway::tool {
namespace soak {

std::vector<std::string> words_of(const Settings& settings) {
  std::vector<std::string> words{"--seed",     fmt::format("{}", settings.seed),
                                 "--engines",  fmt::format("{}", settings.engines),
                                 "--largest",  fmt::format("{}", settings.largest),
                                 "--memories", fmt::format("{}", fmt::join(settings.memories, ",")),
                                 "--faults",   fmt::format("{}", fmt::join(words_of(settings.faults), ","))};
  if (!settings.via.empty()) words.insert(words.end(), {"--via", fmt::format("{}", fmt::join(settings.via, ","))});
  return words;
}

}  // namespace soak

namespace {

using namespace soak;
using Seconds = std::chrono::duration<double>;

struct SoakOptions {
  Settings settings;
  std::string state, json;
  std::vector<std::string> faults{"kill", "freeze", "revoke", "cancel", "deadline"};
  double seconds = 60;
  std::optional<std::uint64_t> round, rounds;
  unsigned process = 0;  // of the one that obeys
};

Result<Settings> settings_of(const SoakOptions& options) {
  Settings settings = options.settings;
  const auto faults = faults_of(options.faults);
  if (!faults) return faults.status();
  settings.faults = *faults;
  if (settings.memories.empty()) {
    settings.memories = {"host", "shared"};
    for (int i = 0; i < bench::gpu_count(); ++i) settings.memories.push_back(fmt::format("gpu:{}", i));
  }
  return settings;
}

// Names in /dev/shm of Fairway's, of any process.
std::uint64_t shared_names() {
  std::uint64_t count = 0;
  std::error_code none;
  for (const auto& each : std::filesystem::directory_iterator("/dev/shm", none))
    count += each.path().filename().string().find("fairway") != std::string::npos ? 1 : 0;
  return count;
}

Exit broken(Tool& tool, const Settings& settings, std::uint64_t round, const std::vector<std::string>& wrong) {
  for (const std::string& each : wrong) tool.print(each + "\n");
  return tool.fail(fmt::format("round {} of seed {} broke a promise: {}; again: fairway soak {} --round {}", round,
                               settings.seed, wrong.front(), fmt::join(words_of(settings), " "), round));
}

Exit run(Tool& tool, const SoakOptions& options) {
  const auto wanted = settings_of(options);
  if (!wanted) return tool.misused(wanted.status().message());
  const Settings& settings = *wanted;
  if (options.round && !options.state.empty())
    return tool.misused("--round shows one round again, outside of what --state adds up: leave out one of them");
  Totals totals;
  if (!options.state.empty()) {
    auto before = load(options.state, settings);
    if (!before && before.status().code() != ErrorCode::not_found) return tool.fail(before.status());
    if (before) totals = std::move(*before);
    if (Status status = can_write(options.state); !status) return tool.fail(status);
  }
  if (Status status = can_write(options.json); !status) return tool.fail(status);
  if (options.round) totals.next = *options.round;
  const Interrupt interrupt;  // Ctrl-C ends the part after its round
  const std::uint64_t names = shared_names();
  std::string holds;
  {
    Lead lead(settings);
    if (Status status = lead.start(); !status) return tool.fail(status);
    const auto at_first = lead.held();
    if (!at_first) return tool.fail(at_first.status());
    bench::Meter meter(tool, false);
    const double seconds_before = totals.seconds;
    const auto begun = std::chrono::steady_clock::now();
    std::uint64_t left = options.round ? 1 : options.rounds.value_or(~std::uint64_t{0});
    for (double seconds = 0; left > 0 && seconds < options.seconds && !interrupt.came(); --left) {
      const Round round = plan_of(settings, totals.next);
      const auto played = lead.play(round);
      if (!played) return broken(tool, settings, round.number, {played.status().to_string()});
      if (!played->wrong.empty()) return broken(tool, settings, round.number, played->wrong);
      totals.add(settings, round, played->ended);
      ++totals.next;
      seconds = Seconds(std::chrono::steady_clock::now() - begun).count();
      totals.seconds = seconds_before + seconds;
      if (!options.state.empty())
        if (Status status = save(options.state, totals, settings); !status) return tool.fail(status);
      const Row all = totals.sum();
      meter(fmt::format("{:.0f} of {:.0f} s: round {}, {} steps, {} MB, {} killed, {} frozen", seconds, options.seconds,
                        round.number, all.steps, all.bytes / 1'000'000, totals.killed, totals.frozen));
    }
    const auto leaks = lead.leaks();
    if (!leaks) return tool.fail(leaks.status());
    if (!leaks->empty()) return tool.fail("something is left behind: " + *leaks);
    const auto at_last = lead.held();
    if (!at_last) return tool.fail(at_last.status());
    holds = fmt::format(
        "Held by all at the beginning and the end of this part: {} and {} descriptors, {} and {} threads, "
        "{} and {} MiB of memory.\n",
        at_first->descriptors, at_last->descriptors, at_first->threads, at_last->threads, at_first->memory_bytes >> 20,
        at_last->memory_bytes >> 20);
  }
  if (const std::uint64_t now = shared_names(); now > names)
    return tool.fail(fmt::format("{} names are left behind in /dev/shm", now - names));
  return bench::tell(tool, {{options.json, json(totals, settings)}}, table(totals) + holds);
}

void add_settings(CLI::App& command, SoakOptions& options) {
  command.add_option("--seed", options.settings.seed, "Seed of all random choices")->capture_default_str();
  command.add_option("--engines", options.settings.engines, "Processes, each with one engine")
      ->check(CLI::Range(2U, 16U))
      ->capture_default_str();
  add_size(command, "--largest", options.settings.largest,
           "Largest transfer in bytes; each memory is four times as large", {8, std::uint64_t{4} << 30})
      ->default_str("8M");
  add_list(command, "--memories", options.settings.memories,
           "Memories of each process, as for `fairway bench --local` (default: host, shared and every GPU)",
           memory_name());
  add_via(command, options.settings.via,
          "Use only these transports, all at once: shm,cuda,verbs,tcp,fabric:PROVIDER,staged:TRANSPORT",
          Via::transports);
  add_names(command, "--faults", options.faults,
            "Faults: kill,freeze (processes), revoke (memory under traffic), cancel,deadline; or none",
            {"kill", "freeze", "revoke", "cancel", "deadline", "none"})
      ->default_str(fmt::format("[{}]", fmt::join(options.faults, ",")));
  add_rdma_flags(command, options.settings.rdma);
}

}  // namespace

void add_soak(Tool& tool) {
  CLI::App& command =
      tool.add(Group::traffic, "soak",
               "Long-running stress test: all memories, processes killed and frozen, every promise checked");
  command.footer(
      "Engines in several processes write, read, send, notify and count between all pairs of memories. Some transfers "
      "are cancelled or have deadlines, processes are killed and frozen, memory is deregistered. Every byte is "
      "verified, "
      "and that no byte moves after a completion. Seed and number alone determine a round: --round repeats it. "
      "docs/soak.md lists the checks.\n"
      "Example:\n"
      "  fairway soak --seconds 600 --seed 7 --state soak.json");
  const auto options = std::make_shared<SoakOptions>();
  add_settings(command, *options);
  command.add_option("--seconds", options->seconds, "Duration of this part")
      ->check(CLI::Range(0.0, 1e7))
      ->capture_default_str();
  command
      .add_option("--state", options->state,
                  "Continue from the state of the last part and add up; written after each round")
      ->type_name("FILE")
      ->check(no_empty_name());
  command
      .add_option("--round", options->round,
                  "Run only this round, to reproduce a failure (default: one after the other)")
      ->type_name("NUMBER");
  command.add_option("--rounds", options->rounds, "Most rounds in this part (default: as many as fit)")
      ->type_name("COUNT")
      ->check(CLI::Range(std::uint64_t{1}, ~std::uint64_t{0}));
  command.add_option("--json", options->json, "Write the rows as JSON; - is standard output")->type_name("FILE");
  tool.on_run(command, [&tool, options] { return run(tool, *options); });

  groups::add_collectives(tool, command);

  CLI::App& peer = tool.add_below(command, "peer", "Be one of the processes");
  peer.group("");  // the soak's own
  const auto obeys = std::make_shared<SoakOptions>();
  add_settings(peer, *obeys);
  peer.add_option("--process", obeys->process);
  tool.on_run(peer, [&tool, obeys] {
    const auto settings = settings_of(*obeys);
    if (!settings) return tool.misused(settings.status().message());
    const Status status = obey(*settings, obeys->process);
    return status ? Exit::done : tool.print(fmt::format("{}{}\n", kCannot, status.message()));
  });
}

}  // namespace fairway::tool
