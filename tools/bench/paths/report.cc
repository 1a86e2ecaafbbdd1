#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "bench/bench.h"
#include "bench/rows.h"

namespace fairway::tool::bench {
namespace {

std::string microseconds(double us) {
  return us >= 1000 ? fmt::format("{:.0f}", us) : us >= 100 ? fmt::format("{:.1f}", us) : fmt::format("{:.2f}", us);
}

std::string ratio(const Row& row) {
  return row.roof_us == 0 ? "" : fmt::format("{:.2f}", row.roof_us / row.p50_us);
}

std::string expected(const Row& row) {
  if (row.expected.low <= 0) return "";
  return fmt::format(", expected {} to {} GB/s ({})", rate_text(row.expected.low), rate_text(row.expected.high),
                     row.expected.bound);
}

std::string what(const Row& row) {
  return row.pages == 0 ? size_text(row.size) : fmt::format("{} x {}", row.pages, size_text(row.size));
}

std::string key(const Row& row) {
  return fmt::format("{:<7} {:>12}", name_of(row.operation), what(row));
}

// Of a comparison.
std::string column(const Row& row) {
  return row.path + " " + row.from + (row.memory.empty() ? "" : " (" + row.memory + ")");
}

Fields fields(const Row& row) {
  return {{"path", row.path, true},
          {"from", row.from, true},
          {"to", row.to, true},
          {"operation", name_of(row.operation), true},
          {"bytes", fmt::format("{}", row.size)},
          {"pages", fmt::format("{}", row.pages)},
          {"depth", fmt::format("{}", row.depth)},
          {"rounds", fmt::format("{}", row.rounds)},
          {"p50_us", fmt::format("{:.3f}", row.p50_us)},
          {"p99_us", fmt::format("{:.3f}", row.p99_us)},
          {"bytes_per_second", fmt::format("{:.0f}", row.bytes_per_second)},
          {"peak_bytes_per_second", fmt::format("{:.0f}", row.peak_bytes_per_second)},
          {"cpu_seconds_per_gib", fmt::format("{:.4f}", row.cpu_seconds_per_gib)},
          {"copies_per_byte", fmt::format("{:.3f}", row.copies_per_byte)},
          {"system_calls_per_operation", fmt::format("{:.3f}", row.calls_per_operation)},
          {"roof", row.roof, true},
          {"roof_p50_us", known(row.roof_us, 3)},
          {"expected_low_bytes_per_second", known(row.expected.low, 0)},
          {"expected_high_bytes_per_second", known(row.expected.high, 0)},
          {"verified_bytes", fmt::format("{}", row.verified_bytes)},
          {"memory", row.memory, true},
          {"path_description", row.path_description, true},
          {"cores_busy", row.busy.empty() ? "false" : "true"},
          {"p99_cores_busy", row.busy.empty() && !row.late ? "false" : "true"},
          {"involuntary_switches_per_second", fmt::format("{:.1f}", row.cores.switches_per_second)},
          {"stolen_share", fmt::format("{:.3f}", row.cores.stolen)}};
}

std::string head_of(const Row& row) {
  return row.path + " " + row.from + " " + row.to + " " + row.memory;
}

}  // namespace

std::string rate_text(double bytes_per_second) {
  const double gb = bytes_per_second / 1e9;
  return gb >= 10 ? fmt::format("{:.1f}", gb) : gb >= 0.1 ? fmt::format("{:.2f}", gb) : fmt::format("{:.4f}", gb);
}

std::string size_text(std::uint64_t bytes) {
  if (bytes >= 1 << 20 && bytes % (1 << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  if (bytes >= 1 << 10 && bytes % (1 << 10) == 0) return fmt::format("{} KiB", bytes >> 10);
  return fmt::format("{} B", bytes);
}

std::string table_row(const std::vector<Row>& rows) {
  const Row& row = rows.back();
  const bool first = rows.size() == 1;
  std::string text;
  if (first || head_of(row) != head_of(rows[rows.size() - 2]))
    text =
        fmt::format("{}{}, from {} to {}{}{}{}\n{}{:>20} {:>9} {:>9} {:>8} {:>10} {:>9} {:>6}\n", first ? "" : "\n",
                    row.path, row.from, row.to, row.memory.empty() ? "" : fmt::format(" ({})", row.memory),
                    row.roof.empty() ? "" : "; roof: " + row.roof, expected(row),
                    row.path_description.empty() || row.path_description == row.path ? "" : row.path_description + "\n",
                    "", "p50 us", "p99 us", "GB/s", "CPU s/GiB", "roof us", "ratio");
  return text + fmt::format("{} {:>9} {:>9} {:>8} {:>10} {:>9} {:>6}{}\n", key(row), microseconds(row.p50_us),
                            microseconds(row.p99_us), rate_text(row.bytes_per_second),
                            fmt::format("{:.2f}", row.cpu_seconds_per_gib),
                            row.roof_us == 0 ? "-" : microseconds(row.roof_us),
                            row.roof_us == 0 || !row.busy.empty() ? "-" : ratio(row),
                            !row.busy.empty() ? "  cores busy"
                            : row.late        ? "  p99: cores busy"
                                              : "");
}

std::string table_end(const std::vector<Row>& rows) {
  double verified = 0;
  for (const Row& row : rows) verified += static_cast<double>(row.verified_bytes);
  const std::uint64_t depth = rows.empty() ? 1 : rows.front().depth;
  return fmt::format(
      "\n{}\n"
      "ratio: roof / p50, 1 is as fast as this machine goes. CPU: of both processes.\n"
      "{:.1f} GiB arrived, every byte of it compared with what belongs there.\n",
      depth == 1 ? "One operation at a time. send, notify, count: half of a round trip."
                 : fmt::format("{} operations in flight; times are per operation.", depth),
      verified / (1 << 30));
}

std::string comparison(const std::vector<Row>& rows) {
  std::vector<std::string> paths;
  std::vector<std::string> keys;
  for (const Row& row : rows) {
    const std::string path = column(row);
    if (std::ranges::find(paths, path) == paths.end()) paths.push_back(path);
    if (std::ranges::find(keys, key(row)) == keys.end()) keys.push_back(key(row));
  }
  std::string text = fmt::format("{:>20}", "");
  for (const std::string& path : paths) text += fmt::format(" | {:^43}", path);
  text += fmt::format("\n{:>20}", "");
  for (std::size_t i = 0; i < paths.size(); ++i)
    text += fmt::format(" | {:>8} {:>8} {:>9} {:>7} {:>7}", "p50 us", "GB/s", "CPU s/GiB", "copies", "calls");
  text += '\n';
  for (const std::string& each : keys) {
    text += each;
    for (const std::string& path : paths) {
      const auto row = std::ranges::find_if(
          rows, [&](const Row& candidate) { return key(candidate) == each && column(candidate) == path; });
      if (row == rows.end())
        text += fmt::format(" | {:>43}", "");
      else
        text += fmt::format(" | {:>8} {:>8} {:>9.2f} {:>7.2f} {:>7.2f}", microseconds(row->p50_us),
                            rate_text(row->bytes_per_second), row->cpu_seconds_per_gib, row->copies_per_byte,
                            row->calls_per_operation);
    }
    text += '\n';
  }
  return text +
         "\ncopies: made by Fairway for each byte, beside the one that moves it.\n"
         "calls: system calls of an operation. Both are counted in both processes.\n";
}

std::string csv(const std::vector<Row>& rows) {
  std::vector<Fields> all;
  for (const Row& row : rows) all.push_back(fields(row));
  return csv_of(all);
}

std::string json(const std::vector<Row>& rows, const std::string& command, bool complete) {
  std::vector<Fields> all;
  for (const Row& row : rows) all.push_back(fields(row));
  return json_of("fairway-bench", command, all, complete);
}

}  // namespace fairway::tool::bench
