#include "collectives/gpu_plan.h"

#include <algorithm>

namespace fairway::collectives::gpu {
namespace {

constexpr std::uint64_t kUnitsBytes = 6U << 20, kPiecesBytes = 8U << 20;
constexpr std::uint64_t kLine = 128;

// What a block of a kernel does at the least, so that few bytes do not take many blocks.
constexpr std::uint64_t kUnitsOfBlock = 96, kBytesOfBlock = 8U << 10;

std::uint64_t lines(std::uint64_t bytes) {
  return (bytes + kLine - 1) / kLine * kLine;
}
std::uint64_t line_of_each(std::uint64_t bytes, std::uint64_t parts) {
  return bytes / parts / kLine * kLine;
}
std::uint32_t blocks_of(std::uint64_t all, std::uint64_t of_each, std::uint32_t most) {
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>((all + of_each - 1) / of_each, 1, most));
}

}  // namespace

Layout layout_of(int size) {
  Layout layout;
  layout.size = static_cast<std::uint32_t>(size);
  const std::uint64_t others = std::max(size - 1, 1);
  const std::uint64_t units = kUnitChannels * kUnitPlaces * others, pieces = kPieceChannels * kPiecePlaces * others;
  const std::uint64_t unit_bytes = line_of_each(kUnitsBytes / Layout::kPlaces, units);
  layout.units = {Layout::place_at(Layout::kPlaces), static_cast<std::uint32_t>(unit_bytes / 16)};
  layout.units_stride = units * unit_bytes;
  Area& area = layout.area;
  area.head_at = layout.units.at + Layout::kPlaces * layout.units_stride;
  area.flags_at = area.head_at + kAreaHead;
  area.pieces_at = lines(area.flags_at + std::uint64_t{kPieceChannels} * layout.size * sizeof(std::uint64_t));
  area.piece_bytes = static_cast<std::uint32_t>(line_of_each(kPiecesBytes, pieces));
  layout.bytes = area.pieces_at + pieces * area.piece_bytes;
  return layout;
}

int Places::place_of(const Source& source) {
  const auto found = std::find(taken_.begin(), taken_.end(), source);
  if (found != taken_.end()) return static_cast<int>(found - taken_.begin());
  if (taken_.size() == Layout::kPlaces) return -1;
  taken_.push_back(source);
  return static_cast<int>(taken_.size()) - 1;
}

Route route_of(int size, Work work, std::uint64_t block_bytes, Algorithm asked) {
  const std::uint64_t sent = block_bytes * static_cast<std::uint64_t>(std::max(size - 1, 1));
  const bool reduces_to_all = work == Work::reduce_to_all;
  const bool two_shot = reduces_to_all && (asked == Algorithm::direct || (asked == Algorithm::automatic && size > 2));
  if (sent > kMostByUnits || (asked == Algorithm::direct && reduces_to_all)) {
    const std::uint64_t moved = two_shot ? 2 * block_bytes : sent;
    return {two_shot ? Way::two_shot : Way::pieces, true, blocks_of(moved, kBytesOfBlock, kPieceChannels)};
  }
  return {Way::units, false, blocks_of((block_bytes + 7) / 8, kUnitsOfBlock, kUnitChannels)};
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
