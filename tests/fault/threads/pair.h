#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

#include "fairway/engine.h"

#include "memory.h"

namespace fairway {
struct Runtime;
}

namespace fairway::threads {

inline constexpr Timeout kEver = std::chrono::seconds(20);  // no wait of a healthy engine takes so long
inline constexpr std::size_t kThreads = 4;
inline constexpr std::size_t kArea = 64 * 1024;  // bytes of each thread, in each memory
inline constexpr std::size_t kTags = 3;
inline constexpr std::size_t kAreas = 2 * kThreads + kTags;
inline constexpr std::size_t kParts = 4;                // of an area
inline constexpr std::size_t kTransfers = 256;          // that an engine takes at once
inline constexpr std::size_t kPlaces = kTransfers + 1;  // of each thread, behind the areas
inline constexpr std::size_t kPlace = 8192;             // bytes

// One transfer for poll() or a callback: how often it completed.
struct Told {
  std::atomic<int> times{0};
};

// The two ends of a tag. Who holds a lock is its only sender or receiver for the moment.
struct Tag {
  std::mutex sending, receiving;
  std::atomic<std::uint64_t> sent{0}, received{0};  // messages; written by who holds that lock
  std::uint64_t cancelled = 0;  // receives that may have taken a message with them; of who holds `receiving`
};

// An engine on a NIC that stands in for a real one.
Result<Engine> open_on_nic(const EngineOptions& options, const char* nic, Runtime& runtime, bool short_path = true);

// Two engines of this process that know each other, with memory for each thread, and what the threads count together.
// It lives until the last thread lets go of it; its engines may be closed at any time.
struct Pair {
  struct Side {
    std::unique_ptr<Engine> engine;
    std::optional<int> gpu;  // whose memory it lends; empty: the host's
    Memory owned;
    std::span<std::byte> memory;  // the bytes of `owned`
    Region region;
    PeerId other;         // the other engine, here
    RemoteRegion remote;  // its memory
  };
  // `transport`: "cuda" is shm and cuda, between memory of two GPUs.
  static Result<std::shared_ptr<Pair>> open(const std::string& transport, Progress progress);

  std::array<Side, 2> sides;
  std::array<Tag, kTags> tags;    // from side 0 to side 1
  std::atomic<bool> over{false};  // the engines close from now on
  std::shared_mutex
      touches_mutex;  // shared: by who touches memory that a close takes away; over is set holding it alone
  std::atomic<std::uint64_t> counted_ok{0}, counted_tried{0};  // writes of side 0 with counter 5
  std::atomic<std::uint64_t> events_ok{0}, events_tried{0}, events_seen{0};
  std::atomic<std::uint64_t> to_poll{0}, polled{0};  // at side 0
  std::mutex mutex;                                  // guards told
  std::vector<std::unique_ptr<Told>> told;
};

}  // namespace fairway::threads
