#include "engine/tables/route.h"

#include <algorithm>
#include <variant>

namespace fairway::engine {
namespace {

constexpr int kNoLink = -1;

bool can(const transport::Capabilities& capabilities, transport::Op op) {
  if (op == transport::Op::message && capabilities.max_message_bytes < kSmallestMessage) return false;
  return (capabilities.operations & static_cast<std::uint8_t>(op)) != 0;
}

// Seconds until the link would have sent `bytes` more.
double finish(const LinkView& link, std::uint64_t bytes) {
  return static_cast<double>(link.queued_bytes + bytes) / static_cast<double>(rate_of(link));
}

// `best`, or a socket before it over the same interface that takes it too.
std::uint8_t together(std::span<const std::uint8_t> chosen, std::span<const LinkView> links, std::uint8_t best,
                      std::uint64_t bytes) {
  if (links[best].way == 0) return best;
  std::uint8_t first = best;
  for (const std::uint8_t i : chosen)
    if (i < first && links[i].way == links[best].way && takes_more(links[i], bytes)) first = i;
  return first;
}

// Of sockets over one interface with few cores at both ends, all but the first leave the choice.
void keep_first_sockets(Route& choice, std::span<const LinkView> links) {
  std::uint64_t others = 0;
  for (const std::uint8_t i : choice.chosen())
    for (const std::uint8_t first : choice.chosen())
      if (links[i].one_of_way && links[i].way != 0 && first < i && links[first].way == links[i].way)
        others |= std::uint64_t{1} << i;
  const auto end = std::remove_if(choice.links.begin(), choice.links.begin() + choice.count,
                                  [&](std::uint8_t i) { return (others >> i & 1) != 0; });
  choice.count = static_cast<std::uint8_t>(end - choice.links.begin());
}

// The link with a free slot that would finish `bytes` more first; the best ranked of equals.
int first_to_finish(const Route& route, std::span<const LinkView> links, std::uint64_t left) {
  int best = kNoLink;
  double best_time = 0;
  for (const std::uint8_t i : route.chosen()) {
    if (links[i].free_slots == 0) continue;
    const std::uint64_t bytes = std::min(left, links[i].capabilities->max_slice_bytes);
    const double time = finish(links[i], bytes);
    if (best != kNoLink && time >= best_time) continue;
    best = i;
    best_time = time;
  }
  return best == kNoLink ? best : together(route.chosen(), links, static_cast<std::uint8_t>(best), left);
}

std::uint32_t blocks_per_piece(const Layout& layout, const transport::Capabilities& capabilities,
                               std::uint64_t length) {
  const auto shape = std::holds_alternative<Strided>(layout) ? transport::Shape::strided : transport::Shape::indexed;
  if (!is_regular(layout) || length == 0 || (capabilities.shapes & static_cast<std::uint8_t>(shape)) == 0) return 1;
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(capabilities.max_slice_bytes / length, 1, capabilities.max_slice_blocks));
}

}  // namespace

Route route(const RouteRequest& request, std::span<const LinkView> links) {
  Route choice;
  std::uint64_t best_rate = 0;
  // Only the owner's engine executes atomics on device memory.
  const bool atomic = request.op == transport::Op::fetch_add || request.op == transport::Op::compare_swap;
  const bool on_device = (request.memory_kinds & kDeviceBit) != 0;
  const bool by_cpu = !request.stream_ordered && (!on_device || atomic);
  for (const transport::Op wanted : {request.op, transport::Op::message}) {
    if (wanted == request.op && atomic && on_device) continue;
    if (wanted != request.op && !by_cpu) continue;  // neither engine's CPU reaches a device's memory
    std::uint16_t best_rank = 0xffff;
    for (std::size_t i = 0; i < links.size() && i < kMaxLinks; ++i) {
      const LinkView& link = links[i];
      if (!link.usable || !can(*link.capabilities, wanted)) continue;
      if (wanted == request.op && (link.capabilities->memory_kinds & request.memory_kinds) != request.memory_kinds)
        continue;
      if (wanted == request.op && ((request.without >> link.rank | request.without_links >> i) & 1) != 0) continue;
      if (link.rank > best_rank) continue;
      if (link.rank < best_rank) {
        best_rank = link.rank;
        best_rate = 0;
        choice.count = 0;
      }
      choice.links[choice.count++] = static_cast<std::uint8_t>(i);
      best_rate = std::max(best_rate, rate_of(link));
    }
    if (choice.count == 0) continue;
    choice.method = wanted == request.op ? Method::native : Method::by_messages;
    break;
  }
  const auto end = std::remove_if(choice.links.begin(), choice.links.begin() + choice.count,
                                  [&](std::uint8_t i) { return rate_of(links[i]) < best_rate / kSlowestPart; });
  choice.count = static_cast<std::uint8_t>(end - choice.links.begin());
  const std::uint64_t first = std::min(request.bytes, kStripeMinimum);
  // By insertion: a few links, and std::stable_sort would allocate.
  for (auto next = choice.links.begin(); next != end; ++next) {
    const auto place = std::upper_bound(choice.links.begin(), next, *next, [&](std::uint8_t a, std::uint8_t b) {
      return finish(links[a], first) < finish(links[b], first);
    });
    std::rotate(place, next, next + 1);
  }
  if (choice.method == Method::native && request.bytes <= kStripeMinimum && choice.count > 1) {
    choice.links[0] = together(choice.chosen(), links, choice.links[0], request.bytes);
    choice.count = 1;
  }
  if (choice.method == Method::native && choice.count > 1) keep_first_sockets(choice, links);
  if (choice.method != Method::none || by_cpu || !request.staged) return choice;
  Route through = route({request.op, request.bytes}, links);
  if (through.method != Method::none) through.method = Method::staged;
  return through;
}

std::size_t stripe(const Layout& layout, std::uint64_t blocks, Cursor& cursor, const Route& route,
                   std::span<LinkView> links, std::uint64_t max_message_payload, std::span<Piece> out) {
  std::size_t filled = 0;
  std::uint64_t looked = 0;
  while (cursor.block < blocks) {
    const std::uint64_t length = block_at(layout, cursor.block).length;
    if (length == 0) {  // nothing to move, so it needs no slot
      if (looked >= kEmptyAtOnce) break;
      const std::uint64_t first = cursor.block;
      cursor.block = skip_empty(layout, first);
      looked += is_regular(layout) ? 0 : cursor.block - first;
      continue;
    }
    if (filled == out.size()) break;
    const std::uint64_t left = length - cursor.offset;
    const int index = first_to_finish(route, links, left);
    if (index == kNoLink) break;
    LinkView& link = links[static_cast<std::size_t>(index)];
    Piece& piece = out[filled++];
    piece = {cursor.block, cursor.offset, 0, 1, static_cast<std::uint8_t>(index)};
    if (route.method == Method::by_messages) {
      piece.length = std::min(left, max_message_payload);
    } else {
      piece.length = std::min(left, link.capabilities->max_slice_bytes);
      if (piece.offset == 0 && piece.length == length)
        piece.count = static_cast<std::uint32_t>(
            std::min<std::uint64_t>(blocks - cursor.block, blocks_per_piece(layout, *link.capabilities, length)));
    }
    if (piece.offset + piece.length == length)
      cursor = {cursor.block + piece.count, 0};
    else
      cursor.offset += piece.length;
    --link.free_slots;
    link.queued_bytes += piece.bytes();
  }
  return filled;
}

}  // namespace fairway::engine
