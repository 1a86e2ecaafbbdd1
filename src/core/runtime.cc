#include "core/runtime.h"

namespace fairway {
namespace {

// Moves one piece after the other until one is moved only in part. An error is returned by the next call, as errors are
// final.
template <class Pieces, class Move>
Result<std::size_t> each(const Pieces& pieces, const Move& move) {
  std::size_t total = 0;
  for (const auto& piece : pieces) {
    if (piece.empty()) continue;
    const Result<std::size_t> moved = move(piece);
    if (!moved) return total > 0 ? Result<std::size_t>(total) : moved;
    total += *moved;
    if (*moved < piece.size()) break;
  }
  return total;
}

}  // namespace

Result<std::size_t> Channel::send_pieces(std::span<const std::span<const std::byte>> pieces) {
  return each(pieces, [this](std::span<const std::byte> piece) { return send(piece); });
}

Result<std::size_t> Channel::receive_pieces(std::span<const std::span<std::byte>> pieces) {
  return each(pieces, [this](std::span<std::byte> piece) { return receive(piece); });
}

}  // namespace fairway
