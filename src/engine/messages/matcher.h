#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/messages/unmatched.h"
#include "engine/messages/windows.h"
#include "engine/tables/any_receives.h"
#include "engine/tables/peer_context.h"
#include "engine/tables/turns.h"

namespace fairway::engine {

// This side's sends to one peer, from their start to the word that they are complete. docs/ARCHITECTURE.md, "send and
// receive". Owner: the peer's worker.
class MessageSender {
 public:
  MessageSender(PeerContext& peer, MessageMemory& memory) : peer_(peer), memory_(memory), sends_(peer.table()) {}
  // The peer's limit of unexpected bytes, and what a record carries.
  void greeted(std::uint32_t unexpected_limit, std::size_t record_payload) {
    unexpected_limit_there_ = unexpected_limit;
    eager_limit_ = record_payload;
  }

  // ---- transfers: as MessageMatcher's ----
  void push(std::uint32_t slot) { sends_.push(slot); }
  void start_now(std::uint32_t slot);  // none waits
  bool remove(std::uint32_t slot) { return sends_.remove(slot); }
  [[nodiscard]] bool has_work() const { return !sends_.empty(); }
  bool announce();
  void written(std::uint32_t slot);
  void stop(std::uint32_t slot);
  void ended(Rendezvous& rendezvous);
  std::optional<std::uint32_t> ending_immediate(std::uint32_t slot);
  bool window_gone(std::uint32_t slot);

  // ---- records ----
  void on_send_clear(const record::SendClear& clear);
  void on_send_done(const record::SendDone& done);
  void on_receive_posted(std::uint32_t number, const record::ReceivePosted& posted);
  void on_receive_withdrawn(std::uint32_t number, bool to_come);

 private:
  // The send's memory: where it is one piece, that; of several, if there are not many bytes, a copy.
  ErrorCode look_at(const Transfer& send, bool copy, std::span<const std::byte>& bytes, bool& by_cpu);
  bool announce(std::uint32_t slot);         // false: beyond the peer's limit of unexpected bytes
  Transfer* send_that_waits(TransferId id);  // announced, and not yet cleared or complete; null: it has ended
  bool send_direct(std::uint32_t slot, std::uint32_t sequence, ToldReceives::Told& told);  // takes its window
  void begin_write(std::uint32_t slot, TransferId receiver, RemoteRegionId window);
  void abort_receive(TransferId receiver);

  PeerContext& peer_;
  MessageMemory& memory_;
  std::uint32_t unexpected_limit_there_ = 0;
  std::size_t eager_limit_ = 0;
  TransferQueue sends_;           // not yet announced, in submission order
  std::uint32_t cost_there_ = 0;  // of unexpected messages, in bytes of the limit
  ToldReceives told_;
  std::vector<std::byte> copy_;  // of a short send's pieces
};

// This side's receives from one peer, and the peer's messages for them: matched per tag, in the order of submission.
// A receive of any peer (AnyWaiting) is another of them, at its place in that order, until it has its message: then it
// is this peer's. Where a window costs little, the peer is told ahead of the first receive of a tag (unmatched.h);
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

// Matches sends and receives per (peer, tag), in the order of submission. An eager message travels with its header,
// within the receiver's limit of unexpected bytes. A longer one uses a rendezvous: the sender announces it, and once
// its receive is posted, writes into a window on the receive's memory. The window is revoked when the message is
// complete. Where a window costs little, the sender is told of a receive that waits: it writes the message at once
// (direct), and the immediate of the write says that it came. Its two halves have the state: MessageSender with
// ToldReceives, MessageReceiver with WaitingReceives and UnexpectedMessages. Owner: the peer's worker.
class MessageMatcher {
 public:
  // `unexpected_limit`: bytes that this side keeps of unexpected messages. `any`: the worker's receives of any peer.
  MessageMatcher(PeerContext& peer, MessageMemory& memory, AnyWaiting& any, std::uint32_t unexpected_limit)
      : peer_(peer), sender_(peer, memory), receiver_(peer, memory, any, unexpected_limit) {}
  // The peer's hello: its limit of unexpected bytes, and what a record carries.
  void greeted(std::uint32_t unexpected_limit, std::size_t record_payload) {
    sender_.greeted(unexpected_limit, record_payload);
    receiver_.greeted(record_payload);
  }

  // ---- transfers ----
  void hold_place(std::uint32_t slot);  // it waits for another transfer, and keeps its place in the order
  void start(std::uint32_t slot);
  void start_now(std::uint32_t slot);  // a send is announced within the call: nothing of this peer waits
  [[nodiscard]] bool has_work() const { return sender_.has_work() || receiver_.has_work(); }
  [[nodiscard]] const UnexpectedMessage* first(std::uint64_t tag) const { return receiver_.first(tag); }
  void match(std::uint64_t tag) { receiver_.match(tag); }  // a receive of any peer has come
  bool announce() {  // sends, up to the peer's limit of unexpected bytes; true when it did
    if (receiver_.has_work()) receiver_.go_on();
    return sender_.announce();
  }
  // Nothing of a send's bytes is in flight: they are in the peer's window, or it is gone.
  void written(std::uint32_t slot) { sender_.written(slot); }
  bool remove(std::uint32_t slot) { return sender_.remove(slot) || receiver_.remove(slot); }  // it has failed
  void stop(std::uint32_t slot);  // after remove(): tells the peer, closes its window
  void window_closed(std::uint32_t slot) { receiver_.window_closed(slot); }
  void ended(Transfer& transfer);  // gives back what it still holds
  // The immediate of a write of the whole message, which the records that are queued should go ahead of; nothing where
  // the receiver learns of the end by a record.
  std::optional<std::uint32_t> ending_immediate(std::uint32_t slot) { return sender_.ending_immediate(slot); }
  // A piece was refused, because its region is revoked. True: the receive has ended. The send posts nothing more, and
  // after written() it waits: for another receive if this one was told ahead, else for the word of why it ended.
  bool window_gone(std::uint32_t slot) { return sender_.window_gone(slot); }

  // ---- records ----
  void on_send_eager(const record::SendEager& send) { receiver_.on_send_eager(send); }
  void on_send_announce(const record::SendAnnounce& send) { receiver_.on_send_announce(send); }
  void on_send_clear(const record::SendClear& clear) { sender_.on_send_clear(clear); }
  void on_send_written(const record::SendWritten& written) { receiver_.on_send_written(written); }
  void on_send_abort(const record::SendAbort& abort) { receiver_.on_send_abort(abort); }
  void on_send_done(const record::SendDone& done) { sender_.on_send_done(done); }
  // `number`: of the record; `came`: its bytes' immediate was here before it.
  void on_send_armed(std::uint32_t number, const record::SendArmed& send, bool came) {
    receiver_.on_send_armed(number, send, came);
  }
  void on_send_direct(std::uint32_t number, const record::SendDirect& send, bool came) {
    receiver_.on_send_direct(number, send, came);
  }
  // The immediate that names that record; false: no message's.
  bool on_bytes(std::uint32_t number) { return receiver_.on_bytes(number); }
  void on_receive_posted(std::uint32_t number, const record::ReceivePosted& posted) {
    sender_.on_receive_posted(number, posted);
  }
  void on_receive_withdrawn(std::uint32_t number, bool to_come) {  // to_come: the record that it withdraws
    sender_.on_receive_withdrawn(number, to_come);
  }

 private:
  PeerContext& peer_;
  MessageSender sender_;
  MessageReceiver receiver_;
};

}  // namespace fairway::engine
