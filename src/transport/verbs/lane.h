#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/time.h"
#include "transport/command.h"
#include "transport/event_queue.h"
#include "transport/planned_links.h"
#include "transport/transport.h"
#include "transport/verbs/memory.h"
#include "transport/verbs/queue_pair.h"

namespace fairway::transport::verbs {

inline constexpr std::uint32_t kQueueDepth = 64;    // slices of a lane
inline constexpr std::uint32_t kSends = 512;        // requests of its send queue
inline constexpr std::uint32_t kReceives = 32;      // credits of the peer: messages and immediates
inline constexpr std::uint32_t kSpareReceives = 4;  // for credit updates, which use no credit: two at most

// Precedes each message on links without immediate data.
struct MessageHeader {
  enum class Kind : std::uint32_t { message, credits, immediate };
  static constexpr std::size_t kBytes = 16;
  std::uint32_t credits = 0;  // credit update: the total, as in an immediate
  Kind kind = Kind::message;
  std::uint32_t value = 0;  // of an immediate
};

// Buffers for a lane's messages, and for old values of atomics. A resource; not in any region.
class LaneMemory {
 public:
  static constexpr std::size_t kIn = kReceives + kSpareReceives;
  static constexpr std::size_t kBuffer = MessageHeader::kBytes + kMessageBytes;
  static constexpr std::size_t kBytes =
      (kIn + kReceives) * kBuffer + kSpareReceives * MessageHeader::kBytes + (kQueueDepth + 1) * 8;

  static LaneMemory make() {
    LaneMemory memory;
    memory.bytes_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, (kBytes + 4095) / 4096 * 4096)));
    return memory;
  }
  explicit operator bool() const { return bytes_ != nullptr; }
  void leak() { static_cast<void>(bytes_.release()); }
  [[nodiscard]] std::byte* get() const { return bytes_.get(); }
  [[nodiscard]] std::byte* in(std::size_t i) const { return get() + i * kBuffer; }
  [[nodiscard]] std::byte* out(std::size_t i) const { return get() + (kIn + i) * kBuffer; }
  // For credit updates, of which at most kSpareReceives are in flight.
  [[nodiscard]] std::byte* word(std::size_t i) const { return out(kReceives) + i * MessageHeader::kBytes; }
  [[nodiscard]] std::byte* result(std::size_t i) const { return word(kSpareReceives) + i * 8; }
  [[nodiscard]] std::byte* sink() const { return result(kQueueDepth); }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<std::byte, Free> bytes_;
};

// Counts the work requests of a send queue, which complete in the order of posting: unsignaled requests complete with
// the next signaled one. Keeps the queue from overflowing, and room for a signaled request at the end of each run. A
// value; pure.
class SendWindow {
 public:
  explicit SendWindow(std::uint32_t depth) : depth_(depth), run_(depth / 8 == 0 ? 1 : depth / 8) {}

  // No more may be posted; keeps one back for the request that ends a run.
  [[nodiscard]] bool is_full() const { return posted_ - completed_ + 1 >= depth_; }
  std::uint64_t post() { return ++posted_; }  // the request's number
  // The unsignaled run is long enough: a longer one could fill the queue before it completes.
  [[nodiscard]] bool run_is_long() const { return posted_ - ended_ >= run_; }
  [[nodiscard]] bool run_is_open() const { return posted_ != ended_; }
  void end_run() { ended_ = posted_; }  // the last request posted is signaled

  // Request `number` has completed. False: impossible.
  bool complete(std::uint64_t number) {
    if (number <= completed_ || number > posted_) return false;
    completed_ = number;
    return true;
  }
  [[nodiscard]] std::uint64_t posted() const { return posted_; }
  [[nodiscard]] std::uint64_t completed() const { return completed_; }

 private:
  std::uint32_t depth_, run_;
  std::uint64_t posted_ = 0, completed_ = 0, ended_ = 0;
};

// The top bit of the immediate that carries the total marks a credit update without a message.
using Credits = CreditsOf<31>;

inline constexpr std::uint64_t kMaxSliceBytes = Capabilities().max_slice_bytes;
inline constexpr std::uint32_t kMaxBlocks = 1 << 17;  // of one slice

// One RC queue pair, for one epoch of its link. Turns slices into work requests, and completions into events. Slices
// begin and end in the order of posting, as an RC queue pair executes them. The CPU copies no payload; messages are
// copied once on each side. Owner: the transport's worker.
//   lane.cc          creation, taking slices, ending them, closing
//   lane_send.cc     posts work requests
//   lane_receive.cc  handles completions
class Lane {
 public:
  // `name` identifies this end to people who inspect the queue pair.
  static Result<std::unique_ptr<Lane>> make(Port& port, LinkId link, Inbox& inbox, std::uint64_t name,
                                            std::uint32_t first_psn, const Secret& secret);
  ~Lane();

  [[nodiscard]] Endpoint endpoint() const { return own_; }
  // The transitions to RTR and RTS; after them the lane receives, since receives are posted already. None: rdma_cm
  // connects the queue pair, because one side wants that.
  std::optional<QueuePair::Transitions> connect(const Endpoint& theirs);
  // For a queue pair that rdma_cm connects: iWARP requires that the initiator sends first, so the acceptor waits for
  // its first message.
  void send_first(bool initiator) {
    probe_due_ = initiator;
    awaits_first_ = !initiator;
  }
  [[nodiscard]] QueuePair& pair() { return *pair_; }

  // Where the next slice goes, for the caller to fill in before post(), and to leave if it refuses the slice. Null:
  // full.
  Command* place(Op op);
  // Takes the slice in place(). `local` is null if it has no local memory in a region, `remote` if it is a message.
  void post(const Registration* local, const Key* remote);
  void flush();    // posts as many work requests as there is room for
  void receive();  // polls completions while the inbox has room
  // Requests a notification of the next completion. False: poll first.
  bool prepare_sleep();

  void cancel(SliceToken token);
  // Ends slices of that memory that have not begun. True: no other is left.
  bool stop_memory(std::uint64_t local_handle);
  // Ends the epoch: slices without an event fail and, if stopped() is ok, it touches no memory of this side any more.
  // Waits a bounded time on `clock` for the NIC to flush its work requests.
  void close(Clock& clock);
  // Part of close(): the queue pair touches no memory any more and may be destroyed on any thread.
  void stop();
  [[nodiscard]] const Status& stopped() const { return not_stopped_; }
  void fail(Status why);  // link_down, once
  [[nodiscard]] bool broken() const { return broken_; }
  [[nodiscard]] std::uint64_t immediates() const { return immediates_; }
  [[nodiscard]] const Port& port() const { return port_; }

 private:
  struct Flight {
    bool ended = false;  // had its event; kept until its requests have completed, in order
    bool cancelled = false;
    ErrorCode wrong = ErrorCode::ok;    // error of a block: the rest is not sent
    std::uint64_t first = 0, last = 0;  // numbers of its work requests; 0: none yet
    Command command;
    BlockCursor cursor;
    Key remote;
    std::uint32_t lkey = 0;
    const Gpu* gpu = nullptr;       // of the local memory, which the CPU cannot access; null: host memory
    std::uint16_t out = kNoBuffer;  // send buffer, if it is sent as a message
  };
  static constexpr std::size_t kGathers = 8, kChain = 32;
  static constexpr std::uint16_t kNoBuffer = 0xffff;
  static constexpr std::uint64_t kReceiveId = std::uint64_t{1} << 63;

  Lane(Port& port, LinkId link, Inbox& inbox) : port_(port), link_(link), inbox_(inbox) {}
  Flight& at(std::uint64_t number) { return flights_[number % kQueueDepth]; }

  // lane.cc
  [[nodiscard]] Word flush_word_of(const Flight& flight) const;
  void end(Flight& flight, ErrorCode code, Effect effect, const char* why);
  void pop_ended();

  // lane_send.cc
  [[nodiscard]] bool is_plain(const Flight& flight) const;
  bool build_plain(Flight& flight);  // of one block; false: no room
  bool build(Flight& flight);        // of any; false: no room for the rest
  void build_move(Flight& flight);
  void build_message(Flight& flight);  // a message, or the immediate of a slice whose bytes were posted
  void build_atomic(Flight& flight);
  void send_credits();
  void send_probe();
  [[nodiscard]] std::uint32_t mtu_bytes() const { return 128U << std::min(own_.mtu, theirs_.mtu); }
  abi::SendRequest& next_request(Flight* flight, int opcode);
  static void gather(abi::SendRequest& request, const std::byte* from, std::uint64_t size, std::uint32_t lkey);
  void end_run();
  void ring();
  [[nodiscard]] bool by_message(Op op) const {
    return op == Op::message || (op == Op::write_immediate && no_immediates_);
  }
  [[nodiscard]] std::size_t header_bytes() const { return no_immediates_ ? MessageHeader::kBytes : 0; }
  static void write_header(std::byte* at, const MessageHeader& header);

  // lane_receive.cc
  void take(const abi::WorkCompletion& completion);
  void take_received(const abi::WorkCompletion& completion);
  void take_failed(const abi::WorkCompletion& completion);
  [[nodiscard]] std::string remedy() const;  // for a peer that does not answer
  void completed(std::uint64_t number);
  static bool arrived(const Flight& flight);
  void on_refused(std::uint64_t number);
  bool read_header(const abi::WorkCompletion& completion, std::size_t buffer, MessageHeader& header) const;
  void take_immediate(std::uint32_t value);
  void give_receive(std::size_t buffer);
  [[nodiscard]] bool ring_receives();  // false: the NIC did not take all

  Port& port_;
  const LinkId link_;
  Inbox& inbox_;
  LaneMemory memory_;
  OwnRegion memory_region_;
  OwnRegion sink_region_;  // for flush reads, if they need their own
  std::unique_ptr<QueuePair> pair_;
  Endpoint own_, theirs_;
  bool broken_ = false, closed_ = false, stopped_ = false;  // each implies those before it
  Status not_stopped_;
  bool no_immediates_ = false;                     // messages have a header instead
  bool probe_due_ = false, awaits_first_ = false;  // sends a probe first; sends nothing until the peer has sent

  // Slices by number: [oldest_, newest_) are live; those before building_ need no further request.
  std::vector<Flight> flights_ = std::vector<Flight>(kQueueDepth);
  std::uint64_t oldest_ = 0, building_ = 0, newest_ = 0;
  std::array<std::uint16_t, kReceives> free_out_{};  // send buffers
  std::size_t free_outs_ = 0;
  std::size_t next_word_ = 0;

  std::uint64_t rung_ = 0;                     // the last request that the NIC took
  std::uint64_t returned_ = 0;                 // the last request with a completion of any status
  std::uint64_t refused_ = ~std::uint64_t{0};  // the request that the peer's NIC refused: no later one was executed
  SendWindow window_{kSends};
  Credits credits_{0, 0};
  std::uint64_t run_bytes_ = 0;
  bool run_writes_ = false;
  Word run_word_;  // flushes the memory that the run writes to
  std::size_t most_gathers_ = kGathers, most_read_gathers_ = kGathers;
  std::array<abi::SendRequest, kChain> chain_{};
  std::array<std::array<abi::Gather, kGathers>, kChain> gathers_{};
  std::size_t chained_ = 0;

  std::array<abi::ReceiveRequest, LaneMemory::kIn> receives_{};
  std::array<abi::Gather, LaneMemory::kIn> receive_gathers_{};
  std::size_t receives_chained_ = 0;
  std::uint32_t receives_out_ = 0;
  std::uint64_t immediates_ = 0;
};

}  // namespace fairway::transport::verbs
