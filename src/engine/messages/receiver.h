#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/messages/any_receives.h"
#include "engine/messages/message_memory.h"
#include "engine/messages/unexpected_messages.h"
#include "engine/messages/waiting_receives.h"
#include "engine/peer_context.h"

namespace fairway::engine {

// This side's receives from one peer, and the peer's messages for them: matched per tag, in the order of submission.
// A receive of any peer (AnyWaiting) is another of them, at its place in that order, until it has its message: then it
// is this peer's. Where a window costs little, the peer is told ahead of the first receive of a tag (told_receives.h);
// if that ends before its message is here, the message waits for another one, as if it had only been announced. Owner:
// the peer's worker.
class MessageReceiver {
 public:
  // `unexpected_limit`: bytes that this side keeps of unexpected messages.
  MessageReceiver(PeerContext& peer, MessageMemory& memory, AnyWaiting& any, std::uint32_t unexpected_limit)
      : peer_(peer), memory_(memory), any_(any), receives_(peer.table()), messages_(unexpected_limit) {}
  void greeted(std::size_t record_payload) { eager_limit_ = record_payload; }

  // ---- transfers: as MessageMatcher's ----
  void push(std::uint32_t slot) {
    peer_.transfer(slot).rendezvous.place = any_.got();
    receives_.push(slot);
  }
  void start(std::uint32_t slot);
  void match(std::uint64_t tag) { match_tag(tag); }
  bool remove(std::uint32_t slot) { return receives_.remove(slot); }
  [[nodiscard]] bool has_work() const { return !ended_tags_.empty(); }
  // That the next receive of that tag would take; null: none, or receives wait for it.
  [[nodiscard]] const UnexpectedMessage* first(std::uint64_t tag) const {
    return receives_.first(tag) == kNoSlot ? messages_.find(tag) : nullptr;
  }
  void go_on();  // those behind a receive that ended early
  void stop(std::uint32_t slot);
  void window_closed(std::uint32_t slot);
  void ended(Rendezvous& rendezvous);

  // ---- records ----
  void on_send_eager(const record::SendEager& send);
  void on_send_announce(const record::SendAnnounce& send);
  void on_send_direct(std::uint32_t number, const record::SendDirect& send, bool came);
  void on_send_armed(std::uint32_t number, const record::SendArmed& send, bool came);
  void on_send_written(const record::SendWritten& written);
  void on_send_abort(const record::SendAbort& abort);
  bool on_bytes(std::uint32_t number);

 private:
  struct Ending {  // a matched receive whose bytes are on the way
    std::uint32_t number = 0;
    TransferId receiver;
  };

  Transfer* matched_receive(TransferId id);
  Transfer* told_receive(TransferId id);
  bool charge(const UnexpectedMessage& message);  // false: beyond the limit, a violation
  void keep(const record::SendEager& send);       // until its receive is there
  // Takes the receive that the next message of that tag is for out of its queue. kNoSlot: none is ready.
  std::uint32_t take_receive(std::uint64_t tag);
  void arrived(std::uint32_t sequence, UnexpectedMessage message);
  void match_tag(std::uint64_t tag);
  // `payload`: of an eager one.
  void match(std::uint32_t slot, const UnexpectedMessage& message, std::span<const std::byte> payload);
  // Of a receive into several pieces: copies `from` to them.
  ErrorCode spread(const Transfer& receive, std::span<const std::byte> from) const;
  void match_pieces(std::uint32_t slot, const UnexpectedMessage& message, std::span<const std::byte> payload);
  bool match_direct(std::uint32_t slot, const UnexpectedMessage& message);
  void expect_bytes(std::uint32_t slot, std::uint32_t number, bool came);
  void tell_ahead(std::uint64_t tag);
  void withdraw(Transfer& receive);
  void receive_done(std::uint32_t slot, const Status& status);
  void tell_sender(Transfer& receive, ErrorCode code);
  void send_ended(std::uint32_t slot, ErrorCode code);

  PeerContext& peer_;
  MessageMemory& memory_;
  AnyWaiting& any_;
  std::size_t eager_limit_ = 0;
  WaitingReceives receives_;
  UnexpectedMessages messages_;
  std::vector<Ending> endings_;            // bounded by the receives
  std::vector<std::uint64_t> ended_tags_;  // of receives that ended early, until go_on()
  std::vector<std::uint64_t> taken_tags_;  // of what arrived() takes, for tell_ahead()
};

}  // namespace fairway::engine
