#include "group_soak.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include <fmt/format.h>
#include <sys/mman.h>

#include "arguments.h"
#include "bench/rows.h"
#include "command.h"
#include "group_lead.h"
#include "help.h"
#include "interrupt.h"

namespace fairway::tool::soak::groups {
namespace {

using Seconds = std::chrono::duration<double>;
constexpr const char* kFirst = "fairway-soak-collectives 1";

// What all parts together have done. A value.
struct Totals {
  std::uint64_t lives = 0, rounds = 0, messages = 0, groups = 0, bytes = 0, failed = 0, milliseconds = 0;
  std::array<std::uint64_t, 10> operations{};
  std::array<std::uint64_t, kHappenings> happened{}, longest_us{};

  template <class Each>
  void visit(const Each& each) {
    for (std::uint64_t* one : {&lives, &rounds, &messages, &groups, &bytes, &failed, &milliseconds}) each(*one);
    for (auto* array : {&operations, &happened, &longest_us})
      for (std::uint64_t& one : *array) each(one);
  }

  void add(const Life& life, const Board& board) {
    ++lives;
    rounds += life.rounds.size();
    for (const Round& round : life.rounds) ++happened[static_cast<std::size_t>(round.what)];
    for (std::size_t i = 0; i < operations.size(); ++i) operations[i] += board.operations[i];
    for (std::size_t i = 0; i < longest_us.size(); ++i)
      longest_us[i] = std::max<std::uint64_t>(longest_us[i], board.longest_us[i]);
    messages += board.messages;
    groups += board.groups;
    bytes += board.bytes;
    failed += board.failed;
  }
};

std::string table(const Totals& totals) {
  std::string text = "operation        ok on ranks\n";
  for (std::size_t i = 0; i < totals.operations.size(); ++i)
    text += fmt::format("{:<16} {:>11}\n", to_string(static_cast<CollectiveKind>(i)), totals.operations[i]);
  text += "\nin a round          rounds  longest ms\n";
  for (std::size_t i = 0; i < kHappenings; ++i)
    text += fmt::format("{:<16} {:>9} {:>11.1f}\n", to_string(static_cast<Happening>(i)), totals.happened[i],
                        static_cast<double>(totals.longest_us[i]) / 1e3);
  return text + fmt::format(
                    "\n{} rounds of {} lives in {:.0f} s: {} messages, {} groups within groups, {} operations ended by "
                    "a fault. {:.1f} GB were compared, and every byte was right.\n",
                    totals.rounds, totals.lives, static_cast<double>(totals.milliseconds) / 1e3, totals.messages,
                    totals.groups, totals.failed, static_cast<double>(totals.bytes) / 1e9);
}

std::string json(const Totals& totals, const Settings& settings) {
  const auto number = [](std::uint64_t value) { return fmt::format("{}", value); };
  std::vector<bench::Fields> rows;
  for (std::size_t i = 0; i < totals.operations.size(); ++i)
    rows.push_back({{"operation", std::string(to_string(static_cast<CollectiveKind>(i))), true},
                    {"ok_on_ranks", number(totals.operations[i])}});
  for (std::size_t i = 0; i < kHappenings; ++i)
    rows.push_back({{"happening", std::string(to_string(static_cast<Happening>(i))), true},
                    {"rounds", number(totals.happened[i])},
                    {"longest_ms", fmt::format("{:.3f}", static_cast<double>(totals.longest_us[i]) / 1e3)}});
  rows.push_back({{"rounds", number(totals.rounds)},
                  {"lives", number(totals.lives)},
                  {"seconds", fmt::format("{:.1f}", static_cast<double>(totals.milliseconds) / 1e3)},
                  {"messages", number(totals.messages)},
                  {"groups", number(totals.groups)},
                  {"failed", number(totals.failed)},
                  {"bytes", number(totals.bytes)}});
  return bench::json_of("fairway-soak-collectives", "soak collectives " + words_of(settings), rows, !Interrupt::came());
}

Status save(const std::string& path, Totals totals, const Settings& settings) {
  std::string text = fmt::format("{}\n{}\n", kFirst, words_of(settings));
  totals.visit([&text](std::uint64_t one) { text += fmt::format("{} ", one); });
  const std::string fresh = path + ".new";
  if (Status status = write_file(fresh, text + "end\n"); !status) return status;
  if (std::rename(fresh.c_str(), path.c_str()) == 0) return {};
  return {ErrorCode::system_error, fmt::format("{}: {}", path, std::strerror(errno))};
}

// not_found: there is none yet.
Result<Totals> load(const std::string& path, const Settings& settings) {
  std::ifstream file(path);
  if (!file && errno == ENOENT) return Status(ErrorCode::not_found, path);
  if (!file) return Status(ErrorCode::system_error, fmt::format("{}: {}", path, std::strerror(errno)));
  std::string first, words, end;
  Totals totals;
  bool whole = std::getline(file, first) && first == kFirst && std::getline(file, words);
  if (whole && words != words_of(settings))
    return Status(ErrorCode::invalid_argument,
                  fmt::format("{} is of another soak: go on with {}, or name another file", path, words));
  totals.visit([&](std::uint64_t& one) { whole = whole && file >> one; });
  if (!whole || !(file >> end) || end != "end")
    return Status(ErrorCode::invalid_argument,
                  fmt::format("{}: it is not what `fairway soak collectives --state` wrote; name another file", path));
  return totals;
}

struct Options {
  Settings settings;
  std::string state, json;
  double seconds = 60;
  std::optional<std::uint64_t> rounds, life;
};

struct Unmap {
  void operator()(Board* board) const { ::munmap(board, sizeof(Board)); }
};

// A page that children share.
std::unique_ptr<Board, Unmap> make_board() {
  void* const memory = ::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return std::unique_ptr<Board, Unmap>(memory == MAP_FAILED ? nullptr : new (memory) Board);
}

Exit run(Tool& tool, Options options) {
  const Settings& settings = options.settings;
  if (options.life && !options.state.empty())
    return tool.misused("--life shows one life again, outside of what --state adds up: leave out one of them");
  Totals totals;
  if (!options.state.empty()) {
    auto before = load(options.state, settings);
    if (!before && before.status().code() != ErrorCode::not_found) return tool.fail(before.status());
    if (before) totals = *before;
    if (Status status = can_write(options.state); !status) return tool.fail(status);
  }
  if (Status status = can_write(options.json); !status) return tool.fail(status);
  const Interrupt interrupt;
  bench::Meter meter(tool, false);
  const auto begun = std::chrono::steady_clock::now();
  const std::uint64_t before_ms = totals.milliseconds, rounds_before = totals.rounds;
  for (;;) {
    const double seconds = Seconds(std::chrono::steady_clock::now() - begun).count();
    if (options.life ? totals.lives > 0 : seconds >= options.seconds) break;
    if (options.rounds && totals.rounds - rounds_before >= *options.rounds) break;
    const Life life = life_of(settings, options.life.value_or(totals.lives));
    meter(fmt::format("{:.0f} of {:.0f} s: {} rounds; life {} has {} ranks by {}", seconds, options.seconds,
                      totals.rounds, life.number, life.ranks, life.transport));
    const auto board = make_board();
    if (!board) return tool.fail("no memory for what the processes share");
    const Lived lived = lead(life, *board);
    if (lived.interrupted) break;
    if (!lived.wrong.empty())
      return tool.fail(fmt::format(
          "life {} of seed {}, {} ranks by {}: {}; again: fairway soak collectives {} --life {}", life.number,
          settings.seed, life.ranks, life.transport, lived.wrong, words_of(settings), life.number));
    totals.add(life, *board);
    totals.milliseconds =
        before_ms + static_cast<std::uint64_t>(Seconds(std::chrono::steady_clock::now() - begun).count() * 1e3);
    if (!options.state.empty())
      if (Status status = save(options.state, totals, settings); !status) return tool.fail(status);
  }
  meter.clear();
  const Exit printed = bench::tell(tool, {{options.json, json(totals, settings)}}, table(totals));
  return Interrupt::came() ? Exit::interrupted : printed;
}

}  // namespace

void add_collectives(Tool& tool, CLI::App& soak) {
  CLI::App& command =
      tool.add_below(soak, "collectives", "The same for collectives: ranks killed, frozen, split and grown");
  command.footer(
      "Processes form a communicator and call collectives of every kind, type and reduction, with sizes around those "
      "where another algorithm is taken. Ranks are killed and stopped under the operations; the others shrink, go on, "
      "and take new ones in. Every byte of every result is compared, and that each error names the rank at fault. A "
      "life "
      "is 200 rounds of one job; seed and number alone determine it. docs/soak.md lists the checks.\n"
      "Example:\n"
      "  fairway soak collectives --seconds 600 --ranks 4 --via shm");
  const auto options = std::make_shared<Options>();
  command.add_option("--seed", options->settings.seed, "Seed of all random choices")->capture_default_str();
  command.add_option("--ranks", options->settings.ranks, "Most ranks of a life")
      ->check(CLI::Range(1, kMostRanks))
      ->capture_default_str();
  add_size(command, "--largest", options->settings.largest, "Largest block in bytes", {64, std::uint64_t{256} << 20})
      ->default_str("1M");
  add_via(command, options->settings.via, "Transports; each life uses one of them", Via::transports)
      ->default_str("shm,tcp");
  command.add_option("--seconds", options->seconds, "Duration of this part; its last life is finished")
      ->check(CLI::Range(0.0, 1e7))
      ->capture_default_str();
  command
      .add_option("--rounds", options->rounds,
                  "Most rounds in this part; its last life is finished (default: as many as fit)")
      ->type_name("COUNT")
      ->check(CLI::Range(std::uint64_t{1}, ~std::uint64_t{0}));
  command
      .add_option("--state", options->state,
                  "Continue from the state of the last part and add up; written after each life")
      ->type_name("FILE")
      ->check(no_empty_name());
  command.add_option("--json", options->json, "Write the rows as JSON; - is standard output")->type_name("FILE");
  command
      .add_option("--life", options->life, "Run only this life, to reproduce a failure (default: one after the other)")
      ->type_name("NUMBER");
  tool.on_run(command, [&tool, options] { return run(tool, *options); });
}

}  // namespace fairway::tool::soak::groups
