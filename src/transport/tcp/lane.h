#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/runtime.h"
#include "transport/command.h"
#include "transport/event_queue.h"
#include "transport/region_table.h"
#include "transport/tcp/frame.h"

namespace fairway::transport::tcp {

// An Inbox with the buffers that frames are read into, and one from which short ones are sent.
class Inbox : public transport::Inbox {
 public:
  static constexpr std::size_t kStagingBytes = 64 * 1024;
  static constexpr std::size_t kGatherBytes = 10 * 1024;  // a message with its header, and what travels with it

  using transport::Inbox::Inbox;

  std::span<std::byte> staging() { return staging_; }
  std::span<std::byte> sink() { return sink_; }  // for bytes to be discarded
  std::span<std::byte> gather() { return gather_; }

 private:
  std::vector<std::byte> staging_ = std::vector<std::byte>(kStagingBytes);
  std::vector<std::byte> sink_ = std::vector<std::byte>(kStagingBytes);
  std::vector<std::byte> gather_ = std::vector<std::byte>(kGatherBytes);
};

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
  // Call once per poll: whether to call receive() now. It costs a system call, so a lane that has been quiet for
  // `patience` polls is read less often unless its socket has announced bytes, and one that was just read to its end
  // rests first.
  [[nodiscard]] bool due(std::uint64_t turn, std::uint32_t patience) {
    if (more_ || (channel_ != nullptr && channel_->announced())) return true;
    if (told_ > 0) {
      --told_;
      return false;
    }
    if (rest_ > 0 && --rest_ > 0) return false;
    if (quiet_ < patience) return true;
    if (!wakes_) wake_for_input();
    return turn % kSeldom == 0;
  }
  // Reads and executes at most `budget` bytes, and subtracts them from it.
  void receive(std::uint64_t& budget);
  bool prepare_sleep() {  // false: it must be polled first
    in_use_ = 0;
    if (!wakes_) wake_for_input();
    if (!wakes_ || busy()) return false;
    told_ = channel_ != nullptr && channel_->announces_first() ? kToldPolls : 0;
    return true;
  }
  // Work is left that no wake-up will announce: frames held back to coalesce, bytes for which there was no room, or the
  // end of the stream behind the bytes that were read.
  [[nodiscard]] bool busy() const { return !broken_ && (coalescible_ > 0 || acks_wait_ || more_ || rest_ > 0); }
  // Whether only frames that may coalesce are queued since the last flush: such messages, and acknowledgements of
  // requests that the user may answer. They wait a few polls for that answer: a caller polls once for each completion
  // before it posts.
  [[nodiscard]] bool may_hold() const {
    return (coalescible_ > 0 || acks_wait_) && wire_.empty() && bulk_.empty() && urgent_.size() == coalescible_;
  }
  [[nodiscard]] bool has_output() const {
    return owed_ > 0 || !(first_.empty() && wire_.empty() && urgent_.empty() && bulk_.empty());
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
  // Bytes that came, and those that the peer's system has. Asks the socket.
  [[nodiscard]] std::uint64_t moved() const;
  [[nodiscard]] std::uint32_t swallowed_segment() const { return channel_ ? channel_->swallowed_segment() : 0; }

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
    Header header;  // `done`, `taken`, or `data` for the read in `asked`
    Header asked;
    std::array<std::byte, kHeaderBytes> head{};
    std::vector<std::uint64_t> table;
  };
  static constexpr std::uint32_t kTakenFrames = 2;  // at most: one that is being sent, one behind it
  struct Entry {                                    // a frame to send
    bool is_reply = false;
    bool out = false;  // only padding behind it is left: the peer may have answered, and its place be of another frame
    std::uint8_t before = 0, after = 0;  // padding, once it is in wire_
    std::uint16_t index = 0;
    std::uint32_t bytes = 0;  // of header and payload
    [[nodiscard]] std::uint64_t whole() const { return std::uint64_t{before} + bytes + after; }
  };
  class Fifo {  // of frames; it can hold all of them
   public:
    bool empty() const { return count_ == 0; }
    std::size_t size() const { return count_; }
    const Entry& operator[](std::size_t i) const { return entries_[(head_ + i) % entries_.size()]; }
    Entry& front() { return entries_[head_]; }
    Entry& back() { return entries_[(head_ + count_ - 1) % entries_.size()]; }
    void push(Entry entry) { entries_[(head_ + count_++) % entries_.size()] = entry; }
    Entry pop();
    bool remove(Entry entry);

   private:
    std::array<Entry, 2 * kQueueDepth + kTakenFrames + 1> entries_;  // one more: a frame that is out
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
  void acknowledge();  // the frame received last: a message or an immediate
  void attach_acks(std::size_t encoded);
  std::uint16_t take_reply();
  void reply(Header header, const Header* asked = nullptr);
  void align(Entry& entry);  // the padding ahead of it, where the stream ends now
  void commit(Entry entry);  // gives it its place in the stream
  bool send_alone();         // the only frame there is, if it is small; false: it goes the ordinary way
  bool plan();               // fills pieces_ from wire_; false: the lane broke
  Result<std::size_t> send_planned(std::uint64_t size);
  std::span<const std::byte> source(const Entry& entry, std::uint64_t at, ErrorCode& code);
  Header& header_of(const Entry& entry);
  void encode_head(const Entry& entry);
  void sent(std::uint64_t bytes);
  void frame_is_out(const Entry& entry);

  // lane_receive.cc
  void wake_for_input();
  bool receive_directly(std::uint64_t& budget);
  void parse(std::span<const std::byte> bytes);
  void begin_frame(std::span<const std::byte, kHeaderBytes> head);
  void end_frame();
  bool check_table();  // once all of it is here; false: corrupted, and the lane is broken
  // Where payload byte `at` goes, and the contiguous bytes after it; empty: discard it.
  std::span<std::byte> place(std::uint64_t at);
  void serve_read();
  void serve_atomic();
  void on_done();
  void on_acks();
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
  std::uint32_t owed_ = 0;                        // acknowledgements that no frame carries yet
  bool acks_wait_ = false;                        // some came since the last flush
  std::uint32_t held_ = 0;                        // polls for which those frames and acknowledgements have waited
  bool more_ = false;
  static constexpr std::uint32_t kSeldom = kPollsForAll;  // a quiet lane is read in one of so many polls
  std::uint32_t quiet_ = 0;                               // polls without a byte
  // After a read that took all there was, at the end of a frame: the read of so many polls less one is left out. The
  // user may answer what came, and needs two polls for that (as for kHoldPolls); the peer waits meanwhile.
  static constexpr std::uint32_t kRestPolls = kHoldPolls + 1;
  std::uint32_t rest_ = 0;
  // For so many polls after a sleep the lane is read only if its socket was announced: whoever sleeps hears first which
  // of them have bytes, and a peer with many lanes wakes for one.
  static constexpr std::uint32_t kToldPolls = kHoldPolls;
  std::uint32_t told_ = 0;
  // A socket that is registered to wake somebody costs the kernel time for each segment (docs/tcp.md). So it is not,
  // after so many reads with bytes between which nobody prepared to sleep, until somebody does or the lane is quiet.
  static constexpr std::uint32_t kReadsInUse = 64;
  std::uint32_t in_use_ = 0;
  bool wakes_ = true;
  std::uint64_t immediates_ = 0;
  std::uint64_t sent_ = 0, received_ = 0;  // bytes, by the socket

  std::vector<Flight> flights_;  // grows with use, to kQueueDepth at most
  std::vector<Reply> replies_;
  std::vector<std::uint16_t> free_flights_, free_replies_;
  std::uint32_t asked_blocks_ = 0,
                served_blocks_ = 0;  // in block tables of unanswered reads: of this side, of the peer

  std::vector<std::byte> first_;
  Fifo urgent_, bulk_;  // queued; small frames pass large ones
  std::uint32_t ordered_in_bulk_ = 0;
  Fifo wire_;                   // being sent, in order
  Fifo unanswered_;             // messages and immediates of this side that are or were in wire_
  std::uint64_t position_ = 0;  // bytes sent of the first frame in wire_
  std::uint64_t planned_ = 0;   // bytes of the stream up to the end of wire_
  std::vector<std::span<const std::byte>> pieces_;

  std::array<std::byte, kHeaderBytes> head_{};
  std::size_t head_bytes_ = 0;
  bool in_payload_ = false;
  std::uint32_t dry_ = 0;  // consecutive reads of a payload that returned nothing
  Header frame_;
  std::uint64_t payload_ = 0, payload_at_ = 0;
  std::uint32_t large_due_ = 0;  // frames of which each is likely large
  ErrorCode frame_code_ = ErrorCode::ok;
  std::uint64_t frame_applied_ = 0;  // bytes of a write that were resolved
  std::uint16_t frame_flight_ = 0;   // of data
  std::vector<std::uint64_t> frame_table_;
  bool table_checked_ = false;
  std::vector<std::byte> frame_bytes_;  // a message that comes in parts, an atomic's operands
  std::span<const std::byte> message_;
};

}  // namespace fairway::transport::tcp
