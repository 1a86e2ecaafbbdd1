#include "collectives/gpu/plan.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "collectives/gpu/device/slots.h"

namespace fairway::collectives::gpu {
namespace {

constexpr std::uint64_t kAreaBytes = 8U << 20;     // for lines or pieces
constexpr std::uint64_t kMessageBytes = 8U << 20;  // of all that may send, half of it for the first place of each
constexpr std::uint64_t kHeardBytes = sizeof(std::uint64_t) * kMessageBlocks * kMostWarps;
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

Layout layout_of(int size, bool messages) {
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
  layout.sizes_at = layout.phases_at + Layout::kPlaces * sizeof(PhaseHead);
  layout.slots_at = layout.sizes_at + Layout::kPlaces * sizeof(SizesHead);
  layout.heads_at = layout.slots_of(Layout::kPlaces, false).begin;
  layout.heard_at = layout.head_of(Layout::kMessageHeads);
  layout.messages_at = lines(layout.heard_at + others * Layout::kMessagePlaces * kHeardBytes);
  layout.bytes = messages ? layout.messages_at + kMessageBytes : layout.heads_at;
  return layout;
}

namespace {
// Of the others, as one rank numbers them.
std::uint64_t nth_other(std::uint32_t other, std::uint32_t own) {
  return other < own ? other : other - 1;
}
}  // namespace

std::uint64_t Layout::heard_of(std::uint32_t from, std::uint32_t to, std::uint32_t place) const {
  return heard_at + (nth_other(to, from) * kMessagePlaces + place) * kHeardBytes;
}
Range Layout::message_of(std::uint32_t from, std::uint32_t to, std::uint32_t place) const {
  const std::uint64_t of_each = line_of_each(kMessageBytes, std::max<std::uint64_t>(size - 1, 1));
  const std::uint64_t begin = messages_at + nth_other(from, to) * of_each;
  const std::uint64_t wide = line_of_each(of_each, 2), narrow = line_of_each(of_each - wide, kMessagePlaces - 1);
  if (place == 0) return {begin, wide};
  return {begin + wide + (place - 1) * narrow, narrow};
}

Places::Found Places::place_of(const Source& source) {
  ++calls_;
  if (const auto own = find(source)) {
    taken_[*own].used = calls_;
    taken_[*own].has_end = false;
    return {static_cast<int>(*own), false, taken_[*own].nth};
  }
  auto at = static_cast<std::size_t>(
      std::find_if(taken_.begin(), taken_.end(), [](const Taken& each) { return each.free; }) - taken_.begin());
  bool after = false;
  if (at == taken_.size() && at < most_) {
    taken_.emplace_back();
  } else if (at == taken_.size()) {
    if (source.capture == 0) at = oldest();  // a graph is launched again and again, and could wait but once
    if (at == taken_.size()) return {};
    after = true;
  }
  taken_[at] = {source, ++given_, calls_};
  return {static_cast<int>(at), after, given_};
}

std::size_t Places::oldest() const {
  std::size_t oldest = taken_.size();
  for (std::size_t at = 0; at < taken_.size(); ++at)
    if (taken_[at].has_end && (oldest == taken_.size() || taken_[at].used < taken_[oldest].used)) oldest = at;
  return oldest;
}

bool Places::lacks(const Source& source) const {
  return taken_.size() == most_ && !find(source) && (source.capture != 0 || oldest() == most_) &&
         std::none_of(taken_.begin(), taken_.end(), [](const Taken& each) { return each.free; });
}

void Places::give_back(const Set& places) {
  for (std::size_t at = 0; at < taken_.size(); ++at)
    if ((places[at / 64] >> at % 64 & 1) != 0) taken_[at] = {{}, 0, 0, false, true};
}

std::optional<std::size_t> Places::find(const Source& source) const {
  for (std::size_t place = 0; place < taken_.size(); ++place)
    if (!taken_[place].free && taken_[place].source == source) return place;
  return {};
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

// `senders`: that share the memory.
Lines lines_in(std::uint64_t memory, std::uint64_t senders, std::uint64_t block_bytes, std::uint32_t most_blocks,
               unsigned row_bytes = kRowBytes) {
  const std::uint64_t place = memory / 2 / kRowMemory;  // rows of one of the two
  Lines lines = lines_of((block_bytes + row_bytes - 1) / row_bytes, place / senders, most_blocks);
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
  route.lines = lines_in(Layout::own_bytes(place), others, bytes, kUnitChannels);
  route.blocks = route.lines.blocks;
  std::uint32_t warps = route.lines.warps;
  route.wants_area = bytes * others > most;
  if (route.wants_area) {
    const bool is_long = is_broadcast && !two_shot && bytes >= kLongBroadcast;
    route.area_lines = lines_in(kAreaBytes, others, bytes, is_long ? kPieceChannels / 2 : kPieceChannels);
    route.area_lines.at = layout.area.pieces_at;
    route.blocks = std::max(route.blocks, route.area_lines.blocks);
    warps = std::max(warps, route.area_lines.warps);
  }
  route.threads = warps * kRowLanes;
  return route;
}

Route further_route_of(const Layout& layout, std::uint32_t place, Work work, std::uint64_t block_bytes, bool sized,
                       Algorithm asked, bool by_lines) {
  constexpr std::uint64_t kManyBytes = 1ULL << 36;  // for all the rows that there are
  const std::uint64_t others = std::max<std::uint64_t>(layout.size - 1, 1);
  const std::uint64_t most = Layout::is_wide(place) ? kMostByWideLines : kMostByLines;
  const unsigned row_bytes = by_lines ? LineForm::kBytes : UnitForm::kBytes;
  const bool in_two = work == Work::reduce_to_all || work == Work::reduce_to_root;
  Route route;
  if (in_two && layout.size > 2 &&
      (asked == Algorithm::direct || (asked == Algorithm::automatic && block_bytes * others > most))) {
    route.way = Way::two_shot;
    route.part_bytes = ((block_bytes + layout.size - 1) / layout.size + 15) / 16 * 16;
  }
  const std::uint64_t bytes = sized ? kManyBytes : route.way == Way::two_shot ? route.part_bytes : block_bytes;
  const Range memory = layout.slots_of(place, by_lines);
  route.lines = lines_in(memory.bytes, others, bytes, kUnitChannels, row_bytes);
  route.lines.at = memory.begin;
  route.wants_area = by_lines && bytes * others > most;
  if (route.wants_area) {
    route.area_lines = lines_in(kAreaBytes, others, bytes, sized ? kUnitChannels : kPieceChannels);
    route.area_lines.at = layout.area.pieces_at;
  }
  route.blocks = std::max(route.lines.blocks, route.area_lines.blocks);
  route.threads = std::max(route.lines.warps, route.area_lines.warps) * kRowLanes;
  return route;
}

Route message_route_of(std::uint32_t size, const Range& memory, std::uint64_t bytes, bool by_lines) {
  const std::uint32_t most = std::min(kMessageBlocks, kBlocksAtOnce / messages_at_once(size));
  Route route;
  route.lines = lines_in(memory.bytes, 1, bytes, most, by_lines ? LineForm::kBytes : UnitForm::kBytes);
  route.lines.at = memory.begin;
  route.blocks = route.lines.blocks;
  route.threads = route.lines.warps * kRowLanes;
  return route;
}

std::optional<MessageEnds> message_ends(std::uint32_t place) {
  if (place < Layout::kPlaces || place >= Layout::kPlaces + Layout::kMessageHeads) return {};
  const std::uint32_t pair = (place - Layout::kPlaces) / Layout::kMessagePlaces;
  return MessageEnds{static_cast<int>(pair / kMostRanks), static_cast<int>(pair % kMostRanks)};
}

std::optional<ReadRoute> read_route_of(std::uint32_t size, Work work, std::uint64_t block_bytes, std::uint64_t from) {
  constexpr std::uint64_t kBytesOfReadBlock = 16U << 10, kMostChunks = 16, kChunk = 12U << 20;
  constexpr std::uint64_t kPairChunks = 4, kPairChunk = 64U << 20;
  if (size < 2 || work == Work::nothing || work >= Work::mark) return {};
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

Work work_of(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::barrier: break;
    case CollectiveKind::all_reduce: return Work::reduce_to_all;
    case CollectiveKind::reduce: return Work::reduce_to_root;
    case CollectiveKind::broadcast: return Work::from_root;
    case CollectiveKind::all_gather: return Work::to_all;
    case CollectiveKind::reduce_scatter: return Work::reduce_to_each;
    case CollectiveKind::all_to_all: return Work::to_each;
    case CollectiveKind::gather:
    case CollectiveKind::scatter:
    case CollectiveKind::all_to_allv: return Work::blocks;
  }
  return Work::nothing;
}

bool is_further(const Collective& call) {
  const Work work = work_of(call.kind);
  if (work == Work::reduce_to_root || work == Work::blocks) return true;
  return combines(work) && (call.type > DataType::f64 || call.reduction == Reduction::premul_sum);
}

}  // namespace fairway::collectives::gpu

namespace fairway::collectives {

// A user object of the graph, which the driver destroys with the last that was made of it ("CUDA Driver API", graph
// management).
void GpuGraphs::add(std::uint64_t capture, sys::cuda::Graph graph) {
  if (std::any_of(known_.begin(), known_.end(), [&](const Known& each) { return each.capture == capture; })) return;
  std::erase_if(known_, [](const Known& each) { return each.graph.expired(); });
  using Word = std::shared_ptr<const void>;
  auto word = std::make_unique<Word>(std::make_shared<char>());
  known_.push_back({capture, *word});
  const sys::CudaDriver& cu = *driver_;
  sys::cuda::UserObject object = nullptr;
  if (cu->cuUserObjectCreate != nullptr && cu->cuUserObjectRelease != nullptr &&
      cu->cuGraphRetainUserObject != nullptr &&
      cu->cuUserObjectCreate(
          &object, word.get(), [](void* ended) { delete static_cast<Word*>(ended); }, 1,
          sys::cuda::kNoSynchronization) == sys::cuda::kSuccess) {
    (void)word.release();  // the object's
    if (cu->cuGraphRetainUserObject(graph, object, 1, sys::cuda::kMoveReference) == sys::cuda::kSuccess) return;
    cu->cuUserObjectRelease(object, 1);
  }
  if (!for_ever_) for_ever_ = std::make_shared<char>();
  known_.back().graph = for_ever_;
}

bool GpuGraphs::is_over(std::uint64_t capture) const {
  return std::none_of(known_.begin(), known_.end(),
                      [&](const Known& each) { return each.capture == capture && !each.graph.expired(); });
}

bool GpuGraphs::any() const {
  return std::any_of(known_.begin(), known_.end(), [](const Known& each) { return !each.graph.expired(); });
}

Result<GpuPlaces::Place> GpuPlaces::place_of(const gpu::Source& source, sys::cuda::Stream stream) {
  const auto [place, after, nth] = places_.place_of(source);
  if (place < 0)
    return Status(ErrorCode::resource_exhausted,
                  fmt::format("{} {} captures whose graphs some rank still has, and the streams beside them: set "
                              "GpuOptions::graphs_in_turn where graphs are launched one after the other, or make "
                              "another communicator by split()",
                              whose_, places_.most()));
  const auto at = static_cast<std::uint32_t>(place);
  const sys::CudaDriver& cu = *driver_;
  if (after) {
    const Status status =
        cu.check(cu->cuStreamWaitEvent(stream, ends_[at], 0), "waiting for the stream that had its place");
    if (!status) return status;
  }
  return Place{at, nth};
}

Status GpuPlaces::ends_at(const gpu::Source& source, sys::cuda::Stream stream) {
  const auto place = places_.find(source);
  if (!place || source.capture != 0) return {};
  constexpr unsigned kNoTiming = 2;
  const sys::CudaDriver& cu = *driver_;
  sys::cuda::Event& end = ends_[*place];
  Status status;
  if (end == nullptr) status = cu.check(cu->cuEventCreate(&end, kNoTiming), "making an event");
  if (status) status = cu.check(cu->cuEventRecord(end, stream), "recording an operation's end");
  if (status) places_.has_end(*place);
  return status;
}

}  // namespace fairway::collectives
