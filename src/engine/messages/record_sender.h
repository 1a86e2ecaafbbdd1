#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/links/link_set.h"
#include "engine/links/routes.h"
#include "engine/tables/peer_context.h"
#include "engine/tables/slices.h"
#include "transport/optional_calls.h"

namespace fairway::engine {

// The engine's own messages to one peer, over whichever links carry them: each arrives exactly once. Owner: the peer's
// worker.
class RecordSender {
 public:
  static constexpr std::uint32_t kMaxReplies = 256;  // waiting to be sent; more and the peer lies about its limit
  // `at_once`: false: nothing is posted within a call.
  RecordSender(PeerContext& peer, LinkSet& links, Routes& routes, bool at_once)
      : peer_(peer), links_(links), routes_(routes), at_once_(at_once), stream_(peer.records()) {}

  [[nodiscard]] RecordStream& stream() { return stream_; }
  std::uint32_t acquire(RecordType type);  // kNoSlot: the peer reads no answers, so its session has ended
  void enqueue(std::uint32_t record, std::uint32_t owner);
  // A record of `head`, whose number it writes there, and `tail`: handed over now, and so it has arrived. Passes no
  // record that waits. False: nothing was done.
  bool post_now(std::span<std::byte> head, std::span<const std::byte> tail);
  [[nodiscard]] bool has_work() const { return stream_.waiting() > 0; }
  bool post();  // as far as links have room; true when it did
  // Tries to post a record before the write that is about to be posted on that link; otherwise it goes later, or
  // elsewhere.
  void post_ahead(std::uint32_t record, std::uint8_t link);
  void post_all_ahead(std::uint8_t link);  // whatever waits
  Time run_timer();                        // ends the session when no link is left that carries records

  // ---- a record's slice, which each frees ----
  std::uint32_t arrived(std::uint32_t token);  // gives the transfer whose notification it was; kNoSlot: nobody's
  void send_again(std::uint32_t token);        // it did not arrive
  void drop(std::uint32_t token);              // the peer is gone
  void clear() { stream_.clear(); }            // likewise

 private:
  void post(std::uint32_t record, std::uint8_t link);
  void find_quick();

  PeerContext& peer_;
  LinkSet& links_;
  Routes& routes_;
  const bool at_once_;
  RecordStream stream_;
  std::uint32_t replies_out_ = 0;            // to the peer's requests, not yet known to have arrived
  Time stuck_since_ = kNever;                // no link that is ready carries the next record
  std::uint64_t quick_version_ = 0;          // of routes
  transport::MovesAtOnce* quick_ = nullptr;  // that takes messages within the call, while it is that version
  std::uint8_t quick_link_ = 0;
};

}  // namespace fairway::engine
