#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "collectives/host/wire.h"

namespace fairway::collectives {

// Messages between this rank and one other, each of which has mapped the other's zone. The sender stores a message into
// a slot of the receiver's zone and publishes it by the slot's sequence word; the receiver reads it there, and counts
// the slots that it needs no more in its own zone, where the sender looks when it has none left. Neither engine takes
// part. A value; owner: Lanes.
class MappedPair {
 public:
  MappedPair() = default;
  // Blocks of this pair: in this rank's zone, and in the peer's. From message `sent` and `taken` on.
  MappedPair(std::byte* own, std::byte* theirs, std::uint64_t slot_stride, std::uint64_t sent, std::uint64_t taken)
      : own_(own), theirs_(theirs), stride_(slot_stride), sent_(sent), taken_(taken) {
    taken_word(own_).store(taken_, std::memory_order_release);
  }

  [[nodiscard]] bool is_mapped() const { return own_ != nullptr; }
  bool has_room() {
    if (sent_ - freed_ < kSlots) return true;
    freed_ = taken_word(theirs_).load(std::memory_order_acquire);
    return sent_ - freed_ < kSlots;
  }
  void send(std::uint64_t digest, std::uint64_t of, const void* payload, std::uint64_t bytes) {
    std::byte* const at = slot(theirs_, sent_);
    auto& front = *reinterpret_cast<Front*>(at);
    front.digest = digest;
    front.of = of;
    if (bytes != 0) std::memcpy(bytes <= kInFront ? front.bytes : at + kSlotHead, payload, bytes);
    front.sequence.store(++sent_, std::memory_order_release);
  }

  [[nodiscard]] bool has_message() const { return front().sequence.load(std::memory_order_acquire) == taken_ + 1; }
  // Of the message that has come.
  [[nodiscard]] const Front& front() const { return *reinterpret_cast<const Front*>(slot(own_, taken_)); }
  [[nodiscard]] const std::byte* payload(std::uint64_t bytes) const {
    return bytes <= kInFront ? front().bytes : slot(own_, taken_) + kSlotHead;
  }
  void done() { taken_word(own_).store(++taken_, std::memory_order_release); }

 private:
  static std::atomic<std::uint64_t>& taken_word(std::byte* block) {
    return *reinterpret_cast<std::atomic<std::uint64_t>*>(block);
  }
  [[nodiscard]] std::byte* slot(std::byte* block, std::uint64_t message) const {
    return block + kPairHead + message % kSlots * stride_;
  }

  std::byte *own_ = nullptr, *theirs_ = nullptr;
  std::uint64_t stride_ = 0;
  std::uint64_t sent_ = 0, taken_ = 0;
  std::uint64_t freed_ = 0;  // of the peer's slots, as far as this rank has looked
};

}  // namespace fairway::collectives
