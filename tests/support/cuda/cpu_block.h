#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "collectives/gpu/device/call.h"

namespace fairway::support {

// A CPU in a GPU's place, for src/collectives/gpu/device/channel.h: a block of one lane.
struct CpuBlock {
  static constexpr std::uint32_t kLooksPerQuestion = 16;

  static unsigned lane() { return 0; }
  static unsigned lanes() { return 1; }
  static void meet() {}
  static bool any(bool one) { return one; }
  static void store_pair(unsigned char* at, std::uint64_t a, std::uint64_t b) {
    auto* const words = reinterpret_cast<std::uint64_t*>(at);
    store(words + 1, b);  // in no order
    store(words, a);
  }
  static void load_pair(const unsigned char* at, std::uint64_t& a, std::uint64_t& b) {
    const auto* const words = reinterpret_cast<const std::uint64_t*>(at);
    a = load(words);
    b = load(words + 1);
  }
  template <class T>
  static void store(T* at, T value) {
    std::atomic_ref(*at).store(value, std::memory_order_release);  // in place of fence(), which ThreadSanitizer ignores
  }
  template <class T>
  static T load(const T* at) {
    return std::atomic_ref(*const_cast<T*>(at)).load(std::memory_order_relaxed);
  }
  static std::uint64_t load_acquire(const std::uint64_t* at) {
    return std::atomic_ref(*const_cast<std::uint64_t*>(at)).load(std::memory_order_acquire);
  }
  static void fence() {}
  static std::uint64_t from_first(std::uint64_t word) { return word; }
  template <class T>
  static bool take(T* at, T from, T to) {
    return std::atomic_ref(*at).compare_exchange_strong(from, to);
  }
  static std::uint32_t count(std::uint32_t* at) { return std::atomic_ref(*at).fetch_add(1) + 1; }
  static std::uint32_t count_only(std::uint32_t* at) { return count(at); }
  static void let_next_begin() {}
  static std::uint64_t now() {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  static void rest() { std::this_thread::yield(); }

  static constexpr unsigned kLanesHere = collectives::gpu::kRowLanes;
  static unsigned row_lane(unsigned i) { return i; }
  static std::uint64_t row_first(std::uint64_t word) { return word; }
  static std::uint64_t most(std::uint64_t word) { return word; }
  static bool all_of_row(bool one) { return one; }
  // A line's last word is its flag: written last, read first.
  static void store_row(unsigned char* at, const std::uint64_t (&words)[kLanesHere][2]) {
    auto* const to = reinterpret_cast<std::uint64_t*>(at);
    for (unsigned i = 0; i < 2 * kLanesHere; ++i) store(to + i, words[i / 2][i % 2]);
  }
  static void load_row(const unsigned char* at, std::uint64_t (&words)[kLanesHere][2]) {
    const auto* const from = reinterpret_cast<const std::uint64_t*>(at);
    for (unsigned i = 2 * kLanesHere; i-- > 0;) words[i / 2][i % 2] = load_acquire(from + i);
  }
  template <class One>
  static void each_warp(unsigned count, One one) {
    for (unsigned warp = 0; warp < count; ++warp) one(warp);
  }
};

}  // namespace fairway::support
