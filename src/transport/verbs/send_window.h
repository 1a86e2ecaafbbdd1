#pragma once

#include <cstdint>

namespace fairway::transport::verbs {

// Counts the work requests of a send queue, which complete in the order of posting: unsignaled requests complete with
// the next signaled one. Keeps the queue from overflowing, and room for a signaled request at the end of each run. A
// value; pure.
class SendWindow {
 public:
  explicit SendWindow(std::uint32_t depth) : depth_(depth), run_(depth / 8 == 0 ? 1 : depth / 8) {}

  // How many more may be posted; keeps one back for the request that ends a run.
  [[nodiscard]] std::uint32_t room() const {
    const auto out = static_cast<std::uint32_t>(posted_ - completed_);
    return out + 1 >= depth_ ? 0 : depth_ - out - 1;
  }
  std::uint64_t post() { return ++posted_; }  // the request's number
  // The unsignaled run is long enough: a longer one could fill the queue before it completes.
  [[nodiscard]] bool run_is_long() const { return posted_ - ended_ >= run_; }
  [[nodiscard]] bool run_is_open() const { return posted_ != ended_; }
  void end_run() { ended_ = posted_; }  // the last request posted is signaled

  // Request `number` has completed. False: impossible.
  bool complete(std::uint64_t number) {
    if (number <= completed_ || number > posted_) return false;
    completed_ = number;
    return true;
  }
  [[nodiscard]] std::uint64_t posted() const { return posted_; }
  [[nodiscard]] std::uint64_t completed() const { return completed_; }

 private:
  std::uint32_t depth_, run_;
  std::uint64_t posted_ = 0, completed_ = 0, ended_ = 0;
};

// What the peer has room for: messages and immediates, each of which takes one receive there until it was polled.
// Totals travel, so that what says them may be late or doubled. A value; pure.
class Credits {
 public:
  static constexpr std::uint32_t kMask = 0x7fff'ffff;  // of a total as it travels

  Credits(std::uint32_t theirs, std::uint32_t ours) : left_(theirs), theirs_(theirs), ours_(ours) {}

  [[nodiscard]] std::uint32_t left() const { return left_; }
  void take() { --left_; }
  void give_back() { ++left_; }  // it was not used
  // The peer has made room so many times in all; false: more than was ever used.
  bool hear(std::uint32_t total) {
    const std::uint32_t more = (total - heard_) & kMask;
    if (more > theirs_ - left_) return false;
    heard_ = total;
    left_ += more;
    return true;
  }

  void make_room() { ++made_; }  // a receive of ours is free again
  [[nodiscard]] bool owes() const { return made_ - told_ >= ours_ / 2; }
  std::uint32_t tell() {  // the total to say
    told_ = made_;
    return made_ & kMask;
  }

 private:
  std::uint32_t left_, theirs_, ours_;
  std::uint32_t heard_ = 0, made_ = 0, told_ = 0;
};

}  // namespace fairway::transport::verbs
