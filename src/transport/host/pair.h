#pragma once

#include <algorithm>
#include <memory>
#include <string>

#include "sys/local_socket.h"
#include "sys/mapped_file.h"
#include "sys/memory_file.h"
#include "sys/process.h"
#include "transport/host/handshake.h"
#include "transport/host/segment.h"
#include "transport/region_table.h"

namespace fairway::transport::host {

// What two processes share for one epoch of a link, as one of them holds it. Outlives the lane while the peer may still
// touch memory of this side. Owner: the transport's worker.
struct Pair {
  sys::MemoryFile made;    // the segment, by the one who made it
  sys::MappedFile joined;  // by the other
  Segment* segment = nullptr;
  unsigned side = 0;  // ours
  sys::MappedFile table;
  RegionView regions;  // the peer's, in `table`
  sys::LocalSocket socket;
  sys::Process process;   // the peer's, when it can be seen
  std::string no_attach;  // why cross-memory attach is not used; empty: it is
  bool gone = false;      // the peer's process ended, or let go of the epoch altogether
  bool left = false;      // its end of the socket is closed

  Direction& out() const { return segment->directions[side]; }
  Direction& in() const { return segment->directions[1 - side]; }
  Segment::End& own_end() const { return segment->ends[side]; }
  Segment::End& peer_end() const { return segment->ends[1 - side]; }

  // After something was written for the peer, by a sequentially consistent store. True: it cost a system call. A peer
  // whose socket is full has not read it, so it is awake.
  bool ring() const {
    if (peer_end().asleep.load(std::memory_order_seq_cst) == 0 ||
        peer_end().asleep.exchange(0, std::memory_order_seq_cst) == 0)
      return false;
    static_cast<void>(socket.send(kRing, {}));
    return true;
  }
  // Whether kernels of the peer's reach that region of this side, or any.
  bool holds(std::uint64_t region) const {
    if (gone) return false;
    return std::any_of(in().holds.begin(), in().holds.end(), [region](const std::atomic<std::uint64_t>& hold) {
      return hold.load(std::memory_order_seq_cst) == region;
    });
  }
  bool holds_any() const {
    if (gone) return false;
    return std::any_of(in().holds.begin(), in().holds.end(), [](const std::atomic<std::uint64_t>& hold) {
      return hold.load(std::memory_order_seq_cst) != 0;
    });
  }
  // What the peer does with this side's memory at one moment: the touch under way, then the copies that it had queued
  // by the end of that.
  class Mark {
   public:
    Mark() = default;
    explicit Mark(const Pair& pair) : touches_(pair.in().touching.load(std::memory_order_seq_cst)) {}
    // All of it is over.
    bool over(const Pair& pair) {
      if (pair.gone) return true;
      if (!touched_ && touches_ % 2 != 0 && pair.in().touching.load(std::memory_order_seq_cst) == touches_)
        return false;
      if (!touched_) queued_ = pair.in().queued.load(std::memory_order_seq_cst);
      touched_ = true;
      return pair.in().over.load(std::memory_order_acquire) - queued_ < kHalf;
    }

    [[nodiscard]] bool in_touch() const { return !touched_; }  // after the last over(): the first of the two lasts

   private:
    static constexpr std::uint64_t kHalf = std::uint64_t{1}
                                           << 63;  // a peer's nonsense ends nothing but its own session
    std::uint64_t touches_ = 0, queued_ = 0;
    bool touched_ = false;
  };
};

// The time in which this side may touch the peer's memory and tell it of that. Who closes the epoch, or revokes a
// region, does so first and then looks at the word; this side sets the word first and then looks: one of the two sees
// the other (Dekker's way, sequentially consistent). Short, since the peer may be waiting for its end.
class Touch {
 public:
  explicit Touch(const Pair& pair) : word_(pair.out().touching) {
    word_.store(value_ = word_.load(std::memory_order_relaxed) + 1, std::memory_order_seq_cst);
    allowed_ = pair.own_end().closed.load(std::memory_order_seq_cst) == 0 &&
               pair.peer_end().closed.load(std::memory_order_seq_cst) == 0;
  }
  ~Touch() { word_.store(value_ + 1, std::memory_order_release); }
  Touch(const Touch&) = delete;
  Touch& operator=(const Touch&) = delete;
  [[nodiscard]] bool allowed() const { return allowed_; }

 private:
  std::atomic<std::uint64_t>& word_;
  std::uint64_t value_;
  bool allowed_;
};

}  // namespace fairway::transport::host
