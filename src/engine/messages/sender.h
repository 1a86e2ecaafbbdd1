#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/messages/message_memory.h"
#include "engine/messages/told_receives.h"
#include "engine/peer_context.h"
#include "engine/transfers/queue.h"

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

}  // namespace fairway::engine
