#pragma once

#include <cstdint>

namespace fairway::transport {

// What a peer has room for: messages and immediates, each of which takes one receive there until it was polled. Totals
// travel, so what says them may be late, doubled, or overtaken by a newer one. A value; pure.
class Credits {
 public:
  Credits(std::uint32_t theirs, std::uint32_t ours) : left_(theirs), theirs_(theirs), ours_(ours) {}

  [[nodiscard]] std::uint32_t left() const { return left_; }
  void take() { --left_; }
  void give_back() { ++left_; }  // it was not used
  // The peer has made room so many times in all; false: more than was ever used. An overtaken total says nothing.
  bool hear(std::uint32_t total) {
    const std::uint32_t more = total - heard_;
    if (more > kOld) return true;
    if (more > theirs_ - left_) return false;
    heard_ = total;
    left_ += more;
    return true;
  }

  [[nodiscard]] std::uint32_t heard() const { return heard_; }  // the newest total that the peer said

  void make_room() { ++made_; }  // a receive of ours is free again
  [[nodiscard]] bool untold() const { return made_ != told_; }
  [[nodiscard]] bool owes() const { return made_ - told_ >= (ours_ + 1) / 2; }
  std::uint32_t tell() { return told_ = made_; }  // the total to say

 private:
  static constexpr std::uint32_t kOld = 1u << 31;  // a difference beyond it is one below zero
  std::uint32_t left_, theirs_, ours_;
  std::uint32_t heard_ = 0, made_ = 0, told_ = 0;
};

}  // namespace fairway::transport
