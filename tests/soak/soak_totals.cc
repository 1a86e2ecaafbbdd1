#include "soak_totals.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bench/bench.h"
#include "bench/rows.h"
#include "command.h"

namespace fairway::tool::soak {
namespace {

constexpr const char* kFirst = "fairway-soak 1";

std::string flags_of(const Settings& settings) {
  return fmt::format("{}", fmt::join(words_of(settings), " "));
}

std::string causes(const Row& row, const char* between) {
  std::vector<std::string> words;
  for (const auto& [cause, count] : row.failed) words.push_back(fmt::format("{}={}", cause, count));
  return fmt::format("{}", fmt::join(words, between));
}

double rate(const Row& row) {
  return row.nanoseconds == 0 ? 0 : static_cast<double>(row.bytes) / static_cast<double>(row.nanoseconds) * 1e9;
}

std::string bytes_text(std::uint64_t bytes) {
  const double value = static_cast<double>(bytes);
  return bytes < 10'000'000       ? fmt::format("{:.1f} KB", value / 1e3)
         : bytes < 10'000'000'000 ? fmt::format("{:.1f} MB", value / 1e6)
                                  : fmt::format("{:.1f} GB", value / 1e9);
}

std::string table_row(const std::string& from, const std::string& to, const std::string& what, const Row& row) {
  return fmt::format("{:<14} {:<14} {:<18} {:>10} {:>12} {:>8} {:>9} {:>10.1f}  {}\n", from, to, what, row.steps,
                     bytes_text(row.bytes), rate(row) > 0 ? bench::rate_text(rate(row)) : "", row.cancelled,
                     static_cast<double>(row.longest) / 1e6, causes(row, ", "));
}

}  // namespace

void Totals::add(const Settings& settings, const Round& round, const std::vector<std::optional<Ended>>& ended) {
  for (const Step& step : round.steps) {
    Row& row = rows[{is_atomic(step.kind) ? "-" : settings.memories[step.from.memory],
                     settings.memories[step.to.memory], step.what()}];
    ++row.steps;
    const auto& end = ended[step.index];
    if (!end) {
      ++row.failed["killed"];
      continue;
    }
    row.longest = std::max(row.longest, end->nanoseconds);
    if (end->ok()) {
      row.bytes += step.bytes();
      row.nanoseconds += end->nanoseconds;
    } else if (end->code == ErrorCode::cancelled) {
      ++row.cancelled;
    } else {
      ++row.failed[std::string(to_string(end->code))];
    }
  }
  ++rounds;
  killed += round.fault.kind == Fault::Kind::kill ? 1 : 0;
  frozen += round.fault.kind == Fault::Kind::freeze ? 1 : 0;
  revoked += round.fault.kind == Fault::Kind::revoke ? 1 : 0;
}

Row Totals::sum() const {
  Row all;
  for (const auto& [name, row] : rows) {
    all.steps += row.steps;
    all.bytes += row.bytes;
    all.cancelled += row.cancelled;
    all.nanoseconds += row.nanoseconds;
    all.longest = std::max(all.longest, row.longest);
    for (const auto& [cause, count] : row.failed) all.failed[cause] += count;
  }
  return all;
}

std::string table(const Totals& totals) {
  std::string text = fmt::format("{:<14} {:<14} {:<18} {:>10} {:>12} {:>8} {:>9} {:>10}  {}\n", "from", "to",
                                 "operation", "steps", "bytes", "GB/s", "cancelled", "longest ms", "failed");
  for (const auto& [name, row] : totals.rows)
    text += table_row(std::get<0>(name), std::get<1>(name), std::get<2>(name), row);
  text += table_row("all", "", "", totals.sum());
  return text + fmt::format(
                    "\n{} rounds in {:.0f} s: {} processes killed and started again, {} frozen, {} memories taken back "
                    "under traffic.\nGB/s: of one transfer beside all the others, until its end was seen. Every byte "
                    "was verified, and what lies between.\n",
                    totals.rounds, totals.seconds, totals.killed, totals.frozen, totals.revoked);
}

std::string json(const Totals& totals, const Settings& settings) {
  std::vector<bench::Fields> rows;
  const auto add = [&](const std::string& from, const std::string& to, const std::string& what, const Row& row) {
    bench::Fields fields{{"from", from, true},
                         {"to", to, true},
                         {"operation", what, true},
                         {"steps", fmt::format("{}", row.steps)},
                         {"bytes", fmt::format("{}", row.bytes)},
                         {"bytes_per_second", fmt::format("{:.0f}", rate(row))},
                         {"cancelled", fmt::format("{}", row.cancelled)},
                         {"longest_ms", fmt::format("{:.3f}", static_cast<double>(row.longest) / 1e6)},
                         {"failed", causes(row, " "), true}};
    rows.push_back(std::move(fields));
  };
  for (const auto& [name, row] : totals.rows) add(std::get<0>(name), std::get<1>(name), std::get<2>(name), row);
  add("all", "all", "all", totals.sum());
  for (const auto& [name, count] : {std::pair("rounds", totals.rounds),
                                    {"killed", totals.killed},
                                    {"frozen", totals.frozen},
                                    {"revoked", totals.revoked}})
    rows.back().push_back({name, fmt::format("{}", count)});
  rows.back().push_back({"seconds", fmt::format("{:.1f}", totals.seconds)});
  return bench::json_of("fairway-soak", "soak " + flags_of(settings), rows);
}

Status save(const std::string& path, const Totals& totals, const Settings& settings) {
  std::string text =
      fmt::format("{}\nsettings {}\ntotals {} {} {} {} {} {:.3f}\n", kFirst, flags_of(settings), totals.next,
                  totals.rounds, totals.killed, totals.frozen, totals.revoked, totals.seconds);
  for (const auto& [name, row] : totals.rows)
    text +=
        fmt::format("row\t{}\t{}\t{}\t{} {} {} {} {}\t{}\n", std::get<0>(name), std::get<1>(name), std::get<2>(name),
                    row.steps, row.bytes, row.cancelled, row.nanoseconds, row.longest, causes(row, " "));
  const std::string fresh = path + ".new";
  if (Status status = write_file(fresh, text); !status) return status;
  if (std::rename(fresh.c_str(), path.c_str()) == 0) return {};
  return {ErrorCode::system_error, fmt::format("{}: {}", path, std::strerror(errno))};
}

Result<Totals> load(const std::string& path, const Settings& settings) {
  std::ifstream file(path);
  if (!file) {
    if (errno == ENOENT) return Status(ErrorCode::not_found, path);
    return Status(ErrorCode::system_error, fmt::format("{}: {}", path, std::strerror(errno)));
  }
  const Status broken(ErrorCode::invalid_argument,
                      fmt::format("{}: it is not what `fairway soak --state` wrote; name another file", path));
  std::string line;
  if (!std::getline(file, line) || line != kFirst) return broken;
  if (!std::getline(file, line) || !line.starts_with("settings ")) return broken;
  if (line.substr(9) != flags_of(settings))
    return Status(ErrorCode::invalid_argument,
                  fmt::format("{} is of another soak: go on with {}, or name another file", path, line.substr(9)));
  Totals totals;
  std::string word;
  if (!std::getline(file, line)) return broken;
  std::istringstream first(line);
  if (!(first >> word >> totals.next >> totals.rounds >> totals.killed >> totals.frozen >> totals.revoked >>
        totals.seconds) ||
      word != "totals")
    return broken;
  while (std::getline(file, line)) {
    std::istringstream parts(line);
    std::string from, to, what, numbers, failed;
    if (!std::getline(parts, word, '\t') || word != "row" || !std::getline(parts, from, '\t') ||
        !std::getline(parts, to, '\t') || !std::getline(parts, what, '\t') || !std::getline(parts, numbers, '\t'))
      return broken;
    std::getline(parts, failed);
    Row& row = totals.rows[{from, to, what}];
    std::istringstream values(numbers);
    if (!(values >> row.steps >> row.bytes >> row.cancelled >> row.nanoseconds >> row.longest)) return broken;
    std::istringstream words(failed);
    for (std::string cause; words >> cause;) {
      const std::size_t equals = cause.find('=');
      if (equals == std::string::npos) return broken;
      row.failed[cause.substr(0, equals)] = std::strtoull(cause.c_str() + equals + 1, nullptr, 10);
    }
  }
  return totals;
}

}  // namespace fairway::tool::soak
