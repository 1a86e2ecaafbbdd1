#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "core/queues.h"
#include "transport/blocks.h"
#include "transport/loopback/wire.h"

namespace fairway::transport::loopback {

// Which thread may access the initiator's memory for a slice. Both threads change it by compare-exchange only:
//
//              claim (target)
//   waiting  ------------------> copying     the target copies at most one piece (kPieceBytes), then
//      |   <------------------      |          sets it to waiting or finished
//      v      not all copied        v
//   cancelled (initiator)         finished
//
// Only `waiting` can become `cancelled`, so once it is cancelled the target does not touch the memory again.
enum class Hold : std::uint32_t { waiting, copying, finished, cancelled };

inline constexpr std::uint64_t kPieceBytes = 1 << 20;
inline constexpr std::uint32_t kQueueDepth = 32;
inline constexpr std::uint32_t kArenaBytes = 32 * 1024;

// A slice in flight. The initiator fills it before it enters `submitted`; then `hold` says who owns it.
struct Flight {
  Command command;
  std::atomic<Hold> hold{Hold::waiting};
  std::atomic<bool> give_up{false};  // the initiator asks the target to end it after this piece
  BlockCursor cursor;                // target's progress
  bool touched = false;              // some byte was moved
  ErrorCode result = ErrorCode::ok;
  std::uint64_t old_value = 0;
  std::uint32_t arena_begin = 0, arena_end = 0;  // a message's bytes, free-running
  // The initiator's own.
  bool in_use = false;
  bool reported = false;  // its event was delivered
  bool returned = false;  // the target is done with it
};

// The slices of one side. About 9 KiB, plus kArenaBytes once a message is sent.
struct Lane {
  std::array<Flight, kQueueDepth> flights;
  SpscRing<std::uint32_t> submitted{kQueueDepth};  // initiator -> target
  SpscRing<std::uint32_t> completed{kQueueDepth};  // target -> initiator; never full: holds each flight once at most
  std::unique_ptr<std::byte[]> arena;              // made by the initiator before the first message is submitted
  std::atomic<std::uint32_t> arena_head{0};        // free-running; the target has freed the arena up to here
};

// One epoch of one link between two threads; shared by its two ports. Side 0 offered it, side 1 attached.
class Pipe {
 public:
  Pipe(std::uint64_t link_name, std::shared_ptr<Doorbell> offerer) : name(link_name) { bells[0] = std::move(offerer); }

  const std::uint64_t name;
  std::array<Lane, 2> lanes;  // by initiator
  std::array<std::shared_ptr<Doorbell>, 2> bells;
  std::atomic<bool> taken{false};     // by the one that attaches
  std::atomic<bool> attached{false};  // publishes bells[1]
  std::atomic<bool> broken{false};    // cut, or fenced by an end
  // By side: where an initiator finds the target's memory that it copies to or from by itself, a few bytes at a time;
  // odd while it may (DirectPort::move_now).
  std::array<const RegionTable*, 2> regions{};  // [1]: published by `attached`
  std::array<std::atomic<std::uint64_t>, 2> touching{};

  void ring(unsigned side) {
    if (side == 0 || attached.load(std::memory_order_acquire)) bells[side]->ring();
  }
};

}  // namespace fairway::transport::loopback
