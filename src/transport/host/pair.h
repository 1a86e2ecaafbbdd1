#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <string>

#include "sys/local_socket.h"
#include "sys/memory_file.h"
#include "sys/process.h"
#include "transport/host/handshake.h"
#include "transport/host/segment.h"
#include "transport/region_table.h"

namespace fairway::transport::host {

// One process's side of what two processes share for one epoch of a link. Outlives the lane while the peer may still
// access memory of this side. Owner: the transport's worker.
struct Pair {
  sys::MemoryFile made;    // the segment, on the side that made it
  sys::MappedFile joined;  // the segment, on the other side
  Segment* segment = nullptr;
  unsigned side = 0;  // ours
  sys::MappedFile table;
  RegionView regions;  // the peer's, in `table`
  sys::LocalSocket socket;
  sys::Process process;  // the peer's, if visible from here
  std::string no_cma;    // why cross-memory attach is not used; empty: it is
  bool gone = false;     // the peer's process has ended, or has closed everything of the epoch
  bool left = false;     // the peer's end of the socket is closed

  Direction& out() const { return segment->directions[side]; }
  Direction& in() const { return segment->directions[1 - side]; }
  Segment::End& own_end() const { return segment->ends[side]; }
  Segment::End& peer_end() const { return segment->ends[1 - side]; }

  // Wakes the peer if it sleeps; call it after writing for it with a sequentially consistent store. True: it took a
  // system call. A full socket means that a wake-up is already pending.
  bool ring() const {
    if (peer_end().asleep.load(std::memory_order_seq_cst) == 0 ||
        peer_end().asleep.exchange(0, std::memory_order_seq_cst) == 0)
      return false;
    static_cast<void>(socket.send(kRing, {}));
    return true;
  }
  // The words of the peer's views that may be set; whatever the peer wrote, no more than there are.
  std::span<const std::atomic<std::uint64_t>> views() const {
    return std::span(in().holds).first(std::min(in().holds_end.load(std::memory_order_seq_cst), kHolds));
  }
  // Whether the peer's kernels have a view of that region of this side, or of any.
  bool holds(std::uint64_t region) const {
    return !gone && std::ranges::any_of(views(), [region](const std::atomic<std::uint64_t>& hold) {
      return hold.load(std::memory_order_seq_cst) == region;
    });
  }
  bool holds_any() const {
    return !gone && std::ranges::any_of(views(), [](const std::atomic<std::uint64_t>& hold) {
      return hold.load(std::memory_order_seq_cst) != 0;
    });
  }
  // What the peer is doing with this side's memory at one moment: its current touch, then the copies that it had queued
  // by the end of that touch.
  class Mark {
   public:
    Mark() = default;
    explicit Mark(const Pair& pair) : touches_(pair.in().touching.load(std::memory_order_seq_cst)) {}
    // Whether all of it is over.
    bool over(const Pair& pair) {
      if (pair.gone) return true;
      if (!touched_ && touches_ % 2 != 0 && pair.in().touching.load(std::memory_order_seq_cst) == touches_)
        return false;
      if (!touched_) queued_ = pair.in().queued.load(std::memory_order_seq_cst);
      touched_ = true;
      return pair.in().over.load(std::memory_order_acquire) - queued_ < kHalf;
    }

    [[nodiscard]] bool in_touch() const { return !touched_; }  // at the last over(): still in the touch

   private:
    static constexpr std::uint64_t kHalf = std::uint64_t{1}
                                           << 63;  // wrong values from a hostile peer harm only its own session
    std::uint64_t touches_ = 0, queued_ = 0;
    bool touched_ = false;
  };
};

// The interval in which this side may access the peer's memory, marked by a word in shared memory. To close the epoch
// or revoke a region the owner first does that, then reads the word; this side first sets the word, then checks for the
// close. So at least one of the two sees the other (Dekker's algorithm, sequentially consistent). Keep it short: the
// owner may be waiting for its end.
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
