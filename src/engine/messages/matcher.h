#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "engine/messages/receiver.h"
#include "engine/messages/sender.h"

namespace fairway::engine {

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
