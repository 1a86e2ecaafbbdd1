#pragma once

#include <memory>
#include <vector>

#include "transport/loopback/pipe.h"

namespace fairway::transport::loopback {

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

}  // namespace fairway::transport::loopback
