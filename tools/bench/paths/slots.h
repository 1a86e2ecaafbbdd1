#pragma once

#include <array>
#include <cstddef>
#include <numeric>

namespace fairway::tool::bench {

// Which of N slots are free. They come back in any order. One thread's.
template <std::size_t N>
class FreeSlots {
 public:
  FreeSlots() { std::iota(free_.begin(), free_.end(), std::size_t{0}); }
  [[nodiscard]] bool none_left() const { return count_ == 0; }
  std::size_t take() { return free_[--count_]; }
  void give(std::size_t slot) { free_[count_++] = slot; }

 private:
  std::array<std::size_t, N> free_;
  std::size_t count_ = N;
};

}  // namespace fairway::tool::bench
