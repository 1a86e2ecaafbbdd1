#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/time.h"
#include "transport/blocks.h"
#include "transport/command.h"
#include "transport/inbox.h"
#include "transport/verbs/lane_memory.h"
#include "transport/verbs/memory.h"
#include "transport/verbs/queue_pair.h"
#include "transport/verbs/send_window.h"

namespace fairway::transport::verbs {

inline constexpr std::uint64_t kMaxSliceBytes = std::uint64_t{8} << 20;
inline constexpr std::uint32_t kMaxBlocks = 1 << 17;  // of one slice

// One queue pair, for one epoch of its link: slices in, which become work requests, and what the peer's NIC announces.
// Slices begin and end in the order of posting, as a reliable queue pair works through them. Payload never passes the
// CPU; messages are copied once on each side. Owner: the transport's worker.
//   lane.cc          making, slices in, their ends, closing
//   lane_send.cc     work requests out
//   lane_receive.cc  completions in
class Lane {
 public:
  // `name` tells the end to who looks at its queue pair.
  static Result<std::unique_ptr<Lane>> make(Port& port, LinkId link, Inbox& inbox, std::uint64_t name,
                                            std::uint32_t first_psn, const Secret& secret);
  ~Lane();

  [[nodiscard]] Endpoint endpoint() const { return own_; }
  // Receives were posted before, so it listens once its queue pair has gone that way. None: rdma_cm connects it, as
  // either side wants.
  std::optional<QueuePair::Transitions> connect(const Endpoint& theirs);
  // What rdma_cm connects: with iWARP the initiator has to send first, so it alone greets, and the acceptor is silent
  // before.
  void greet_first(bool initiator) {
    greets_ = initiator;
    silent_ = !initiator;
  }
  [[nodiscard]] QueuePair& pair() { return *pair_; }

  // False: full. `local` may be null where the slice has no local memory in a region.
  bool post(const Command& command, const Registration* local, const Key& remote);
  void flush();    // what there is room for
  void receive();  // takes completions, while the inbox has room
  // Arms the announcement of the next completion; false: there is something to do first.
  bool prepare_sleep();

  void cancel(SliceToken token);
  bool stop_memory(std::uint64_t local_handle);  // slices that have not begun end; true: none that has is left
  // Nothing of this epoch touches this side's memory from now on; slices without an event fail. Looks at `clock` for
  // how long the NIC takes to give everything back.
  void close(Clock& clock);
  // Its queue pair touches no memory from now on; to be destroyed, by any thread. Part of close().
  void stop();
  void fail(Status why);  // link_down, once
  [[nodiscard]] bool broken() const { return broken_; }
  [[nodiscard]] std::uint64_t immediates() const { return immediates_; }
  [[nodiscard]] const Port& port() const { return port_; }

 private:
  struct Flight {
    bool ended = false;  // has had its event; kept until its turn to go
    bool cancelled = false;
    ErrorCode wrong = ErrorCode::ok;    // with a block: the rest of it is not sent
    std::uint64_t first = 0, last = 0;  // numbers of its requests; 0: none yet
    Command command;
    BlockCursor cursor;
    Key remote;
    std::uint32_t lkey = 0;
    const Gpu* gpu = nullptr;       // whose memory the local one is: not to be touched by a CPU
    std::uint16_t out = kNoBuffer;  // of what goes as a message
  };
  static constexpr std::size_t kGathers = 8, kChain = 32;
  static constexpr std::uint16_t kNoBuffer = 0xffff;
  static constexpr std::uint64_t kReceiveId = std::uint64_t{1} << 63;

  Lane(Port& port, LinkId link, Inbox& inbox) : port_(port), link_(link), inbox_(inbox) {}
  Flight& at(std::uint64_t number) { return flights_[number % kQueueDepth]; }

  // lane.cc
  [[nodiscard]] Word word_behind(const Flight& flight) const;
  void end(Flight& flight, ErrorCode code, Effect effect, const char* why);
  void pop_ended();

  // lane_send.cc
  bool build(Flight& flight);  // false: no room for the rest
  void build_move(Flight& flight);
  void build_message(Flight& flight);  // or the immediate of a slice whose bytes are before it
  void build_atomic(Flight& flight);
  void tell_room();
  void greet();
  [[nodiscard]] std::uint32_t mtu_bytes() const { return 128U << std::min(own_.mtu, theirs_.mtu); }
  abi::SendRequest& next_request(Flight* flight, int opcode);
  static void gather(abi::SendRequest& request, const std::byte* from, std::uint64_t size, std::uint32_t lkey);
  void end_run();
  void ring();
  [[nodiscard]] bool by_message(Op op) const { return op == Op::message || (op == Op::write_immediate && plain_); }
  [[nodiscard]] std::size_t header_bytes() const { return plain_ ? MessageHeader::kBytes : 0; }
  static void write_header(std::byte* at, const MessageHeader& header);

  // lane_receive.cc
  void take(const abi::WorkCompletion& completion);
  void take_received(const abi::WorkCompletion& completion);
  void take_failed(const abi::WorkCompletion& completion);
  [[nodiscard]] std::string remedy() const;  // of a peer that does not answer
  void completed(std::uint64_t number);
  static bool arrived(const Flight& flight);
  void refused(std::uint64_t number);
  bool read_header(const abi::WorkCompletion& completion, std::size_t buffer, MessageHeader& header) const;
  void take_immediate(std::uint32_t value);
  void give_receive(std::size_t buffer);
  void ring_receives();

  Port& port_;
  const LinkId link_;
  Inbox& inbox_;
  LaneMemory memory_;
  abi::MemoryRegion* memory_region_ = nullptr;
  abi::MemoryRegion* sink_region_ = nullptr;  // of the read behind writes, where it needs one of its own
  std::unique_ptr<QueuePair> pair_;
  Endpoint own_, theirs_;
  bool broken_ = false, closed_ = false, stopped_ = false;
  bool plain_ = false;                    // messages have headers
  bool greets_ = false, silent_ = false;  // before it says anything else; until it heard something

  // Slices, numbered as they came: [oldest_, newest_) live; those before building_ need no further request.
  std::vector<Flight> flights_ = std::vector<Flight>(kQueueDepth);
  std::uint64_t oldest_ = 0, building_ = 0, newest_ = 0;
  std::array<std::uint16_t, kReceives> free_out_{};  // buffers of messages
  std::size_t free_outs_ = 0;
  std::size_t next_word_ = 0;

  std::uint64_t returned_ = 0;                 // the last request that the NIC gave back, whatever became of it
  std::uint64_t refused_ = ~std::uint64_t{0};  // the request that the peer's NIC refused: none behind it was executed
  SendWindow window_{kSends};
  Credits credits_{0, 0};
  std::uint64_t run_bytes_ = 0;
  bool run_writes_ = false;
  Word run_word_;  // of the memory that the run writes to
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
