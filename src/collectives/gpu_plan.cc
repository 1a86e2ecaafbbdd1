#include "collectives/gpu_plan.h"

#include <algorithm>

namespace fairway::collectives::gpu {
namespace {

constexpr std::uint64_t kUnitsBytes = 6U << 20, kWideBytes = 2560U << 10, kNarrowBytes = 384U << 10;
constexpr std::uint32_t kNarrowChannels = 16;
constexpr std::uint64_t kLine = 128;
constexpr std::uint64_t kMuch = 1U << 20;  // from here on a wide area is worth having

// What a block of a kernel does at the least, so that few bytes do not take many blocks.
constexpr std::uint64_t kUnitsOfBlock = 256, kBytesOfBlock = 16U << 10;

std::uint64_t lines(std::uint64_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine;
}

}  // namespace

Layout layout_of(int size) {
  Layout layout;
  layout.size = static_cast<std::uint32_t>(size);
  layout.units_at = Layout::place_at(Layout::kPlaces);
  const std::uint64_t each = kUnitsBytes / (Layout::kPlaces * kUnitChannels * 2 * layout.size) / kLine * kLine;
  layout.units = static_cast<std::uint32_t>(each / 16);
  layout.units_stride = each * kUnitChannels * 2 * layout.size;
  std::uint64_t at = layout.units_at + Layout::kPlaces * layout.units_stride;
  for (std::uint32_t i = 0; i < Layout::kWideAreas + Layout::kNarrowAreas; ++i) {
    const bool wide = i < Layout::kWideAreas;
    Layout::Area area;
    area.channels = wide ? kPieceChannels : kNarrowChannels;
    area.flags_at = at;
    area.pieces_at = at + lines(std::uint64_t{area.channels} * layout.size * sizeof(std::uint64_t));
    const std::uint64_t places = std::uint64_t{area.channels} * 2 * layout.size;
    area.piece_bytes = static_cast<std::uint32_t>((wide ? kWideBytes : kNarrowBytes) / places / kLine * kLine);
    at = area.pieces_at + places * area.piece_bytes;
    layout.areas.push_back(area);
  }
  layout.bytes = at;
  return layout;
}

int Places::place_of(const Source& source) {
  const auto found = std::find_if(taken_.begin(), taken_.end(), [&](const Taken& one) { return one.source == source; });
  if (found != taken_.end()) return static_cast<int>(found - taken_.begin());
  if (taken_.size() == Layout::kPlaces) return -1;
  taken_.push_back({source});
  return static_cast<int>(taken_.size()) - 1;
}

int Places::take(std::uint32_t& taken, std::uint32_t of, std::uint32_t first) {
  return taken < of ? static_cast<int>(first + taken++) : -1;
}

int Places::area_of(std::uint32_t place, bool wide) {
  int& area = taken_[place].area;
  if (area < 0 && wide) area = take(wide_, Layout::kWideAreas, 0);
  if (area < 0) area = take(narrow_, Layout::kNarrowAreas, Layout::kWideAreas);
  return area;
}

Route route_of(const Layout& layout, Places& places, std::uint32_t place, Work work, std::uint64_t block_bytes,
               Algorithm asked) {
  Route route;
  const std::uint64_t sent = block_bytes * std::max<std::uint32_t>(layout.size - 1, 1);
  const bool two_shot =
      work == Work::reduce_to_all && (asked == Algorithm::direct || (asked == Algorithm::automatic && layout.size > 2));
  if (sent > kMostByUnits || (asked == Algorithm::direct && work == Work::reduce_to_all))
    route.area = places.area_of(place, sent >= kMuch);
  if (route.area < 0) {
    const std::uint64_t units = (block_bytes + 7) / 8;
    route.blocks = static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>((units + kUnitsOfBlock - 1) / kUnitsOfBlock, 1, kUnitChannels));
    return route;
  }
  route.way = two_shot ? Way::two_shot : Way::pieces;
  const std::uint32_t channels = layout.areas[static_cast<std::size_t>(route.area)].channels;
  const std::uint64_t moved = two_shot ? 2 * block_bytes : sent;
  route.blocks =
      static_cast<std::uint32_t>(std::clamp<std::uint64_t>((moved + kBytesOfBlock - 1) / kBytesOfBlock, 1, channels));
  return route;
}

bool work_of(CollectiveKind kind, Work& out) {
  switch (kind) {
    case CollectiveKind::barrier: out = Work::nothing; return true;
    case CollectiveKind::all_reduce: out = Work::reduce_to_all; return true;
    case CollectiveKind::broadcast: out = Work::from_root; return true;
    case CollectiveKind::all_gather: out = Work::to_all; return true;
    case CollectiveKind::reduce_scatter: out = Work::reduce_to_each; return true;
    case CollectiveKind::all_to_all: out = Work::to_each; return true;
    case CollectiveKind::reduce:
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
    case CollectiveKind::all_to_allv: break;
  }
  return false;
}

}  // namespace fairway::collectives::gpu
