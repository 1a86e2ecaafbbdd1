#pragma once

#include <cstdint>

#include "transport/credits.h"

namespace fairway::transport::verbs {

// Counts the work requests of a send queue, which complete in the order of posting: unsignaled requests complete with
// the next signaled one. Keeps the queue from overflowing, and room for a signaled request at the end of each run. A
// value; pure.
class SendWindow {
 public:
  explicit SendWindow(std::uint32_t depth) : depth_(depth), run_(depth / 8 == 0 ? 1 : depth / 8) {}

  // No more may be posted; keeps one back for the request that ends a run.
  [[nodiscard]] bool is_full() const { return posted_ - completed_ + 1 >= depth_; }
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

// The top bit of the immediate that carries the total marks a credit update without a message.
using Credits = CreditsOf<31>;

}  // namespace fairway::transport::verbs
