#pragma once

#include <cstdint>

#include "engine/messages/told_receives.h"
#include "engine/transfers/queue.h"

namespace fairway::engine {

// This side's receives that are not matched yet, in the order of submission, and how many of them the peer knows ahead.
// Owner: the peer's worker.
class WaitingReceives {
 public:
  explicit WaitingReceives(TransferTable& table) : table_(table), queue_(table) {}

  void push(std::uint32_t slot) { queue_.push(slot); }
  bool remove(std::uint32_t slot) { return queue_.remove(slot); }
  [[nodiscard]] std::uint32_t first(std::uint64_t tag) const;  // kNoSlot: none of that tag
  // The same, if it takes a message: it does not wait for another transfer.
  [[nodiscard]] std::uint32_t ready(std::uint64_t tag) const {
    const std::uint32_t slot = first(tag);
    return slot != kNoSlot && table_[slot].phase == Phase::waiting ? kNoSlot : slot;
  }

  // ---- telling ahead ----
  // A window that nobody writes to costs two microseconds, so none is told while messages are short.
  [[nodiscard]] bool may_tell() const { return told_ < kMostTold && long_due_ > 0; }
  void tell(Transfer& receive);
  bool untell(Transfer& receive);  // its message is here, or it ends without; false: it was not told
  void matched(bool eager) { long_due_ = eager ? long_due_ - (long_due_ > 0 ? 1 : 0) : kAfterLong; }

 private:
  static constexpr std::uint32_t kAfterLong = 16;  // messages after a long one of which each may be another

  TransferTable& table_;
  TransferQueue queue_;
  std::uint32_t told_ = 0;
  std::uint32_t long_due_ = kAfterLong;  // messages of which each may be too long to be eager
};

}  // namespace fairway::engine
