#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "engine/tables/route.h"
#include "engine/tables/slices.h"
#include "engine/tables/transfer.h"

namespace fairway::engine {

// Transfers in a row, linked through themselves: one is in at most one queue. Owner: the worker of their peer.
class TransferQueue {
 public:
  explicit TransferQueue(TransferTable& table) : table_(table) {}

  [[nodiscard]] std::uint32_t head() const { return head_; }  // kNoSlot: empty
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }

  void push(std::uint32_t slot) {
    add(slot, kNoSlot);
    if (head_ == kNoSlot)
      head_ = slot;
    else
      table_[tail_].next = slot;
    tail_ = slot;
  }
  void push_front(std::uint32_t slot) {
    add(slot, head_);
    if (head_ == kNoSlot) tail_ = slot;
    head_ = slot;
  }
  // Not of an empty one.
  std::uint32_t pop() {
    const std::uint32_t slot = head_;
    take_out(slot, kNoSlot);
    return slot;
  }
  // False: it is not in this queue.
  bool remove(std::uint32_t slot) {
    for (std::uint32_t before = kNoSlot, i = head_; i != kNoSlot; before = i, i = table_[i].next) {
      if (i != slot) continue;
      take_out(slot, before);
      return true;
    }
    return false;
  }

 private:
  void add(std::uint32_t slot, std::uint32_t next) {
    table_[slot].queued = true;
    table_[slot].next = next;
    ++size_;
  }
  void take_out(std::uint32_t slot, std::uint32_t before) {
    Transfer& t = table_[slot];
    (before == kNoSlot ? head_ : table_[before].next) = t.next;
    if (tail_ == slot) tail_ = before;
    t.queued = false;
    --size_;
  }

  TransferTable& table_;
  std::uint32_t head_ = kNoSlot, tail_ = kNoSlot, size_ = 0;
};

// How a turn ended.
enum class Turn : std::uint8_t {
  posted_all,
  more,        // to post, once others had theirs
  links_full,  // none has a free slot
  no_credit,   // or something else that it waits for
  failed,      // and so the transfer
};

// Schedules one peer's transfers that wait for room on its links: the highest priority first, round robin within a
// priority. A turn is a number of pieces and of bytes. A turn that found no room continues when links have room again,
// so room that appears piece by piece is shared too. A transfer that has used up its turn goes to the end of the queue.
// Owner: the peer's worker.
class Turns {
 public:
  static constexpr std::uint32_t kPieces = kTurnPieces;
  static constexpr std::uint64_t kBytes = std::uint64_t{4} << 20;
  static constexpr std::size_t kPriorities = 3;

  explicit Turns(TransferTable& table)
      : table_(table), queues_{{TransferQueue(table), TransferQueue(table), TransferQueue(table)}} {}

  void add(std::uint32_t slot) { queue_of(slot).push(slot); }
  bool remove(std::uint32_t slot) { return queue_of(slot).remove(slot); }
  [[nodiscard]] std::uint32_t waiting() const { return queues_[0].size() + queues_[1].size() + queues_[2].size(); }
  [[nodiscard]] std::uint32_t waiting(std::size_t priority) const { return queues_[priority].size(); }

  // The next of that priority, taken out of its queue; not of an empty one. It is given back by one of the two below,
  // or it waits no more.
  std::uint32_t take(std::size_t priority) {
    const std::uint32_t slot = queues_[priority].pop();
    Spent& spent = spent_[priority];
    const TransferId id = table_.id(slot);
    if (spent.slot != slot || spent.id != id) spent = {slot, id, 0, 0};
    return slot;
  }
  // It found no room: it goes on first, with what is left of its turn.
  void keep(std::uint32_t slot) {
    const Spent& spent = spent_[priority_of(slot)];
    if (spent.pieces >= kPieces || spent.bytes >= kBytes) return rest(slot);
    queue_of(slot).push_front(slot);
  }
  // Its turn is over, or it waits for something else than room.
  void rest(std::uint32_t slot) {
    spent_[priority_of(slot)] = {};
    add(slot);
  }

  // How many pieces of so many bytes the one that was taken may post now: at least one.
  [[nodiscard]] std::uint32_t left(std::uint32_t slot, std::uint64_t piece_bytes) const {
    const Spent& spent = spent_[priority_of(slot)];
    const std::uint64_t bytes = kBytes - std::min(spent.bytes, kBytes);
    const std::uint64_t by_bytes = bytes / std::max<std::uint64_t>(piece_bytes, 1);
    return static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(by_bytes, 1, kPieces - std::min(spent.pieces, kPieces - 1)));
  }
  void spend(std::uint32_t slot, const Piece& piece) {
    Spent& spent = spent_[priority_of(slot)];
    ++spent.pieces;
    spent.bytes += piece.bytes();
  }
  [[nodiscard]] bool used_up(std::uint32_t slot) const {
    const Spent& spent = spent_[priority_of(slot)];
    return spent.pieces >= kPieces || spent.bytes >= kBytes;
  }

 private:
  struct Spent {  // of the turn that is under way
    std::uint32_t slot = kNoSlot;
    TransferId id;
    std::uint32_t pieces = 0;
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] std::size_t priority_of(std::uint32_t slot) const {
    return static_cast<std::size_t>(table_[slot].request.options.priority);
  }
  TransferQueue& queue_of(std::uint32_t slot) { return queues_[priority_of(slot)]; }

  TransferTable& table_;
  std::array<TransferQueue, kPriorities> queues_;
  std::array<Spent, kPriorities> spent_;
};

}  // namespace fairway::engine
