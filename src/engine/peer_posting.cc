#include <algorithm>

#include "engine/operation.h"
#include "engine/peer.h"
#include "engine/worker.h"

// Posting beside the first attempt of a transfer: the engine's records, and pieces whose link broke or was full, which
// may have to be cut anew for the links that are left.
namespace fairway::engine {
namespace {

// Records keep to one link while it has little to do: they travel together there, and other links need no look.
constexpr std::uint64_t kLittleQueued = 16 * 1024;

// Nobody waits for these: they may travel with what is sent next.
bool may_coalesce(RecordType type) {
  return type == RecordType::send_done || type == RecordType::credit;
}

}  // namespace

bool Peer::post_records() {
  bool any = false;
  for (std::uint32_t index = records_.next(); index != kNoSlot; index = records_.next()) {
    const Record& record = worker_.records()[index];
    int best = -1;
    bool carried = false;
    for (std::size_t i = 0; i < links_.size(); ++i) {
      const Link& link = links_[i];
      if (link.state != LinkState::ready || !link.has(transport::Op::message) ||
          link.capabilities->max_message_bytes < record.size)
        continue;
      carried = true;
      if (views_[i].room == 0) continue;
      const auto before = [&](const LinkView& a, const LinkView& b) {
        return a.rank != b.rank ? a.rank < b.rank : a.queued_bytes / kLittleQueued < b.queued_bytes / kLittleQueued;
      };
      if (best < 0 || before(views_[i], views_[static_cast<std::size_t>(best)])) best = static_cast<int>(i);
    }
    if (carried) {
      records_stuck_since_ = kNever;
    } else if (records_stuck_since_ == kNever) {
      records_stuck_since_ = links_.since_now();
      wake_at(worker_.now());
    }
    if (best < 0 || worker_.slices().room() == 0) break;
    post_record(index, static_cast<std::uint8_t>(best));
    any = true;
  }
  return any;
}

// The next one, to a link that has room for it.
void Peer::post_record(std::uint32_t index, std::uint8_t chosen) {
  Record& record = worker_.records()[index];
  Link& link = links_[chosen];
  records_.posted(index);
  transport::Slice slice;
  slice.op = transport::Op::message;
  slice.link = link.id;
  slice.local = record.bytes.data();
  slice.length = record.size;
  slice.may_coalesce = may_coalesce(record.type());
  slice.token = worker_.slices().acquire(id().slot);
  SliceEntry& entry = worker_.slices()[slice.token];
  entry = {
      SliceUse::record,  slice.op, false, chosen, id().slot, index, entry.serial, 0, {0, 0, record.size, 1, chosen},
      links_.since_now()};
  links_.entered(link, false);
  link.queued_bytes += record.size;
  --views_[chosen].room;
  views_[chosen].queued_bytes += record.size;
  worker_.stage(link.transport, slice);
}

// A record to go before the write that is about to be posted there; elsewhere or later will do.
void Peer::post_ahead(std::uint32_t record, std::uint8_t link) {
  const Link& by = links_[link];
  if (records_.next() == record && views_[link].room > 0 && worker_.slices().room() > 0 &&
      by.has(transport::Op::message) && by.capabilities->max_message_bytes >= worker_.records()[record].size)
    post_record(record, link);
}

bool Peer::post_retries() {
  bool any = false;
  for (std::size_t i = 0; i < retries_.size();) {
    const std::uint32_t token = retries_[i];
    SliceEntry& entry = worker_.slices()[token];
    Transfer& t = transfer(entry.owner);
    const Route choice = route(wanted(t.request, entry.piece.bytes()), views_for(t));
    const auto chosen = choice.chosen();
    const auto fits = [&](std::uint8_t link) {
      const transport::Capabilities& c = *links_[link].capabilities;
      const auto shape =
          std::holds_alternative<Strided>(t.request.layout) ? transport::Shape::strided : transport::Shape::indexed;
      return views_[link].room > 0 && entry.piece.bytes() <= c.max_slice_bytes &&
             (entry.piece.count == 1 || (c.shapes & static_cast<std::uint8_t>(shape)) != 0);
    };
    const auto link = std::find_if(chosen.begin(), chosen.end(), fits);
    if (choice.method == Method::native && link != chosen.end()) {
      retries_.erase(retries_.begin() + static_cast<std::ptrdiff_t>(i));
      entry.retry = false;
      Piece piece = entry.piece;
      piece.link = *link;
      --views_[*link].room;
      views_[*link].queued_bytes += piece.bytes();
      any |= post_piece(entry.owner, piece, token);
      continue;
    }
    // No link takes the piece as it was cut: cut the same bytes anew, as a transfer of their own would be.
    bool usable = false;
    for (const LinkView& view : std::span(views_.data(), links_.size())) usable |= view.usable;
    const bool has_room = std::any_of(chosen.begin(), chosen.end(), [&](std::uint8_t l) { return views_[l].room > 0; });
    if (!usable || (choice.method == Method::native && !has_room)) break;
    if (choice.method == Method::staged && waits_for_link(t, choice.method)) break;
    if (choice.method == Method::none) {
      const std::uint32_t slot = entry.owner;
      drop_piece(token);
      fail(slot, Status(ErrorCode::link_failed, "the links that are left cannot do this operation").with_peer(text()));
      i = 0;
      continue;
    }
    const std::uint64_t limit = choice.method == Method::native   ? links_[chosen.front()].capabilities->max_slice_bytes
                                : choice.method == Method::staged ? kSlotBytes
                                                                  : record_limit();
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
      StagedChunk* const chunk = staging_client_.take_chunk(entry.owner, piece.block);
      if (chunk == nullptr) break;
      std::erase(retries_, token);
      worker_.slices().release(token);  // its part in pieces_out is the chunk's now
      staging_client_.stage(*chunk, piece);
      any = true;
      i = 0;
      continue;
    }
    if (worker_.slices().room() == 0) break;
    const std::uint32_t rest = worker_.slices().acquire(id().slot);
    SliceEntry& second = worker_.slices()[rest];
    const std::uint32_t serial = second.serial;
    second = worker_.slices()[token];
    second.serial = serial;
    SliceEntry& head = worker_.slices()[token];
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
