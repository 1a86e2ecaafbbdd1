#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/time.h"
#include "transport/command.h"
#include "transport/event_queue.h"
#include "transport/fabric/domain.h"
#include "transport/fabric/frame.h"
#include "transport/fabric/memory.h"
#include "transport/planned_links.h"

namespace fairway::transport::fabric {

inline constexpr std::uint32_t kQueueDepth = 64;  // slices of a lane
inline constexpr std::uint64_t kMaxSliceBytes = Capabilities().max_slice_bytes;
inline constexpr std::uint32_t kMaxBlocks = 1 << 17;  // of one slice

// Buffers for a lane's messages. A resource; not in any region.
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

// One endpoint, for one epoch of its link. Turns slices into operations, and completions into events. Operations
// complete in any order and are counted; slices are posted in order and end in any order. Owner: the transport's
// worker.
//   lane.cc          creation, posting and ending slices, closing
//   lane_send.cc     posts operations
//   lane_receive.cc  handles completions
class Lane {
 public:
  // Destroys it, unless its provider did not close its endpoint, which may use the lane's memory until the process
  // ends.
  struct End {
    void operator()(Lane* lane) const {
      lane->shut();
      if (!lane->open_) delete lane;
    }
  };
  using Owner = std::unique_ptr<Lane, End>;
  static Result<Owner> make(Domain& domain, LinkId link, Inbox& inbox, std::uint64_t end_name);

  [[nodiscard]] const Endpoint& endpoint() const { return *end_; }
  [[nodiscard]] int endpoint_fd() const { return end_ ? end_->fd() : -1; }
  [[nodiscard]] const Domain& domain() const { return domain_; }
  Status connect(std::span<const std::byte> theirs, std::uint32_t receives) {
    credits_ = Credits(receives, kReceives);
    return end_->connect(theirs);
  }

  // False: full. `descriptor`: of the local memory, if the provider needs one; `gpu`: the one that has it, or null.
  bool post(const Command& command, void* descriptor, const sys::BusGpu* gpu, const Key& remote);
  void flush();  // posts as many operations as there is room for
  // Asks the peer for an acknowledgement that is overdue. Returns when to call it again.
  Time request_ack(Time now);
  // Whether only messages that may coalesce are queued. They wait a few polls for others: a caller polls once for each
  // completion before it posts.
  [[nodiscard]] bool may_hold() const { return coalescible_ != 0 && coalescible_ == waiting_count_ && !broken_; }
  // Call once per poll: whether to hold the queued messages back for now.
  bool hold() { return may_hold() && held_++ < kHoldPolls; }
  void receive();  // polls completions while the inbox has room
  // False: poll first.
  bool prepare_sleep();
  // No wake-up will come: the provider has no descriptor, or it accepted none of the queued operations.
  [[nodiscard]] bool needs_polling() const {
    return !closed_ && (end_->fd() < 0 || (waiting_count_ != 0 && out_ == 0));
  }
  [[nodiscard]] bool busy() const { return out_ != 0 || waiting_count_ != 0 || owes_ack(); }
  [[nodiscard]] bool quiet() const { return quiet_; }  // the last receive() had no completions

  void cancel(SliceToken token);
  // Ends slices of that memory that have not begun. True: no other is left.
  bool stop_memory(std::uint64_t local_handle);
  bool stop_region(RegionId remote);
  // Ends the epoch. If `stopped()`, it touches no memory of this side any more. Slices without an event stay undecided
  // until give_up().
  void close(Clock& clock);
  void shut();            // the same for an end that was never up, or whose completions do not matter
  void give_up();         // fails slices without an event
  void fail(Status why);  // link_down, once
  [[nodiscard]] bool broken() const { return broken_; }
  [[nodiscard]] bool closed() const { return closed_; }
  [[nodiscard]] bool stopped() const { return stopped_; }
  [[nodiscard]] bool endpoint_open() const { return open_; }  // though closed(): the peer may use it
  [[nodiscard]] const std::string& why_not_stopped() const { return why_not_stopped_; }
  // The memory of its operations in flight: handles of this side's regions, and of the peer's.
  void add_in_flight(std::vector<std::uint64_t>& local, std::vector<std::uint64_t>& remote) const;
  [[nodiscard]] std::uint64_t immediates() const { return immediates_; }

  // Memory bound to this endpoint, for providers that require that (FI_MR_ENDPOINT); by the region's handle.
  [[nodiscard]] const Registered* bound(std::uint64_t handle) const;
  Result<const Registered*> bind(std::uint64_t handle, const Region& memory, Rng& random);
  [[nodiscard]] int unbind(std::uint64_t handle);  // not 0: the provider's error; it is bound still

 private:
  static constexpr std::uint16_t kNone = 0xffff;
  struct Flight {
    bool live = false;
    bool ended = false;               // had its event; kept until its operations have completed
    bool waiting = false;             // has operations to post
    bool begun = false;               // some were posted
    bool cancelled = false;           // the rest is not posted
    bool unacked = false;             // the peer has not acknowledged its frame
    ErrorCode wrong = ErrorCode::ok;  // error of a block: the rest is not posted
    std::uint32_t out = 0;            // operations in flight
    Command command;
    BlockCursor cursor;
    Key remote;
    void* descriptor = nullptr;
    const sys::BusGpu* gpu = nullptr;
    std::uint16_t buffer = kNone;  // of a message
    std::uint32_t number = 0;      // of its frame, if unacked
    std::uint16_t joined = kNone;  // the next message in the same frame
  };
  struct Context {  // of an operation or a receive; libfabric may use it while that is in flight, and returns it
    fi_context2 space{};
    std::uint16_t index = 0;  // of the flight; of the buffer
    bool receive = false;
  };
  static constexpr std::uint32_t kHoldPolls = 2;  // polls
  static constexpr std::size_t kPieces = 8;

  Lane(Domain& domain, LinkId link, Inbox& inbox) : domain_(domain), link_(link), inbox_(inbox) {}

  ~Lane() = default;  // by End

  // lane.cc
  void end(Flight& flight, ErrorCode code, Effect effect, const char* why);
  static bool arrived(const Flight& flight);
  void settle(Flight& flight);  // ends the flight if it is complete, and frees it if it has ended
  template <class Uses>
  bool stop(Uses uses, ErrorCode code, const char* why);
  static bool moves(const Slice& slice) {
    return slice.op == Op::write || slice.op == Op::read || slice.op == Op::write_immediate;
  }
  // Whether its immediate is sent as a message: it has no bytes, or the provider has no remote CQ data.
  [[nodiscard]] bool by_message(const Slice& slice) const;

  // lane_send.cc
  [[nodiscard]] bool owes_ack() const { return domain_.loses_messages() && credits_.has_update(); }
  bool build(Flight& flight);  // false: no room for the rest
  bool build_move(Flight& flight);
  bool build_messages(Flight& flight);
  bool build_immediate(Flight& flight);
  bool send(Flight& flight, std::span<std::byte> frame, FrameHeader::Kind kind, std::uint32_t value);
  Flight& waiting(std::size_t place) { return flights_[waiting_[(waiting_head_ + place) % kQueueDepth]]; }
  void pop_waiting();
  bool posted(Flight& flight, ssize_t result, const char* call);
  void send_credits(bool ask = false);
  void await_ack(std::uint16_t flight);
  void write_header(std::byte* at, FrameHeader::Kind kind, std::uint32_t value);

  // lane_receive.cc
  void take(const fi_cq_data_entry& completion);
  void take_frame(std::size_t buffer, std::size_t size);
  void take_immediate(std::uint32_t value);
  void settle_acked();
  bool take_error();  // false: there was none to take
  void operation_ended(Context& context);
  [[nodiscard]] Status post_receive(std::size_t buffer);
  void give_receive(std::size_t buffer);

  Domain& domain_;
  const LinkId link_;
  Inbox& inbox_;
  LaneMemory memory_;
  Registered memory_region_;  // if the provider needs local memory to be registered
  std::unordered_map<std::uint64_t, Registered> bound_;
  std::unique_ptr<Endpoint> end_;
  bool broken_ = false, closed_ = false, stopped_ = false, quiet_ = false;
  bool open_ = false;  // the provider did not close the endpoint
  std::string why_not_stopped_;

  std::vector<Flight> flights_ = std::vector<Flight>(kQueueDepth);
  std::array<std::uint16_t, kQueueDepth> free_flights_{};
  std::size_t free_flight_count_ = 0;
  std::array<std::uint16_t, kQueueDepth> waiting_{};  // ring of flights with operations to post, in order
  std::size_t waiting_head_ = 0, waiting_count_ = 0;
  std::size_t coalescible_ = 0;                          // of these
  std::uint32_t held_ = 0;                               // polls since the last flush
  std::array<std::uint16_t, kReceives> free_buffers_{};  // of messages
  std::size_t free_buffer_count_ = 0;
  std::vector<Context> operations_;
  std::vector<std::uint16_t> free_operations_;
  std::uint32_t out_ = 0;  // operations in flight

  std::array<Context, kIn> receives_{};
  std::array<std::uint16_t, kIn> owed_receives_{};  // to be posted when the provider has room
  std::size_t owed_receive_count_ = 0;
  Credits credits_{0, kReceives};
  std::uint32_t sent_ = 0, taken_ = 0;  // frames that use a credit: sent, received
  // If the provider loses messages: ring of flights whose frames the peer has not acknowledged, in order.
  std::array<std::uint16_t, kQueueDepth> unacked_{};
  std::size_t unacked_head_ = 0, unacked_count_ = 0;
  Time ask_at_ = kNever;
  bool asked_ = false;     // the peer asked for a credit update
  bool ack_held_ = false;  // an acknowledgement waits for a frame to carry it
  std::uint64_t immediates_ = 0;
};

}  // namespace fairway::transport::fabric
