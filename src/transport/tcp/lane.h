#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/runtime.h"
#include "transport/command.h"
#include "transport/handles.h"
#include "transport/region_table.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/inbox.h"

namespace fairway::transport::tcp {

// One connection, for one epoch of its link: this side's requests (flights), its replies to the peer's requests, the
// outgoing frames and the incoming one. Payload moves directly between memory and socket; only payload that was read
// together with headers is copied once more. Every piece is resolved in the region table right before it is accessed.
// Owner: the transport's worker.
//   lane.cc          slices in, their ends
//   lane_send.cc     frames out
//   lane_receive.cc  frames in
class Lane {
 public:
  // `first`: bytes to send before any frame.
  Lane(std::unique_ptr<Channel> channel, LinkId link, RegionTable& regions, Inbox& inbox,
       std::span<const std::byte> first);

  bool post(const Command& command);  // false: full
  void flush();                       // sends as much as the socket takes
  // Whether to call receive() now. It costs a system call, so a lane that has been quiet is read less often unless its
  // socket has announced bytes.
  [[nodiscard]] bool due(std::uint64_t turn) const {
    return more_ || quiet_ < kQuiet || turn % kSeldom == 0 || (channel_ != nullptr && channel_->announced());
  }
  // Reads and executes at most `budget` bytes, and subtracts them from it.
  void receive(std::uint64_t& budget);
  // Work is left that no wake-up will announce: frames held back to coalesce, or bytes for which there was no room.
  [[nodiscard]] bool busy() const { return !broken_ && (coalescible_ > 0 || more_); }
  // Whether only frames that may coalesce are queued since the last flush: such messages, and acknowledgements of
  // requests that the user may answer. They wait a few polls for that answer: a caller polls once for each completion
  // before it posts.
  [[nodiscard]] bool may_hold() const {
    return coalescible_ > 0 && wire_.empty() && bulk_.empty() && urgent_.size() == coalescible_;
  }
  [[nodiscard]] bool has_output() const {
    return !(first_.empty() && wire_.empty() && urgent_.empty() && bulk_.empty());
  }
  // Call once per poll: whether to hold the queued frames back for now.
  bool hold() { return may_hold() && held_++ < kHoldPolls; }

  void cancel(SliceToken token);
  void stop_memory(RegionId local);  // stops using that memory: slices that have not begun end
  // Ends the epoch: it touches no memory of this side any more, and slices without an event fail.
  void close();
  void fail(Status why);  // link_down, once
  [[nodiscard]] bool broken() const { return broken_; }
  [[nodiscard]] std::uint64_t immediates() const { return immediates_; }

 private:
  enum class Place : std::uint8_t { free, waiting, sending, sent };
  struct Flight {
    Place place = Place::free;
    bool ended = false;  // had its event; kept until the peer has answered
    std::uint16_t generation = 0;
    Command command;
    Header header;
    std::array<std::byte, kHeaderBytes> head{};
    std::vector<std::uint64_t> table;  // offsets of blocks at the target
    std::vector<std::byte> bytes;      // of a message; an atomic's operands
  };
  struct Reply {
    bool used = false;
    bool may_coalesce = false;
    Header header;  // `done`, or `data` for the read in `asked`
    Header asked;
    std::array<std::byte, kHeaderBytes> head{};
    std::vector<std::uint64_t> table;
  };
  struct Entry {  // a frame to send
    bool is_reply = false;
    std::uint16_t index = 0;
  };
  class Fifo {  // of frames; it can hold all of them
   public:
    bool empty() const { return count_ == 0; }
    std::size_t size() const { return count_; }
    const Entry& operator[](std::size_t i) const { return entries_[(head_ + i) % entries_.size()]; }
    void push(Entry entry) { entries_[(head_ + count_++) % entries_.size()] = entry; }
    Entry pop();
    bool remove(Entry entry);

   private:
    std::array<Entry, 2 * kQueueDepth> entries_;
    std::size_t head_ = 0, count_ = 0;
  };

  // lane.cc
  void build(Flight& flight, std::uint16_t index);
  void end(Flight& flight, ErrorCode code, Effect effect, std::uint64_t value = 0);
  void release(Flight& flight);
  Flight* find(std::uint32_t token);
  std::span<std::byte> local_piece(const Flight& flight, std::uint64_t at, ErrorCode& code);

  // lane_send.cc
  void enqueue(Entry entry);
  void reply(Header header, const Header* asked = nullptr);
  bool plan();  // fills pieces_ from wire_; false: the lane broke
  std::span<const std::byte> source(const Entry& entry, std::uint64_t at, ErrorCode& code);
  std::uint64_t frame_bytes(const Entry& entry) const;
  void sent(std::uint64_t bytes);

  // lane_receive.cc
  bool receive_directly(std::uint64_t& budget);
  void parse(std::span<const std::byte> bytes);
  void begin_frame();
  void end_frame();
  bool check_table();  // once all of it is here; false: corrupted, and the lane is broken
  // Where payload byte `at` goes, and the contiguous bytes after it; empty: discard it.
  std::span<std::byte> place(std::uint64_t at);
  void serve_read();
  void serve_atomic();
  void on_done();
  void count_calls();

  const LinkId link_;
  RegionTable& regions_;
  Inbox& inbox_;
  std::unique_ptr<Channel> channel_;
  std::uint64_t calls_counted_ = 0;
  bool broken_ = false;
  bool closed_ = false;
  static constexpr std::uint32_t kHoldPolls = 2;  // polls
  std::size_t coalescible_ = 0;                   // frames of urgent_ since the last flush that may wait
  std::uint32_t held_ = 0;                        // polls for which they have waited
  bool more_ = false;
  static constexpr std::uint32_t kQuiet = 16;             // polls without a byte
  static constexpr std::uint32_t kSeldom = kPollsForAll;  // a quiet lane is read in one of so many polls
  std::uint32_t quiet_ = 0;
  std::uint64_t immediates_ = 0;

  std::vector<Flight> flights_;  // grows with use, to kQueueDepth at most
  std::vector<Reply> replies_;
  std::vector<std::uint16_t> free_flights_, free_replies_;
  std::uint32_t asked_blocks_ = 0,
                served_blocks_ = 0;  // in block tables of unanswered reads: of this side, of the peer

  std::vector<std::byte> first_;
  Fifo urgent_, bulk_;  // queued; small frames pass large ones
  std::uint32_t ordered_in_bulk_ = 0;
  Fifo wire_;                   // being sent, in order
  std::uint64_t position_ = 0;  // bytes sent of the first frame in wire_
  std::vector<std::span<const std::byte>> pieces_;

  std::array<std::byte, kHeaderBytes> head_{};
  std::size_t head_bytes_ = 0;
  bool in_payload_ = false;
  std::uint32_t dry_ = 0;  // consecutive reads of a payload that returned nothing
  Header frame_;
  std::uint64_t payload_ = 0, payload_at_ = 0;
  bool expects_large_ = false;
  ErrorCode frame_code_ = ErrorCode::ok;
  std::uint64_t frame_applied_ = 0;  // bytes of a write that were resolved
  std::uint16_t frame_flight_ = 0;   // of data
  std::vector<std::uint64_t> frame_table_;
  bool table_checked_ = false;
  std::vector<std::byte> frame_bytes_;  // a message, an atomic's operands
};

}  // namespace fairway::transport::tcp
