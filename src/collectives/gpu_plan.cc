#include "collectives/gpu_plan.h"

#include <algorithm>
#include <bit>

#include "collectives/gpu_bytes.h"

namespace fairway::collectives::gpu {
namespace {

constexpr std::uint64_t kAreaBytes = 8U << 20;  // for lines or pieces
constexpr std::uint64_t kLine = 128;
// From there on a broadcast between two takes 1.2 to 2 times as long with 128 blocks as with 64 (2x H200; why is not
// known).
constexpr std::uint64_t kLongBroadcast = 128U << 20;

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
  const std::uint64_t unit_bytes = line_of_each(Layout::own_bytes(Layout::kPlaces - 1), units);
  layout.own_at = Layout::place_at(Layout::kPlaces);
  layout.unit_count = static_cast<std::uint32_t>(unit_bytes / 16);
  Area& area = layout.area;
  area.head_at = layout.own_of(Layout::kPlaces);
  area.flags_at = area.head_at + kAreaHead;
  area.pieces_at = lines(area.flags_at + std::uint64_t{kPieceChannels} * layout.size * sizeof(std::uint64_t));
  area.piece_bytes = static_cast<std::uint32_t>(line_of_each(kAreaBytes, pieces));
  layout.phases_at = area.pieces_at + kAreaBytes;
  layout.bytes = layout.phases_at + Layout::kPlaces * sizeof(PhaseHead);
  return layout;
}

int Places::place_of(const Source& source) {
  const auto found = std::find(taken_.begin(), taken_.end(), source);
  if (found != taken_.end()) return static_cast<int>(found - taken_.begin());
  if (taken_.size() == Layout::kPlaces) return -1;
  taken_.push_back(source);
  return static_cast<int>(taken_.size()) - 1;
}

namespace {

// How so many rows go through a place that has room for `room`: in as few rounds as can be, with as many blocks as
// there are, of at least four warps. Kernels take some whole rows at once: a warp has a power of two.
Lines lines_of(std::uint64_t rows, std::uint64_t room, std::uint64_t most_blocks) {
  constexpr std::uint64_t kMostRows = 8, kFewWarps = 4;
  const auto up = [](std::uint64_t all, std::uint64_t each) { return (all + each - 1) / each; };
  rows = std::max<std::uint64_t>(rows, 1);
  const std::uint64_t at_once = std::min(rows, room);
  std::uint64_t each = std::bit_ceil(std::min(up(at_once, most_blocks * kMostWarps), kMostRows));
  const std::uint64_t channels = at_once / each;
  std::uint64_t blocks = 0, warps = 0, rounds = ~std::uint64_t{0};
  for (std::uint64_t with = std::min(channels, kFewWarps); with <= std::min<std::uint64_t>(channels, kMostWarps);
       ++with) {
    const std::uint64_t fit = room / each / with;  // blocks
    const std::uint64_t on = std::min({most_blocks, up(channels, with), fit});
    const std::uint64_t needs = up(rows, on * with * each);
    if (needs >= rounds) continue;
    blocks = on;
    warps = with;
    rounds = needs;
  }
  each = std::bit_ceil(up(rows, blocks * warps * rounds));
  Lines lines = {};
  lines.blocks = static_cast<std::uint32_t>(blocks);
  lines.warps = static_cast<std::uint32_t>(warps);
  lines.rows = static_cast<std::uint32_t>(each);
  lines.rounds = static_cast<std::uint32_t>(rounds);
  return lines;
}

Lines lines_in(std::uint64_t memory, const Layout& layout, std::uint64_t block_bytes, std::uint32_t most_blocks) {
  const std::uint64_t place = memory / 2 / kRowMemory;  // rows of one of the two
  Lines lines = lines_of((block_bytes + kRowBytes - 1) / kRowBytes, place / std::max<std::uint64_t>(layout.size - 1, 1),
                         most_blocks);
  lines.place_bytes = static_cast<std::uint32_t>(place * kRowMemory);
  return lines;
}

// By units, or with the area by pieces.
Route route_without_lines(const Layout& layout, Work work, std::uint64_t block_bytes, Algorithm asked) {
  const std::uint64_t sent = block_bytes * std::max<std::uint64_t>(layout.size - 1, 1);
  const bool two_shot =
      work == Work::reduce_to_all && (asked == Algorithm::direct || (asked == Algorithm::automatic && layout.size > 2));
  Route route;
  std::uint64_t of_lane = 8;
  if (sent > kMostByUnits || (asked == Algorithm::direct && work == Work::reduce_to_all)) {
    const std::uint64_t moved = two_shot ? 2 * block_bytes : sent;
    route.way = two_shot ? Way::two_shot : Way::one_shot;
    route.wants_area = true;
    route.blocks = blocks_of(moved, kBytesOfBlock, kPieceChannels);
    of_lane = 16;
  } else {
    route.blocks = blocks_of((block_bytes + 7) / 8, kUnitsOfBlock, kUnitChannels);
  }
  const std::uint64_t wanted = (block_bytes / route.blocks / of_lane + 31) / 32 * 32;
  route.threads = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wanted, 32, kThreads));
  return route;
}

std::uint64_t read_from(std::uint32_t size, Work work) {
  if (work == Work::from_root || (work == Work::reduce_to_all && size == 2)) return kWholeByReading;
  return work == Work::reduce_to_each ? kReducedByReading : kMovedByReading;
}

}  // namespace

Route route_of(const Layout& layout, std::uint32_t place, Work work, std::uint64_t block_bytes, Algorithm asked,
               bool by_lines) {
  if (!by_lines) return route_without_lines(layout, work, block_bytes, asked);
  const std::uint64_t others = std::max<std::uint64_t>(layout.size - 1, 1);
  const std::uint64_t most = Layout::is_wide(place) ? kMostByWideLines : kMostByLines;
  const bool is_sum = work == Work::reduce_to_all, is_broadcast = work == Work::from_root;
  const std::uint64_t at_once = is_broadcast ? kBroadcastAtOnce : most;
  const bool two_shot = layout.size > 2 &&
                        ((is_sum && asked == Algorithm::direct) ||
                         ((is_sum || is_broadcast) && asked == Algorithm::automatic && block_bytes * others > at_once));
  Route route;
  if (two_shot) {
    const std::uint64_t parts = is_broadcast ? others : layout.size;
    route.way = Way::two_shot;
    route.part_bytes = ((block_bytes + parts - 1) / parts + 15) / 16 * 16;
  }
  const std::uint64_t bytes = two_shot ? route.part_bytes : block_bytes;
  route.lines = lines_in(Layout::own_bytes(place), layout, bytes, kUnitChannels);
  route.blocks = route.lines.blocks;
  std::uint32_t warps = route.lines.warps;
  route.wants_area = bytes * others > most;
  if (route.wants_area) {
    const bool is_long = is_broadcast && !two_shot && bytes >= kLongBroadcast;
    route.area_lines = lines_in(kAreaBytes, layout, bytes, is_long ? kPieceChannels / 2 : kPieceChannels);
    route.area_lines.at = layout.area.pieces_at;
    route.blocks = std::max(route.blocks, route.area_lines.blocks);
    warps = std::max(warps, route.area_lines.warps);
  }
  route.threads = warps * kRowLanes;
  return route;
}

std::optional<ReadRoute> read_route_of(std::uint32_t size, Work work, std::uint64_t block_bytes, std::uint64_t from) {
  constexpr std::uint64_t kBytesOfReadBlock = 16U << 10, kMostChunks = 16, kChunk = 12U << 20;
  constexpr std::uint64_t kPairChunks = 4, kPairChunk = 64U << 20;
  if (size < 2 || work == Work::nothing || work == Work::mark) return {};
  const bool is_whole = work == Work::reduce_to_all || work == Work::from_root;
  if (from == 0) from = read_from(size, work);
  const std::uint64_t gets = is_whole ? block_bytes : block_bytes * (size - 1);
  if (gets == 0 || gets < from) return {};
  ReadRoute route;
  route.blocks = blocks_of(gets, kBytesOfReadBlock, kReadChannels);
  if (work == Work::reduce_to_all) route.part_bytes = lines((block_bytes + size - 1) / size);
  if (work == Work::from_root) {
    // Each chunk costs the time of a meeting and of the copies' beginnings, 33 us among four H200. Of the first one two
    // thirds of its time are lost, in which all wait for the root, and that of the root's copy, if it makes one.
    std::uint64_t chunks = size == 2 ? std::clamp<std::uint64_t>(block_bytes / kPairChunk, 1, kPairChunks) : 1;
    while (size > 2 && chunks < kMostChunks && (chunks + 1) * (chunks + 1) * kChunk <= block_bytes) ++chunks;
    route.part_bytes = lines((block_bytes + chunks - 1) / chunks);
    route.chunks = static_cast<std::uint32_t>((block_bytes + route.part_bytes - 1) / route.part_bytes);
  }
  return route;
}

Range nth_part(std::uint64_t bytes, std::uint64_t part_bytes, std::uint64_t part) {
  const std::uint64_t begin = std::min(bytes, part * part_bytes);
  return {begin, std::min(part_bytes, bytes - begin)};
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
