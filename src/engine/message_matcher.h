#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "engine/description.h"
#include "engine/peer_context.h"
#include "engine/transfer_queue.h"

namespace fairway::engine {

// The memory of messages that are written by the sender (rendezvous): a receive lends its memory as a window, a region
// of exactly those bytes that this peer alone may write.
class MessageMemory {
 public:
  // Its description is what the peer gets, no longer than `most` bytes.
  virtual Result<RegionId> open_window(const Slice& into, std::uint64_t length, std::size_t most,
                                       std::vector<std::byte>& description) = 0;
  // Nothing new may land in it. MessageMatcher::window_closed(slot) follows once nothing can any more; kNoSlot: nobody
  // waits.
  virtual void close_window(RegionId window, std::uint32_t slot) = 0;
  virtual RemoteRegionId import_window(const Description& window, Status& error) = 0;
  virtual void release_window(RemoteRegionId window) = 0;

 protected:
  ~MessageMemory() = default;
};

// Matches sends and receives per (peer, tag), in the order of submission. An eager message travels with its
// announcement, within the room that the receiver gave for messages that nobody waits for yet. A longer one is
// announced (rendezvous): once its receive is there, the sender writes into a window on the receive's memory, which is
// revoked when the message is complete. Owner: the peer's worker.
class MessageMatcher {
 public:
  // `room`: bytes for unexpected messages that this side gives.
  MessageMatcher(PeerContext& peer, MessageMemory& memory, std::uint32_t room)
      : peer_(peer), memory_(memory), room_(room), sends_(peer.transfers()), receives_(peer.transfers()) {}
  // The peer's hello: its room, and what a record carries.
  void greeted(std::uint32_t room, std::size_t record_payload) {
    room_there_ = room;
    eager_limit_ = record_payload;
  }

  // ---- transfers ----
  void hold_place(std::uint32_t slot);  // it waits for another transfer, and keeps its place in the order
  void start(std::uint32_t slot);
  [[nodiscard]] bool has_work() const { return !sends_.empty(); }
  bool announce();                   // sends, as far as the peer has room; true when it did
  void written(std::uint32_t slot);  // all bytes of a rendezvous are in the peer's window
  bool remove(std::uint32_t slot) { return sends_.remove(slot) || receives_.remove(slot); }  // it has failed
  void stop(std::uint32_t slot);  // after remove(): tells the peer, closes its window
  void window_closed(std::uint32_t slot);
  void ended(Transfer& transfer);  // gives back what it still holds

  // ---- records ----
  void on_send_eager(const record::SendEager& send);
  void on_send_announce(const record::SendAnnounce& send);
  void on_send_clear(const record::SendClear& clear);
  void on_send_written(const record::SendWritten& written);
  void on_send_abort(const record::SendAbort& abort);
  void on_send_done(const record::SendDone& done);

 private:
  struct Unexpected {  // a message that came before its receive
    std::uint64_t tag = 0;
    std::uint64_t length = 0;
    TransferId sender;
    bool eager = false;
    std::vector<std::byte> payload;
  };

  Transfer* send_that_waits(TransferId id);  // announced, and not yet cleared or complete; null: it has ended
  Transfer* matched_receive(TransferId id);
  void arrived(std::uint32_t sequence, Unexpected message);
  void match_tag(std::uint64_t tag);
  void match(std::uint32_t slot, const Unexpected& message);
  void receive_done(std::uint32_t slot, const Status& status);
  void tell_sender(Transfer& receive, ErrorCode code);
  void abort_receive(TransferId receiver);

  PeerContext& peer_;
  MessageMemory& memory_;
  const std::uint32_t room_;
  std::uint32_t room_there_ = 0;
  std::size_t eager_limit_ = 0;
  TransferQueue sends_;     // not yet announced, in submission order
  TransferQueue receives_;  // not yet matched, in submission order
  std::uint32_t send_sequence_ = 0;
  std::uint32_t expected_send_ = 0;
  std::uint32_t cost_there_ = 0;  // of unexpected messages, in room
  std::uint32_t cost_here_ = 0;
  std::unordered_map<std::uint32_t, Unexpected> out_of_order_;  // by sequence; bounded by the room
  std::vector<Unexpected> unexpected_;                          // in the order of sending
};

}  // namespace fairway::engine
