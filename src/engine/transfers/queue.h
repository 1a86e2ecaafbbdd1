#pragma once

#include <cstdint>

#include "engine/transfers/transfer.h"

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

}  // namespace fairway::engine
