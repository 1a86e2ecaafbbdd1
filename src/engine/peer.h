#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fairway/metrics.h"

#include "control/control.h"
#include "engine/control_message.h"
#include "engine/links/link_set.h"
#include "engine/messages/windows.h"
#include "engine/path_explainer.h"
#include "engine/region_removals.h"
#include "engine/staging/server.h"
#include "engine/tables/engine_tables.h"
#include "engine/transfers/remote_requests.h"
#include "engine/transfers/transfers.h"

namespace fairway::engine {

class Worker;

// A worker's side of one session with one incarnation of a peer. It wires the parts, each of which has the state of one
// subject: links, their routes and rates, records, transfers, notifications, messages, requests to the other engine,
// staging, and the end of regions. Owner: the worker; no other thread touches it.
class Peer final : public PeerContext, private LinkOwner {
 public:
  Peer(Worker& worker, PeerId id, transport::PeerIndex index, control::SessionId session,
       const control::PeerInfo& info);

  // ---- control's words ----
  void open();  // says hello
  void on_message(std::span<const std::byte> bytes);
  void on_down(const Status& reason);
  void on_beat(std::uint64_t steps, Time at) { links_.peer_clock().heard(steps, at); }
  void was_away(Time from, Time to) { links_.peer_clock().was_away(from, to); }  // this engine's caller computed

  // ---- transports' events beside slices', which go to transfers(), and links', which go to links() ----
  void on_immediate(std::uint32_t immediate);
  void on_record(std::uint8_t link, std::span<const std::byte> bytes);

  Time run_timers(Time now);                                                    // when to run again
  void learn_rates();                                                           // the machine's model is known
  void collect(Metrics& out) const;                                             // any thread
  [[nodiscard]] std::optional<Probed> first_message(std::uint64_t tag) const {  // that waits for a receive
    const UnexpectedMessage* const found = down_ ? nullptr : matcher_.first(tag);
    return found == nullptr ? std::nullopt : std::optional(Probed{id(), tag, found->length});
  }

  void match(std::uint64_t tag) {  // a receive of any peer has come
    if (!down_) matcher_.match(tag);
  }

  // ---- parts ----
  [[nodiscard]] LinkSet& links() { return links_; }
  [[nodiscard]] LinkRates& rates() { return rates_; }
  [[nodiscard]] Transfers& transfers() { return transfers_; }
  [[nodiscard]] Notifier& notifier() { return notifier_; }
  [[nodiscard]] RegionUsers& region_users() { return region_users_; }
  [[nodiscard]] PathExplainer& explainer() { return explainer_; }

  [[nodiscard]] bool is_down() const override { return down_; }
  [[nodiscard]] bool gone() const {  // nothing of this engine waits for it, or touches its memory
    return down_ && links_.out() == 0 && transfers_.empty() && staging_server_.has_ended();
  }
  [[nodiscard]] transport::PeerIndex index() const { return owner().index; }
  [[nodiscard]] std::uint32_t scratch() const { return links_.scratch_place(); }
  [[nodiscard]] control::SessionId session() const { return session_; }
  [[nodiscard]] std::string text() const override;

 private:
  // ---- PeerContext ----
  void has_more() override;
  void again() override;
  void notice() override;
  [[nodiscard]] Status why_ended() const override;
  [[nodiscard]] Time now() const override;
  void wake_at(Time time) override;
  void end_session(const Status& reason) override;
  void violation(const std::string& what) override;
  void take_turns(std::uint32_t slot) override { transfers_.take_turns(slot); }
  void drained(std::uint32_t slot) override { transfers_.drained(slot); }
  void fail(std::uint32_t slot, const Status& status) override { transfers_.fail(slot, status); }
  void finish(std::uint32_t slot, const Status& status) override { transfers_.finish(slot, status); }
  void adopt(std::uint32_t slot) override;
  void begin_inner(std::uint32_t slot) override { transfers_.begin_inner(slot); }
  void advance(std::uint32_t slot) override { transfers_.advance(slot); }
  void signal(std::uint32_t slot) override { transfers_.signal(slot); }
  void piece_done(std::uint32_t token, std::uint64_t value) override { transfers_.piece_done(token, value); }
  void piece_failed(std::uint32_t token, const Status& status) override { transfers_.piece_failed(token, status); }
  void compare(std::uint32_t slot, const Piece& piece, std::uint64_t ours, std::uint64_t theirs) override {
    requests_.compare(slot, piece, ours, theirs);
  }
  transport::Reach reach_by_any(RegionId local, RemoteRegionId remote) override {
    return routes_.reach_by_any(local, remote);
  }
  void remove_window(RegionId window, std::uint32_t slot, std::shared_ptr<void> kept) override;
  void end_lease(RegionId region, std::function<void(Status)> done) override;
  std::uint32_t acquire_record(RecordType type) override { return records_.acquire(type); }
  void enqueue_record(std::uint32_t record, std::uint32_t owner) override;
  bool post_now(std::span<std::byte> head, std::span<const std::byte> tail) override {
    return records_.post_now(head, tail);
  }

  // ---- LinkOwner ----
  void link_up(std::uint8_t index) override;
  void link_ready(Link& link) override;
  void link_lost(Link& link, bool was_ready) override;
  void epoch_closed(std::uint8_t link, bool both) override { transfers_.epoch_closed(link, both); }
  void no_link(const std::string& reasons) override;
  void link_slow(const Link& link, std::string detail) override;
  void tell(const LinkClosed& message) override;

  void on_hello(const Hello& hello);
  void tell_user(PeerEvent::Kind kind, const Link& link, const Status& reason, std::string detail = {});
  // Gives a record to its part.
  void serve(const RecordHeader& record);
  // Decodes a record's body for `handle`, or ends the session of a peer that sent a malformed one.
  template <class Body, class Handle>
  void take(const RecordHeader& record, const Handle& handle);

  Worker& worker_;
  EngineTables& engine_;
  const control::SessionId session_;
  const control::PeerInfo info_;
  bool greeted_ = false;
  bool down_ = false;
  Status down_reason_;

  LinkSet links_;
  Routes routes_;
  LinkRates rates_;
  ShortPath short_path_;
  RecordSender records_;
  Notifier notifier_;
  MessageWindows windows_;
  MessageMatcher matcher_;
  StagingClient staging_client_;
  StagingServer staging_server_;
  RemoteRequests requests_;
  RemoteService service_;
  Transfers transfers_;
  RegionUsers region_users_;
  PathExplainer explainer_;
};

}  // namespace fairway::engine
