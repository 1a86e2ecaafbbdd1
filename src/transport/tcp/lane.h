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

// One connection, for one epoch of its link: what this side asks of the peer (flights), what the peer asked of this
// side (replies), the frames on their way out and the one that is coming in. Payload goes from the memory to the socket
// and from the socket to the memory; only what arrived together with headers is copied once more. Every piece is looked
// up in the region table right before it is touched. Owner: the transport's worker.
//   lane.cc          slices in, their ends
//   lane_send.cc     frames out
//   lane_receive.cc  frames in
class Lane {
 public:
  // `first` goes out before any frame.
  Lane(std::unique_ptr<Channel> channel, LinkId link, RegionTable& regions, Inbox& inbox,
       std::span<const std::byte> first);

  bool post(const Command& command);  // false: full
  void flush();                       // sends what the socket takes
  // Whether to look for bytes now: a lane that was quiet for long is asked less often while nothing announces itself,
  // since asking is a system call for those who poll without sleeping.
  [[nodiscard]] bool due(std::uint64_t turn) const {
    return more_ || quiet_ < kQuiet || turn % kSeldom == 0 || (channel_ != nullptr && channel_->announced());
  }
  // Applies what came, at most `budget` bytes, and lowers it.
  void receive(std::uint64_t& budget);
  // Something is left that no wake-up will announce: frames held back to coalesce, or bytes that found no room.
  [[nodiscard]] bool busy() const { return !broken_ && (coalescible_ > 0 || more_); }
  // Nothing but frames that may coalesce since the last flush: messages that are, and acknowledgements of what the user
  // may answer. They wait for that, a few polls long: a caller collects one completion with each, and then posts.
  [[nodiscard]] bool may_hold() const {
    return coalescible_ > 0 && wire_.empty() && bulk_.empty() && urgent_.size() == coalescible_;
  }
  [[nodiscard]] bool has_output() const {
    return !(first_.empty() && wire_.empty() && urgent_.empty() && bulk_.empty());
  }
  // Once a poll: whether to leave it at that for now.
  bool hold() { return may_hold() && held_++ < kHoldPolls; }

  void cancel(SliceToken token);
  void stop_memory(RegionId local);  // its bytes are no longer read: slices that have not begun end
  // Nothing of this epoch touches this side's memory from now on; slices without an event fail.
  void close();
  void fail(Status why);  // link_down, once
  [[nodiscard]] bool broken() const { return broken_; }
  [[nodiscard]] std::uint64_t immediates() const { return immediates_; }

 private:
  enum class Place : std::uint8_t { free, waiting, sending, sent };
  struct Flight {
    Place place = Place::free;
    bool ended = false;  // has had its event; kept until the peer is through with it
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
    Header header;  // `done`, or `data` with what was asked for in `asked`
    Header asked;
    std::array<std::byte, kHeaderBytes> head{};
    std::vector<std::uint64_t> table;
  };
  struct Entry {  // a frame to send
    bool is_reply = false;
    std::uint16_t index = 0;
  };
  class Fifo {  // of frames; as many as there can be
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
  // Where payload byte `at` goes, and how many can follow it there; empty: nowhere.
  bool table_is_right();
  std::span<std::byte> place(std::uint64_t at);
  void serve_read();
  void serve_atomic();
  void hear_done();
  void count_calls();

  const LinkId link_;
  RegionTable& regions_;
  Inbox& inbox_;
  std::unique_ptr<Channel> channel_;
  std::uint64_t calls_counted_ = 0;
  bool broken_ = false;
  bool closed_ = false;
  static constexpr std::uint32_t kHoldPolls = 2;  // polls
  std::size_t coalescible_ = 0;                   // frames of urgent_ that can wait, of those since the last flush
  std::uint32_t held_ = 0;                        // polls that they have waited
  bool more_ = false;
  static constexpr std::uint32_t kQuiet = 16;             // polls without a byte
  static constexpr std::uint32_t kSeldom = kPollsForAll;  // asked unannounced, of so many polls
  std::uint32_t quiet_ = 0;
  std::uint64_t immediates_ = 0;

  std::vector<Flight> flights_;  // they grow with use, to kQueueDepth at most
  std::vector<Reply> replies_;
  std::vector<std::uint16_t> free_flights_, free_replies_;
  std::uint32_t asked_blocks_ = 0,
                lent_blocks_ = 0;  // in tables of reads that are unanswered, of this side and of the peer

  std::vector<std::byte> first_;
  Fifo urgent_, bulk_;  // waiting; small ones pass large ones
  std::uint32_t ordered_in_bulk_ = 0;
  Fifo wire_;                   // in the order of the stream
  std::uint64_t position_ = 0;  // sent of wire_'s first
  std::vector<std::span<const std::byte>> pieces_;

  std::array<std::byte, kHeaderBytes> head_{};
  std::size_t head_bytes_ = 0;
  bool in_payload_ = false;
  std::uint32_t dry_ = 0;  // looks for more of a payload in vain, one after the other
  Header frame_;
  std::uint64_t payload_ = 0, payload_at_ = 0;
  bool expects_large_ = false;
  ErrorCode frame_code_ = ErrorCode::ok;
  std::uint64_t frame_applied_ = 0;  // bytes of a write that were given a place
  std::uint16_t frame_flight_ = 0;   // of data
  std::vector<std::uint64_t> frame_table_;
  bool table_checked_ = false;
  std::vector<std::byte> frame_bytes_;  // a message, an atomic's operands
};

}  // namespace fairway::transport::tcp
