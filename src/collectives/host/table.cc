#include "collectives/host/table.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <sstream>

#include <fmt/format.h>

#include "collectives/host/choose.h"
#include "collectives/table_text.h"

namespace fairway::collectives {
namespace {

constexpr std::string_view kHostWhat = "fairway: algorithms of collectives on host memory";
constexpr int kHostFormat = 1;
constexpr std::uint64_t kLongestOfHosts = 10'000'000'000;  // ns; times a row's bytes it stays below 2^62
constexpr int kMostOver = 16;

std::optional<Algorithm> algorithm_named(const std::string& name, CollectiveKind kind) {
  for (int i = 1; i <= static_cast<int>(Algorithm::hierarchical); ++i)
    if (const auto each = static_cast<Algorithm>(i); to_string(each) == name && has_algorithm(kind, each, false))
      return each;
  return {};
}

// "all_reduce 2048 one_shot 5120 direct 4096"
std::optional<HostRow> host_row_of(const std::string& line) {
  std::istringstream words(line);
  std::string kind, name;
  HostRow row;
  if (!(words >> kind >> row.bytes) || row.bytes > Fastest::kMost) return {};
  const auto* const found = std::find_if(Fastest::kKinds.begin(), Fastest::kKinds.end(),
                                         [&](CollectiveKind each) { return to_string(each) == kind; });
  if (found == Fastest::kKinds.end()) return {};
  row.kind = *found;
  while (words >> name) {
    const auto algorithm = algorithm_named(name, row.kind);
    std::uint64_t ns = 0;
    if (!algorithm || !(words >> ns) || ns == 0 || ns > kLongestOfHosts || row.of(*algorithm) != 0) return {};
    row.ns.emplace_back(*algorithm, ns);
  }
  return row.ns.empty() ? std::nullopt : std::optional(std::move(row));
}

std::size_t index_of(CollectiveKind kind) {
  return static_cast<std::size_t>(std::find(Fastest::kKinds.begin(), Fastest::kKinds.end(), kind) -
                                  Fastest::kKinds.begin());
}

}  // namespace

std::uint64_t HostRow::of(Algorithm algorithm) const {
  for (const auto& [each, time] : ns)
    if (each == algorithm) return time;
  return 0;
}

std::uint64_t Fastest::bytes_at(std::size_t point) {
  const std::uint64_t whole = kLeast << point / 2;
  return point % 2 == 0 ? whole : whole * 141421 / 100000;
}

std::size_t Fastest::point_of(std::uint64_t bytes) {
  bytes = std::clamp(bytes, kLeast, kMost);
  const std::size_t whole = 2 * (static_cast<std::size_t>(std::bit_width(bytes / kLeast)) - 1);
  return bytes >= bytes_at(whole + 1) ? whole + 1 : whole;
}

Algorithm Fastest::at(CollectiveKind kind, std::uint64_t bytes) const {
  const std::size_t index = index_of(kind);
  if (index == kKinds.size()) return Algorithm::automatic;
  const std::uint8_t found = all_[index * kPoints + point_of(bytes)];
  const auto algorithm = static_cast<Algorithm>(found);
  return found != kNone && has_algorithm(kind, algorithm, false) ? algorithm : Algorithm::automatic;
}

void Fastest::set(CollectiveKind kind, std::size_t point, Algorithm algorithm) {
  if (const std::size_t index = index_of(kind); index != kKinds.size() && algorithm != Algorithm::automatic)
    all_[index * kPoints + point] = static_cast<std::uint8_t>(algorithm);
}

std::string HostTable::text(const std::string& key) const {
  std::string out = fmt::format("over {}\n", over_);
  for (const HostRow& row : rows_) {
    out += fmt::format("{} {}", to_string(row.kind), row.bytes);
    for (const auto& [algorithm, ns] : row.ns) out += fmt::format(" {} {}", to_string(algorithm), ns);
    out += '\n';
  }
  return framed(kHostWhat, kHostFormat, key, out);
}

Result<HostTable> HostTable::parse(const std::string& text, const std::string& key) {
  const auto lines = rows_in(text, kHostWhat, kHostFormat, key);
  if (!lines) return lines.status();
  int over = -1;
  std::string word;
  if (lines->empty() || !(std::istringstream(lines->front()) >> word >> over) || word != "over" || over < 0 ||
      over > kMostOver)
    return unusable("it does not say over which links");
  HostTable table(over);
  for (std::size_t i = 1; i < lines->size(); ++i) {
    auto row = host_row_of((*lines)[i]);
    if (!row || table.rows_.size() == kMostRows)
      return unusable(fmt::format("it has a line that is wrong: {}", (*lines)[i]));
    table.add(std::move(*row));
  }
  return table;
}

std::pair<const HostRow*, const HostRow*> HostTable::around(CollectiveKind kind, std::uint64_t bytes) const {
  const HostRow *below = nullptr, *above = nullptr;
  for (const HostRow& row : rows_) {
    if (row.kind != kind) continue;
    if (row.bytes <= bytes && (below == nullptr || row.bytes > below->bytes)) below = &row;
    if (row.bytes >= bytes && (above == nullptr || row.bytes < above->bytes)) above = &row;
  }
  return {below, above};
}

Algorithm HostTable::fastest_at(CollectiveKind kind, std::uint64_t bytes) const {
  const auto [below, above] = around(kind, bytes);
  if (below == nullptr && above == nullptr) return Algorithm::automatic;
  const HostRow& low = below == nullptr ? *above : *below;
  const HostRow& high = above == nullptr ? *below : *above;
  Algorithm best = Algorithm::automatic;
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (const auto& [algorithm, ns] : low.ns) {
    const std::uint64_t end = high.of(algorithm);
    if (end == 0) continue;
    const std::uint64_t time =
        low.bytes == high.bytes ? ns : ns * (high.bytes - bytes) + end * (bytes - low.bytes);  // times the distance
    if (time >= least) continue;
    least = time;
    best = algorithm;
  }
  return best;
}

Fastest HostTable::fastest() const {
  Fastest out;
  for (const CollectiveKind kind : Fastest::kKinds)
    for (std::size_t point = 0; point < Fastest::kPoints; ++point)
      out.set(kind, point, fastest_at(kind, Fastest::bytes_at(point)));
  return out;
}

}  // namespace fairway::collectives
