#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/layout.h"
#include "engine/route.h"

namespace fairway::engine {

// How far a transfer's layout has been cut. Resumable; a value.
struct Cursor {
  std::uint64_t block = 0;
  std::uint64_t offset = 0;  // within the block
};

// One cut: bytes of one block, or `count` whole blocks of a regular layout, for one link.
struct Piece {
  std::uint64_t block = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;  // of one block
  std::uint32_t count = 1;
  std::uint8_t link = 0;  // index into the peer's links
  [[nodiscard]] std::uint64_t bytes() const { return length * count; }
};

// Pure. Cuts the layout from `cursor` on into at most out.size() pieces, each for the chosen link that would finish it
// first, as long as some link has room; advances the cursor past what was cut. Also counts the pieces into `links`
// (room, queued_bytes), so that calls can follow each other. Empty blocks give no piece; after many of them it stops at
// one, and there is more to cut.
std::size_t stripe(const Layout& layout, std::uint64_t blocks, Cursor& cursor, const Route& route,
                   std::span<LinkView> links, std::uint64_t max_message_payload, std::span<Piece> out);

}  // namespace fairway::engine
