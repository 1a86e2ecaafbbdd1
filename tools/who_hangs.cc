// fairway who-hangs: which rank keeps the others waiting.
#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "fairway/progress.h"

#include "arguments.h"
#include "bench/rows.h"
#include "command.h"
#include "interrupt.h"
#include "sys/own_folder.h"

namespace fairway::tool {
namespace {

struct WhoHangsOptions {
  double after = 1, watch = 0;
  bool all = false, json = false;
};

std::string json_of(const std::vector<RankProgress>& ranks, const std::vector<std::string>& verdicts) {
  std::vector<bench::Fields> rows;
  for (const std::string& verdict : verdicts) rows.push_back({{"verdict", verdict, true}});
  for (const RankProgress& rank : ranks) {
    const auto number = [](auto value) { return fmt::format("{}", value); };
    rows.push_back({{"communicator", rank.name, true},
                    {"rank", number(rank.rank)},
                    {"size", number(rank.size)},
                    {"process", number(rank.process)},
                    {"lives", number(rank.lives)},
                    {"stopped", number(rank.stopped)},
                    {"operation", number(rank.operation)},
                    {"kind", rank.operation == 0 ? std::string() : std::string(to_string(rank.kind)), true},
                    {"inside", number(rank.inside)},
                    {"phase", rank.phase, true},
                    {"waits_for", rank.waits_for < 0 ? std::string() : number(rank.waits_for)},
                    {"stream", rank.stream < 0 ? std::string() : number(rank.stream)},
                    {"seconds", fmt::format("{:.3f}", rank.seconds)}});
  }
  return bench::json_of("fairway-who-hangs", "fairway who-hangs", rows);
}

std::string on_host(const RankProgress& rank) {
  if (rank.operation == 0) return "has entered no operation";
  return rank.inside ? fmt::format("is in {} {}, {}, for {:.1f} s", to_string(rank.kind), rank.operation, rank.phase,
                                   rank.seconds)
                     : fmt::format("ended {} {} {:.1f} s ago", to_string(rank.kind), rank.operation, rank.seconds);
}

std::string on_stream(const RankProgress& rank) {
  return fmt::format("{} {} {} on stream {}{}", rank.inside ? "is in" : "has waited in", to_string(rank.kind),
                     rank.operation, rank.stream, rank.inside ? fmt::format(", for {:.1f} s", rank.seconds) : "");
}

std::string line_of(const RankProgress& rank) {
  return fmt::format("\"{}\" rank {} of {}, process {}: {}{}{}\n", rank.name, rank.rank, rank.size, rank.process,
                     rank.stream < 0 ? on_host(rank) : on_stream(rank),
                     rank.inside && rank.waits_for >= 0 ? fmt::format(", waits for rank {}", rank.waits_for) : "",
                     !rank.lives    ? "; the process is gone"
                     : rank.stopped ? "; the process is stopped"
                                    : "");
}

Exit run_who_hangs(Tool& tool, const WhoHangsOptions& options) {
  const Interrupt interrupt;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.watch);
  for (;;) {
    const auto ranks = progress_of_ranks();
    const auto verdicts = who_hangs(ranks, options.after);
    std::string text;
    if (options.all)
      for (const RankProgress& rank : ranks) text += line_of(rank);
    for (const std::string& verdict : verdicts) text += verdict + "\n";
    const bool over = !verdicts.empty() || std::chrono::steady_clock::now() >= end || Interrupt::came();
    if (over) {
      if (verdicts.empty())
        text +=
            fmt::format("{} ranks of collectives here, none has waited for {:g} s\n",
                        std::ranges::count_if(ranks, [](const auto& rank) { return rank.lives && rank.stream < 0; }),
                        options.after);
      for (const auto& folder : sys::foreign_folders("/dev/shm"))
        text += fmt::format("note: {} is another user's: your ranks tell where they are in the next free one\n",
                            folder.string());
      const Exit printed = tool.print(options.json ? json_of(ranks, verdicts) : text);
      return Interrupt::came() ? Exit::interrupted : verdicts.empty() ? printed : Exit::failed;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace

void add_who_hangs(Tool& tool) {
  CLI::App& command = tool.add(Group::insight, "who-hangs", "Say which rank keeps the others of a collective waiting");
  const auto options = std::make_shared<WhoHangsOptions>();
  command.add_option("--after", options->after, "Seconds that a rank must have waited")
      ->check(number_in(0.0, 1e6))
      ->capture_default_str();
  command.add_option("--watch", options->watch, "Repeat for so many seconds, until a rank hangs (default: look once)")
      ->check(number_in(0.0, 1e6));
  command.add_flag("--all", options->all, "Print where every rank is, too");
  command.add_flag("--json", options->json, "Print where every rank is, and who hangs, as JSON");
  command.footer(
      "It reads what your ranks on this host publish in /dev/shm, and does not disturb them. Exit 1: a rank hangs.\n"
      "Examples:\n"
      "  fairway who-hangs --all                      where every rank is, too\n"
      "  fairway who-hangs --watch 3600 --after 30    until one has kept the others waiting for half a minute");
  tool.on_run(command, [&tool, options] { return run_who_hangs(tool, *options); });
}

}  // namespace fairway::tool
