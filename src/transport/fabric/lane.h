#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/time.h"
#include "transport/blocks.h"
#include "transport/command.h"
#include "transport/credits.h"
#include "transport/fabric/endpoint.h"
#include "transport/fabric/frame.h"
#include "transport/fabric/memory.h"
#include "transport/inbox.h"

namespace fairway::transport::fabric {

inline constexpr std::uint32_t kQueueDepth = 64;  // slices of a lane
inline constexpr std::uint64_t kMaxSliceBytes = std::uint64_t{8} << 20;
inline constexpr std::uint32_t kMaxBlocks = 1 << 17;  // of one slice

// Where a lane's messages come in and go out. A resource; not in any region.
class LaneMemory {
 public:
  static constexpr std::size_t kBytes = (kIn + kReceives) * kFrameBytes;

  static LaneMemory make() {
    LaneMemory memory;
    memory.bytes_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, (kBytes + 4095) / 4096 * 4096)));
    return memory;
  }
  explicit operator bool() const { return bytes_ != nullptr; }
  [[nodiscard]] std::byte* in(std::size_t i) const { return bytes_.get() + i * kFrameBytes; }
  [[nodiscard]] std::byte* out(std::size_t i) const { return in(kIn + i); }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<std::byte, Free> bytes_;
};

// One end, for one epoch of its link: slices in, which become operations, and what the provider announces. Operations
// complete in any order and are counted; slices are posted in order and end in any. Owner: the transport's worker.
//   lane.cc          making, slices in, their ends, closing
//   lane_send.cc     operations out
//   lane_receive.cc  completions in
class Lane {
 public:
  static Result<std::unique_ptr<Lane>> make(Domain& domain, LinkId link, Inbox& inbox, std::uint64_t end_name);
  ~Lane();

  [[nodiscard]] const Endpoint& endpoint() const { return *end_; }
  [[nodiscard]] int endpoint_fd() const { return end_ ? end_->fd() : -1; }
  [[nodiscard]] const Domain& domain() const { return domain_; }
  Status connect(std::span<const std::byte> theirs, std::uint32_t receives) {
    credits_ = Credits(receives, kReceives);
    return end_->connect(theirs);
  }

  // False: full. `descriptor` is of the local memory, where the provider wants one.
  bool post(const Command& command, void* descriptor, const Key& remote);
  void flush();  // what there is room for
  // Asks what the peer has taken, where it should have said so long ago; when to call that again.
  Time ask(Time now);
  // Whether nothing waits but messages that others may go with. They wait for those a few polls long: a caller collects
  // one completion with each, and then posts.
  [[nodiscard]] bool may_hold() const { return coalescible_ != 0 && coalescible_ == waiting_count_ && !broken_; }
  // Once a poll: whether to leave it at that for now.
  bool hold() { return may_hold() && held_++ < kHoldPolls; }
  void receive();  // takes completions, while the inbox has room
  // False: there is something to do first.
  bool prepare_sleep();
  // Nothing announces what it waits for: the provider has no descriptor, or has taken nothing of what is to be sent.
  [[nodiscard]] bool needs_looks() const { return !closed_ && (end_->fd() < 0 || (waiting_count_ != 0 && out_ == 0)); }
  [[nodiscard]] bool busy() const { return out_ != 0 || waiting_count_ != 0 || owes_word(); }
  [[nodiscard]] bool quiet() const { return quiet_; }  // the last look brought nothing

  void cancel(SliceToken token);
  // Slices on that memory that have not begun end; true: none that has is left.
  bool stop_memory(std::uint64_t local_handle);
  bool stop_region(RegionId remote);
  // Nothing of this epoch touches this side's memory from now on, if `stopped()`; slices without an event are undecided
  // until give_up().
  void close(Clock& clock);
  void give_up();         // each fails
  void fail(Status why);  // link_down, once
  [[nodiscard]] bool broken() const { return broken_; }
  [[nodiscard]] bool stopped() const { return stopped_; }
  // The provider did not close the end: it may use this lane's memory for as long as the process lives.
  [[nodiscard]] bool end_lives() const { return end_lives_; }
  [[nodiscard]] const std::string& why_not_stopped() const { return why_not_stopped_; }
  [[nodiscard]] std::uint64_t immediates() const { return immediates_; }

  // Memory bound to this end, for providers that want that; by the region's handle.
  [[nodiscard]] const Registered* bound(std::uint64_t handle) const;
  Result<const Registered*> bind(std::uint64_t handle, const MemoryDescription& memory, Rng& random);
  void unbind(std::uint64_t handle) { bound_.erase(handle); }

 private:
  static constexpr std::uint16_t kNone = 0xffff;
  struct Flight {
    bool live = false;
    bool ended = false;               // has had its event; kept until none of its operations is on its way
    bool waiting = false;             // has operations to post
    bool begun = false;               // some were
    bool cancelled = false;           // the rest is not posted
    bool unheard = false;             // the peer has not said that it took its frame
    ErrorCode wrong = ErrorCode::ok;  // with a block: the rest is not posted
    std::uint32_t out = 0;            // operations on their way
    Command command;
    BlockCursor cursor;
    Key remote;
    void* descriptor = nullptr;
    std::uint16_t buffer = kNone;  // of a message
    std::uint32_t number = 0;      // of its frame, if unheard
    std::uint16_t joined = kNone;  // a message that went with this one
  };
  struct Context {  // of an operation or a receive: what libfabric gives back, and may use while it is under way
    fi_context2 space{};
    std::uint16_t index = 0;  // of the flight; of the buffer
    bool receive = false;
  };
  static constexpr std::uint32_t kHoldPolls = 2;  // polls
  static constexpr std::size_t kPieces = 8;

  Lane(Domain& domain, LinkId link, Inbox& inbox) : domain_(domain), link_(link), inbox_(inbox) {}

  // lane.cc
  void release_end();
  void end(Flight& flight, ErrorCode code, Effect effect, const char* why);
  void settle(Flight& flight);  // ends what is complete, frees what has ended
  template <class Uses>
  bool stop(Uses uses, ErrorCode code, const char* why);
  static bool moves(const Slice& slice) {
    return slice.op == Op::write || slice.op == Op::read || slice.op == Op::write_immediate;
  }
  // Its immediate travels as a message: of no bytes, or where the provider has none.
  [[nodiscard]] bool by_message(const Slice& slice) const;

  // lane_send.cc
  [[nodiscard]] bool owes_word() const { return domain_.loses_messages() && credits_.untold(); }
  bool build(Flight& flight);  // false: no room for the rest
  bool build_move(Flight& flight);
  bool build_messages(Flight& flight);
  bool build_immediate(Flight& flight);
  bool send(Flight& flight, std::span<std::byte> frame);
  Flight& waiting(std::size_t place) { return flights_[waiting_[(waiting_head_ + place) % kQueueDepth]]; }
  void next_waits();  // the first of those that wait does no more
  bool posted(Flight& flight, ssize_t result, const char* call);
  void tell_room(bool ask = false);
  void await_word(std::uint16_t flight);
  void write_header(std::byte* at, FrameHeader::Kind kind, std::uint32_t value);

  // lane_receive.cc
  void take(const fi_cq_data_entry& completion);
  void take_frame(std::size_t buffer, std::size_t size);
  void take_immediate(std::uint32_t value);
  void settle_heard();
  void take_error();
  void operation_ended(Context& context);
  void give_receive(std::size_t buffer);

  Domain& domain_;
  const LinkId link_;
  Inbox& inbox_;
  LaneMemory memory_;
  Registered memory_region_;  // where the provider wants local memory registered
  std::unordered_map<std::uint64_t, Registered> bound_;
  std::unique_ptr<Endpoint> end_;
  bool broken_ = false, closed_ = false, stopped_ = false, end_lives_ = false, quiet_ = false;
  std::string why_not_stopped_;

  std::vector<Flight> flights_ = std::vector<Flight>(kQueueDepth);
  std::array<std::uint16_t, kQueueDepth> free_flights_{};
  std::size_t free_flight_count_ = 0;
  std::array<std::uint16_t, kQueueDepth> waiting_{};  // a ring of flights with operations to post, in order
  std::size_t waiting_head_ = 0, waiting_count_ = 0;
  std::size_t coalescible_ = 0;                          // of these
  std::uint32_t held_ = 0;                               // polls since the last flush
  std::array<std::uint16_t, kReceives> free_buffers_{};  // of messages
  std::size_t free_buffer_count_ = 0;
  std::vector<Context> operations_;
  std::vector<std::uint16_t> free_operations_;
  std::uint32_t out_ = 0;  // operations on their way

  std::array<Context, kIn> receives_{};
  std::array<std::uint16_t, kIn> owed_receives_{};  // that the provider had no room for
  std::size_t owed_receive_count_ = 0;
  Credits credits_{0, kReceives};
  std::uint32_t sent_ = 0, taken_ = 0;  // frames that take a receive
  // Where the provider loses messages: a ring of flights whose frames the peer has not said that it took, in order.
  std::array<std::uint16_t, kQueueDepth> unheard_{};
  std::size_t unheard_head_ = 0, unheard_count_ = 0;
  Time ask_at_ = kNever;
  bool asked_ = false;        // by the peer, what was taken
  bool word_waited_ = false;  // of what was taken, for a frame that goes that way
  std::uint64_t immediates_ = 0;
};

}  // namespace fairway::transport::fabric
