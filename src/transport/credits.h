#pragma once

#include <cstdint>

namespace fairway::transport {

// Credits of a link: receive buffers posted at the peer. Each message or immediate uses one until the peer has polled
// it. A credit update carries a running total of kBits bits, so it may come late, twice or out of order. A value; pure.
template <unsigned kBits>
class CreditsOf {
 public:
  static constexpr std::uint32_t kMask = ~std::uint32_t{0} >> (32 - kBits);

  CreditsOf(std::uint32_t theirs, std::uint32_t ours) : left_(theirs), theirs_(theirs), ours_(ours) {}

  [[nodiscard]] std::uint32_t left() const { return left_; }
  void take() { --left_; }
  void give_back() { ++left_; }  // the credit was not used
  // A credit update: the peer has freed `total` receives in all. False: more than were ever used. Ignores an old total.
  bool update(std::uint32_t total) {
    const std::uint32_t more = (total - peer_total_) & kMask;
    if (more > kMask / 2) return true;  // an older total
    if (more > theirs_ - left_) return false;
    peer_total_ = total;
    left_ += more;
    return true;
  }

  [[nodiscard]] std::uint32_t peer_total() const { return peer_total_; }  // the newest total from the peer

  void add_freed() { ++freed_; }  // a receive of ours is free again
  [[nodiscard]] bool has_update() const { return freed_ != sent_; }
  [[nodiscard]] bool update_due() const { return freed_ - sent_ >= (ours_ + 1) / 2; }
  std::uint32_t take_update() {  // the total to send
    sent_ = freed_;
    return freed_ & kMask;
  }

 private:
  std::uint32_t left_, theirs_, ours_;
  std::uint32_t peer_total_ = 0, freed_ = 0, sent_ = 0;
};

using Credits = CreditsOf<32>;

}  // namespace fairway::transport
