#include "collectives/nccl/way_table.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "collectives/table_text.h"

namespace fairway::collectives {
namespace {

constexpr std::string_view kWhat = "fairway: ways of collectives on streams";
constexpr int kFormat = 1;
constexpr std::array kKinds{CollectiveKind::all_reduce,     CollectiveKind::broadcast,  CollectiveKind::all_gather,
                            CollectiveKind::reduce_scatter, CollectiveKind::all_to_all, CollectiveKind::reduce,
                            CollectiveKind::gather,         CollectiveKind::scatter};
constexpr std::uint64_t kLongest = 100'000'000'000;  // ns; nothing that was measured takes longer
constexpr std::uint64_t kOfHundred = 97;             // the time of what is faster, at the most

std::optional<WayRow> row_of(const std::string& line) {
  std::istringstream words(line);
  std::string kind, how, more;
  WayRow row;
  if (!(words >> kind >> how >> row.bytes)) return {};
  for (std::uint64_t& ns : row.ns)
    if (!(words >> ns) || ns == 0 || ns > kLongest) return {};
  if (words >> more) return {};
  const auto* const found =
      std::find_if(kKinds.begin(), kKinds.end(), [&](CollectiveKind each) { return to_string(each) == kind; });
  if (found == kKinds.end() || (how != "graph" && how != "launched")) return {};
  row.kind = *found;
  row.captured = how == "graph";
  return row;
}

}  // namespace

bool WayRow::is_faster(GpuWay way) const {
  return ns[static_cast<std::size_t>(way)] * 100 < ns[0] * kOfHundred;
}

std::string WayTable::text(const std::string& key) const {
  std::string out;
  for (const WayRow& row : rows_)
    out += fmt::format("{} {} {} {} {} {}\n", to_string(row.kind), row.captured ? "graph" : "launched", row.bytes,
                       row.ns[0], row.ns[1], row.ns[2]);
  return framed(kWhat, kFormat, key, out);
}

Result<WayTable> WayTable::parse(const std::string& text, const std::string& key) {
  const auto lines = rows_in(text, kWhat, kFormat, key);
  if (!lines) return lines.status();
  WayTable table;
  for (const std::string& line : *lines) {
    const auto row = row_of(line);
    if (!row || table.rows_.size() == kMostRows) return unusable(fmt::format("it has a line that is wrong: {}", line));
    table.add(*row);
  }
  return table;
}

WayTable::Around WayTable::around(CollectiveKind kind, bool captured, std::uint64_t bytes) const {
  Around out;
  for (const WayRow& row : rows_) {
    if (row.kind != kind || row.captured != captured) continue;
    if (row.bytes <= bytes && (out.below == nullptr || row.bytes > out.below->bytes)) out.below = &row;
    if (row.bytes >= bytes && (out.above == nullptr || row.bytes < out.above->bytes)) out.above = &row;
  }
  return out;
}

bool WayTable::takes(GpuWay way, CollectiveKind kind, bool captured, std::uint64_t bytes) const {
  const auto [below, above] = around(kind, captured, bytes);
  if (below == nullptr && above == nullptr) return false;
  return (below == nullptr || below->is_faster(way)) && (above == nullptr || above->is_faster(way));
}

bool WayTable::takes_any(GpuWay way) const {
  return std::any_of(rows_.begin(), rows_.end(), [way](const WayRow& row) { return row.is_faster(way); });
}

std::uint64_t bytes_of_all(const Collective& call, int size) {
  std::uint64_t elements = call.count;
  switch (call.kind) {
    case CollectiveKind::all_gather:
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
    case CollectiveKind::reduce_scatter:
    case CollectiveKind::all_to_all: elements *= static_cast<std::uint64_t>(size); break;
    case CollectiveKind::all_to_allv:  // of this rank
      elements = 0;
      for (const std::size_t count : call.send.counts) elements += count;
      break;
    default: break;
  }
  return elements * size_of(call.type);
}

}  // namespace fairway::collectives
