#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/queues.h"
#include "transport/command.h"
#include "transport/loopback/loopback.h"
#include "transport/offers.h"

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

// One end of a Pipe. As initiator it queues slices; as target it executes the peer's, with one copy directly between
// the two memories. Owned by a transport, called on its worker's thread.
class DirectPort final : public Port {
 public:
  DirectPort(std::shared_ptr<Pipe> pipe, unsigned side, RegionTable& regions);
  ~DirectPort() override { close(); }

  std::size_t post(std::span<const Command> commands) override;
  void ring() override { pipe_->ring(1 - side_); }
  AtOnce move_now(const SmallMove& move, RegionId region) override;
  std::uint64_t touched() const override { return pipe_->touching[1 - side_].load(std::memory_order_seq_cst); }
  std::size_t poll(std::span<Event> events, Time now, std::uint64_t& budget) override;
  bool idle() const override;
  bool in_use() const override { return !in_.submitted.empty(); }
  void cancel(SliceToken token) override;
  void cancel_memory(std::uint64_t local_handle) override;
  bool uses(std::uint64_t local_handle) const override;
  void fence() override;
  void cut() override;
  void close() override;
  std::uint64_t name() const override { return pipe_->name; }

 private:
  // As initiator.
  bool place_message(Flight& flight);
  void collect(std::span<Event> events, std::size_t& stored);
  void report(Flight& flight, Event& event);
  void recycle(std::uint32_t index);
  void end_early(Flight& flight);  // cancels it now, or after the piece that is being copied
  std::size_t finish_fence(std::span<Event> events, std::size_t stored);
  // As target.
  void serve(std::span<Event> events, std::size_t& stored, std::uint64_t& budget);
  void advance(Flight& flight, std::uint64_t& budget);  // copies one piece; sets `result` at the end
  ErrorCode execute_atomic(Flight& flight);
  void settle(Flight& flight, Hold to);

  const std::shared_ptr<Pipe> pipe_;
  const unsigned side_;
  RegionTable& regions_;
  Lane& out_;
  Lane& in_;
  std::vector<std::uint32_t> free_;   // flights of out_
  std::vector<std::uint32_t> early_;  // refused or cancelled on this side; their events are due
  std::uint32_t arena_tail_ = 0;      // of out_, free-running
  std::uint32_t arena_due_ = 0;       // of in_: freed at the next poll
  bool arena_held_ = false;
  bool serving_ = false;  // current_ is an unfinished flight of in_
  std::uint32_t current_ = 0;
  std::uint64_t immediates_ = 0;  // received
  std::uint64_t last_touch_ = 0;  // the peer's, when this end closed the epoch
  [[nodiscard]] bool is_touched() const { return last_touch_ % 2 != 0 && touched() == last_touch_; }
  enum class State : std::uint8_t { up, down, fencing, fenced } state_ = State::up;
};

class Pipe;

// Matches the two ends of a direct link. Any thread; locks only while links are made, not on the data path.
class DirectWire final : public Wire {
 public:
  explicit DirectWire(std::vector<Device> devices = {default_device()});
  static Device default_device();

  std::uint64_t fabric() const override { return reinterpret_cast<std::uintptr_t>(this); }
  std::span<const Device> devices() const override { return devices_; }
  bool ready(DeviceIndex) const override { return true; }
  std::unique_ptr<Port> offer(std::uint64_t id, End end) override;
  std::unique_ptr<Port> attach(std::uint64_t id, End end) override;

  // Breaks the link of that name for both ends, like a pulled cable: for tests of failover. False: no such link.
  bool cut(std::uint64_t name);

 private:
  const std::vector<Device> devices_;
  std::atomic<std::uint64_t> next_name_{1};
  Offers<Pipe> offers_;
};

}  // namespace fairway::transport::loopback
