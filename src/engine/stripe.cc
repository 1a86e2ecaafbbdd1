#include "engine/stripe.h"

#include <algorithm>
#include <variant>

namespace fairway::engine {
namespace {

constexpr int kNoLink = -1;

// The link with room that would finish `bytes` more first; the best ranked of equals.
int first_to_finish(const Route& route, std::span<const LinkView> links, std::uint64_t left) {
  int best = kNoLink;
  double best_time = 0;
  for (const std::uint8_t i : route.chosen()) {
    if (links[i].room == 0) continue;
    const std::uint64_t bytes = std::min(left, links[i].capabilities->piece_bytes);
    const double time = static_cast<double>(links[i].queued_bytes + bytes) / static_cast<double>(rate_of(links[i]));
    if (best != kNoLink && time >= best_time) continue;
    best = i;
    best_time = time;
  }
  return best;
}

std::uint32_t blocks_per_piece(const Layout& layout, const transport::Capabilities& capabilities,
                               std::uint64_t length) {
  const auto shape = std::holds_alternative<Strided>(layout) ? transport::Shape::strided : transport::Shape::indexed;
  if (!is_regular(layout) || length == 0 || (capabilities.shapes & static_cast<std::uint8_t>(shape)) == 0) return 1;
  const std::uint64_t most = std::min(capabilities.piece_bytes, capabilities.max_slice_bytes);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(most / length, 1, capabilities.piece_blocks));
}

}  // namespace

std::size_t stripe(const Layout& layout, std::uint64_t blocks, Cursor& cursor, const Route& route,
                   std::span<LinkView> links, std::uint64_t max_message_payload, std::span<Piece> out) {
  std::size_t filled = 0;
  std::uint64_t looked = 0;
  while (cursor.block < blocks) {
    const std::uint64_t length = block_at(layout, cursor.block).length;
    if (length == 0) {  // nothing to move, so it needs no room
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
      piece.length = std::min({left, link.capabilities->piece_bytes, link.capabilities->max_slice_bytes});
      if (piece.offset == 0 && piece.length == length)
        piece.count = static_cast<std::uint32_t>(
            std::min<std::uint64_t>(blocks - cursor.block, blocks_per_piece(layout, *link.capabilities, length)));
    }
    if (piece.offset + piece.length == length)
      cursor = {cursor.block + piece.count, 0};
    else
      cursor.offset += piece.length;
    --link.room;
    link.queued_bytes += piece.bytes();
  }
  return filled;
}

}  // namespace fairway::engine
