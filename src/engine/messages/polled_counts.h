#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "fairway/ids.h"

namespace fairway::engine {

// How many notifications of each peer were polled, which returns its credits. Nothing is counted for a peer that is
// gone. Control's thread opens, workers close, callers count; lock-free.
class PolledCounts {
 public:
  // `first`: where every count begins, so that a test need not count to 2^32.
  explicit PolledCounts(std::uint32_t peers, std::uint32_t first = 0)
      : words_(new std::atomic<std::uint64_t>[peers]()), first_(first) {}

  void open(PeerId peer) {  // before anything of it can be polled
    words_[peer.slot].store(std::uint64_t{peer.generation} << 32 | first_, std::memory_order_relaxed);
  }
  bool add(PeerId peer) {  // false: the peer is gone
    std::uint64_t word = words_[peer.slot].load(std::memory_order_relaxed);
    while (word >> 32 == peer.generation)
      if (words_[peer.slot].compare_exchange_weak(word, counted(word), std::memory_order_relaxed)) return true;
    return false;
  }
  [[nodiscard]] std::optional<std::uint32_t> of(PeerId peer) const {  // none: the peer is gone
    const std::uint64_t word = words_[peer.slot].load(std::memory_order_relaxed);
    return word >> 32 == peer.generation ? std::optional(static_cast<std::uint32_t>(word)) : std::nullopt;
  }
  std::uint32_t close(PeerId peer) {  // how many were counted; add() and of() know it no longer
    return static_cast<std::uint32_t>(words_[peer.slot].exchange(0, std::memory_order_relaxed));
  }

 private:
  // One more, modulo 2^32: the carry must not reach the generation.
  static std::uint64_t counted(std::uint64_t word) {
    return (word & ~std::uint64_t{0xffffffff}) | static_cast<std::uint32_t>(word + 1);
  }

  std::unique_ptr<std::atomic<std::uint64_t>[]> words_;  // by slot: generation << 32 | count; generation 0: gone
  const std::uint32_t first_;
};

}  // namespace fairway::engine
