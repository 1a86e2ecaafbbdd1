#pragma once

#include <cstdint>

namespace fairway::transport {

// Credits of a link: receive buffers posted at the peer. Each message or immediate uses one until the peer has polled
// it. A credit update carries a running total, so it may come late, twice or out of order. A value; pure.
class Credits {
 public:
  Credits(std::uint32_t theirs, std::uint32_t ours) : left_(theirs), theirs_(theirs), ours_(ours) {}

  [[nodiscard]] std::uint32_t left() const { return left_; }
  void take() { --left_; }
  void give_back() { ++left_; }  // the credit was not used
  // A credit update: the peer has freed `total` receives in all. False: more than were ever used. Ignores an old total.
  bool hear(std::uint32_t total) {
    const std::uint32_t more = total - heard_;
    if (more > kOld) return true;
    if (more > theirs_ - left_) return false;
    heard_ = total;
    left_ += more;
    return true;
  }

  [[nodiscard]] std::uint32_t heard() const { return heard_; }  // the newest total from the peer

  void make_room() { ++made_; }  // a receive of ours is free again
  [[nodiscard]] bool untold() const { return made_ != told_; }
  [[nodiscard]] bool owes() const { return made_ - told_ >= (ours_ + 1) / 2; }
  std::uint32_t tell() { return told_ = made_; }  // the total to send

 private:
  static constexpr std::uint32_t kOld = 1u << 31;  // a larger difference means that the total is older
  std::uint32_t left_, theirs_, ours_;
  std::uint32_t heard_ = 0, made_ = 0, told_ = 0;
};

}  // namespace fairway::transport
