#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fairway/metrics.h"

#include "core/counters.h"
#include "engine/links/rates.h"
#include "engine/links/routes.h"
#include "engine/messages/matcher.h"
#include "engine/messages/notifier.h"
#include "engine/messages/record_sender.h"
#include "engine/staging/client.h"
#include "engine/tables/route.h"
#include "engine/tables/slices.h"
#include "engine/tables/turns.h"
#include "engine/transfers/remote_requests.h"
#include "engine/transfers/short_path.h"

namespace fairway::engine {

// What transfers need from the worker, beyond their peer.
class TransferOwner {
 public:
  // dependency_ended(slot) follows once `after` has ended. False: it has, and `failed` says how.
  virtual bool wait_for(TransferId after, std::uint32_t slot, bool& failed) = 0;
  virtual void no_longer_waits(std::uint32_t slot) = 0;  // it ended while it waited
  virtual void ended(std::uint32_t slot) = 0;            // its completion is filled: delivered at the end of the step
  // Of that transfer's own, holding the value.
  virtual Slice signal_word(std::uint32_t slot, std::uint64_t value) = 0;

 protected:
  ~TransferOwner() = default;
};

// The transfers of one peer, from their start to their completion: start -> (queue) -> move: route, stripe, post ->
// on_slice counts pieces -> advance: flush, checksum, notification, as requested -> finish. They may also end early:
// stop and fail let a transfer drain, so that it completes only when no transport holds any of its slices. Owner: the
// peer's worker.
class Transfers {
 public:
  Transfers(PeerContext& peer, TransferOwner& worker, LinkSet& links, Routes& routes, LinkRates& rates,
            ShortPath& short_path, RecordSender& records, Notifier& notifier, RemoteRequests& requests,
            MessageMatcher& matcher, StagingClient& staging)
      : peer_(peer),
        worker_(worker),
        links_(links),
        routes_(routes),
        rates_(rates),
        short_path_(short_path),
        records_(records),
        notifier_(notifier),
        requests_(requests),
        matcher_(matcher),
        staging_(staging),
        turns_(peer.table()) {}
  void greeted(std::size_t record_payload) { record_payload_ = record_payload; }  // of a put or a get

  // ---- from the worker ----
  // A whole transfer within the call, if nothing is in its way: ShortPath. False: nothing was done.
  bool move_at_once(Operation operation, const Extent& extent, const RequestOptions& options,
                    AtOnceTable<>::Past& past) {
    const bool event = options.notify.kind == NotifyKind::event;
    if (peer_.is_down() || has_work() || (event && !notifier_.has_credit())) return false;
    if (!short_path_.move(operation, extent, options, past)) return false;
    if (event) notifier_.spent_credit();
    ++ended_ok_;
    bytes_moved_ += past.bytes;
    if (past.took != at_once_.took) {
      latency().record(at_once_.took, std::exchange(at_once_.count, 0));
      at_once_.took = past.took;
    }
    ++at_once_.count;
    return true;
  }
  void start(std::uint32_t slot);
  // A send or receive with nothing but its memory and tag, or a small write or read, in its submitter's call.
  [[nodiscard]] bool may_start_now(Transfer& t) {
    return !peer_.is_down() && !links_.empty() && links_.no_link_since() == kNever &&
           (t.request.operation == Operation::receive || !has_work()) &&
           (is_message(t.request.operation) || goes_whole(t));
  }
  void start_now(std::uint32_t slot);  // if it may
  void dependency_ended(std::uint32_t slot, bool ok);
  // Cancel, deadline, revoked region: completes once nothing accesses the memory. True: nothing does any more, because
  // all bytes have moved and only the notification is in flight; it still arrives or fails.
  bool stop(std::uint32_t slot, const Status& why);
  void force_stop(std::uint32_t slot);   // closes the links that still hold its slices
  bool pump();                           // hands to links what they take; true when it did
  [[nodiscard]] bool has_work() const {  // for pump(), now or when links have room
    return records_.has_work() || matcher_.has_work() || !retries_.empty() || requests_.has_work() ||
           turns_.waiting() > 0;
  }
  Time run_timers(Time now);    // when to run again
  Time give_up_without_link();  // likewise; while the session is there

  // ---- transports' events, for slices of any use ----
  void on_slice(std::uint32_t token, const transport::Event& event);
  void on_untaken(std::uint32_t token);  // post() did not take it: nothing happened
  void epoch_closed(std::uint8_t link, bool both_ends);

  // ---- from the other parts of the peer ----
  void take_turns(std::uint32_t slot);
  void advance(std::uint32_t slot);  // all pieces are done
  void piece_done(std::uint32_t token, std::uint64_t value);
  void piece_failed(std::uint32_t token, const Status& status);
  void signal(std::uint32_t slot);
  void drained(std::uint32_t slot);
  void fail(std::uint32_t slot, const Status& status);
  void finish(std::uint32_t slot, const Status& status);
  void begin_inner(std::uint32_t slot) { activate(slot); }  // of the engine's own, before it takes turns
  void adopt(std::uint32_t slot);                           // a receive of any peer, which has begun
  void fail_all(const Status& reason);
  void peer_gone();  // what no transport holds ends; then fail_all()

  [[nodiscard]] bool empty() const { return active_count_ == 0; }
  // Calls visit(slot, transfer) for each that has not completed; `visit` may end that one.
  template <class Visit>
  void for_each(const Visit& visit) {
    for (std::uint32_t slot = first_active_; slot != kNoSlot;) {
      Transfer& t = peer_.transfer(slot);
      const std::uint32_t next = t.next_active;
      visit(slot, t);
      slot = next;
    }
  }
  void collect(PeerMetrics& out) const;  // any thread

 private:
  // transfers.cc
  Transfer& transfer(std::uint32_t slot) { return peer_.transfer(slot); }
  void enqueue(std::uint32_t slot);
  void activate(std::uint32_t slot);
  void watch_deadline(const Transfer& t);
  void retire(std::uint32_t slot);
  bool goes_whole(Transfer& t);
  void post_whole(std::uint32_t slot);
  bool post_transfers();
  Turn move(std::uint32_t slot);
  [[nodiscard]] bool opens_a_way(const Transfer& t) const;
  bool post_piece(std::uint32_t slot, const Piece& piece, std::uint32_t token);
  std::optional<std::uint32_t> riding_immediate(std::uint32_t slot, const Piece& piece);
  Status fill_slice(Transfer& t, const Piece& piece, transport::Slice& slice, std::uint16_t transport);
  // retried.cc
  void retry_later(std::uint32_t token);
  bool post_retries();
  // ended.cc
  void leave_link(const SliceEntry& entry, std::uint64_t moved_bytes);
  void forget_immediate(std::uint32_t token);
  void record_latency(const Transfer& t);
  void drop_piece(std::uint32_t token);  // its transfer is draining: it needs no outcome
  bool signals_a_device(std::uint32_t slot);
  void doubt_event(const SliceEntry& entry);
  [[nodiscard]] Status why_ended(const Transfer& t, const Status& status) const;

  PeerContext& peer_;
  TransferOwner& worker_;
  LinkSet& links_;
  Routes& routes_;
  LinkRates& rates_;
  ShortPath& short_path_;
  RecordSender& records_;
  Notifier& notifier_;
  RemoteRequests& requests_;
  MessageMatcher& matcher_;
  StagingClient& staging_;
  std::size_t record_payload_ = 0;
  Turns turns_;                         // of those that wait for room on links
  std::vector<std::uint32_t> retries_;  // tokens of pieces to post again
  std::uint32_t first_active_ = kNoSlot;
  Gauge<std::uint32_t> active_count_;
  Time next_deadline_ = kNever;
  Gauge<std::uint64_t> ended_ok_, ended_failed_, bytes_moved_;
  Histogram& latency() {
    if (!latency_) {
      latency_ = std::make_unique<Histogram>();
      shown_latency_.store(latency_.get(), std::memory_order_release);
    }
    return *latency_;
  }
  std::unique_ptr<Histogram> latency_;              // made when the first transfer ends
  std::atomic<Histogram*> shown_latency_{nullptr};  // for collect()
  // Not yet in latency_: so many in a row took that long, since only one of some is timed.
  struct Untold {
    Gauge<Time> took;
    Gauge<std::uint64_t> count;
  };
  Untold at_once_;  // of move_at_once()
  // Of sends, of receives, and of others by the length of their size.
  std::array<Untold, 22> untold_;
};

}  // namespace fairway::engine
