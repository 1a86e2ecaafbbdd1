#include <algorithm>

#include "engine/transfers/transfers.h"

// Retries pieces whose link broke or was full; cuts them again if the remaining links need smaller ones.
namespace fairway::engine {

void Transfers::retry_later(std::uint32_t token) {
  peer_.slices()[token].retry = true;
  retries_.push_back(token);
  peer_.has_more();
}

bool Transfers::post_retries() {
  bool any = false;
  for (std::size_t i = 0; i < retries_.size();) {
    const std::uint32_t token = retries_[i];
    SliceEntry& entry = peer_.slices()[token];
    Transfer& t = transfer(entry.owner);
    const Route choice = route(routes_.wanted(t.request, entry.piece.bytes()), routes_.views_for(t));
    const auto chosen = choice.chosen();
    const auto fits = [&](std::uint8_t link) {
      const transport::Capabilities& c = *links_[link].capabilities;
      const auto shape =
          std::holds_alternative<Strided>(t.request.layout) ? transport::Shape::strided : transport::Shape::indexed;
      return routes_.view(link).free_slots > 0 && entry.piece.bytes() <= c.max_slice_bytes &&
             (entry.piece.count == 1 || (c.shapes & static_cast<std::uint8_t>(shape)) != 0);
    };
    const auto link = std::find_if(chosen.begin(), chosen.end(), fits);
    if (choice.method == Method::native && link != chosen.end()) {
      retries_.erase(retries_.begin() + static_cast<std::ptrdiff_t>(i));
      entry.retry = false;
      Piece piece = entry.piece;
      piece.link = *link;
      --routes_.view(*link).free_slots;
      routes_.view(*link).queued_bytes += piece.bytes();
      any |= post_piece(entry.owner, piece, token);
      continue;
    }
    // No link takes the piece as it is: cut the same bytes again, like a transfer of their own.
    bool usable = false;
    for (const LinkView& view : routes_.views()) usable |= view.usable;
    const bool has_space =
        std::any_of(chosen.begin(), chosen.end(), [&](std::uint8_t l) { return routes_.view(l).free_slots > 0; });
    if (!usable || (choice.method == Method::native && !has_space)) break;
    if (choice.method == Method::staged && routes_.waits_for_link(t, choice.method)) break;
    if (choice.method == Method::none) {
      const std::uint32_t slot = entry.owner;
      drop_piece(token);
      fail(slot,
           Status(ErrorCode::link_failed, "the links that are left cannot do this operation").with_peer(peer_.text()));
      i = 0;
      continue;
    }
    const std::uint64_t limit = choice.method == Method::native   ? links_[chosen.front()].capabilities->max_slice_bytes
                                : choice.method == Method::staged ? kSlotBytes
                                                                  : record_payload_;
    const bool whole_blocks = entry.piece.count > 1;
    const bool small_enough = entry.piece.count == 1 && entry.piece.length <= limit;
    if (small_enough && choice.method == Method::by_messages) {
      if (requests_.left() == 0) break;
      retries_.erase(retries_.begin() + static_cast<std::ptrdiff_t>(i));
      entry.retry = false;
      any |= requests_.put_get_or_atomic(entry.owner, entry.piece, token);
      continue;
    }
    if (small_enough && choice.method == Method::staged) {
      const Piece piece = entry.piece;
      StagedChunk* const chunk = staging_.take_chunk(entry.owner, piece.block);
      if (chunk == nullptr) break;
      std::erase(retries_, token);
      peer_.slices().release(token);  // the chunk now counts in pieces_out instead
      staging_.stage(*chunk, piece);
      any = true;
      i = 0;
      continue;
    }
    if (peer_.slices().free_count() == 0) break;
    const std::uint32_t rest = peer_.slices().acquire(peer_.id().slot);
    SliceEntry& second = peer_.slices()[rest];
    const std::uint32_t serial = second.serial;
    second = peer_.slices()[token];
    second.serial = serial;
    SliceEntry& head = peer_.slices()[token];
    if (whole_blocks) {
      head.piece.count = 1;
      second.piece.block += 1;
      second.piece.count -= 1;
    } else {
      head.piece.length = limit;
      second.piece.offset += limit;
      second.piece.length -= limit;
    }
    ++t.pieces_out;
    retries_.push_back(rest);
  }
  return any;
}

}  // namespace fairway::engine
