#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fairway/metrics.h"

#include "core/runtime.h"
#include "core/time.h"
#include "engine/control_message.h"
#include "engine/links/link.h"
#include "engine/links/proof.h"
#include "engine/tables/peer_context.h"
#include "engine/tables/record.h"
#include "engine/tables/regions.h"
#include "engine/tables/slices.h"
#include "transport/gpu_access.h"

namespace fairway::engine {

// The clock for timeouts against a peer's engine. It counts only time in which both engines can act: an engine with
// Progress::caller does nothing while its caller computes, yet is not frozen. So the clock stops while this engine's
// caller is away, and against a peer of that kind it advances only with heartbeats that show new steps. Whether such a
// peer lives is decided by control, whose thread answers in any case. Owner: the peer's worker.
class PeerClock {
 public:
  PeerClock(bool by_caller, Time now) : by_caller_(by_caller), counted_(now), latest_(now), heard_(now) {}

  // When something begins to wait; never earlier than what was given before.
  Time start(Time now) {
    const Time still = by_caller_ ? now - std::min(now, heard_) : 0;  // since the last heartbeat: not counted yet
    return latest_ = std::max(latest_, passed(now) + still);
  }
  // How far the clock has come.
  [[nodiscard]] Time passed(Time now) const { return by_caller_ ? counted_ : now - std::min(now, away_); }

  [[nodiscard]] bool over(Time since, Time bound, Time now) const { return passed(now) >= after(since, bound); }
  // When to look again, by the worker's clock: it is not over before.
  [[nodiscard]] Time look_at(Time since, Time bound, Time now) const {
    const Time end = after(since, bound);
    return end == kNever ? kNever : after(now, end - std::min(end, passed(now)));
  }

  // A heartbeat of the peer, at that time.
  void heard(std::uint64_t steps, Time at) {
    if (at > heard_) {
      if (steps != steps_) counted_ += at - heard_;
      heard_ = at;
    }
    steps_ = steps;
  }
  // This engine's caller did not step it meanwhile.
  void was_away(Time from, Time to) {
    away_ += to - from;
    heard_ = std::max(heard_, to);
  }

 private:
  const bool by_caller_;
  Time counted_;  // by_caller_
  Time latest_;
  Time heard_;
  Time away_ = 0;
  std::uint64_t steps_ = 0;
};

// Called when a link's state changes.
class LinkOwner {
 public:
  virtual void link_up(std::uint8_t link) = 0;                       // a new epoch, not proven yet
  virtual void link_ready(Link& link) = 0;                           // proven: it carries data
  virtual void link_lost(Link& link, bool was_ready) = 0;            // it takes nothing more
  virtual void epoch_closed(std::uint8_t link, bool both_ends) = 0;  // its slices may move, see below
  virtual void no_link(const std::string& reasons) = 0;              // every transport's attempt ended without one
  virtual void link_slow(const Link& link, std::string detail) = 0;  // it does not keep the rate that is expected
  virtual void tell(const LinkClosed& message) = 0;                  // the peer, by control

 protected:
  ~LinkOwner() = default;
};

// The links to one peer: they come up, are proven, closed on both ends, and tried again (ARCHITECTURE, "Links").
//
// When a link breaks, this side fences its end and then tells the peer that nothing of that epoch touches this side's
// memory any more. Both sides do so, whoever saw the break first. A piece that was in flight moves to another link when
// it can have no late effect: a read once this side is fenced (its bytes would land here), a write once the peer is
// (they would land there). Owner: the peer's worker.
//   link_set.cc  up, down and up again; links on which nothing moves
//   proof.cc     proofs
class LinkSet {
 public:
  // `clock`: against which `bound`, EngineOptions::peer_timeout, is measured. `prove`: EngineOptions::prove_paths.
  LinkSet(PeerContext& peer, LinkOwner& owner, ScratchMemory& scratch, Rng& rng, const PeerClock& clock, Time bound,
          bool prove)
      : peer_(peer),
        owner_(owner),
        scratch_(scratch),
        rng_(rng),
        bound_(bound),
        prove_(prove),
        clock_(clock),
        place_(scratch.take()) {}

  // ---- the links, by index ----
  void collect(PeerId peer, std::vector<LinkMetrics>& out) const;  // any thread
  [[nodiscard]] std::size_t size() const { return links_.size(); }
  [[nodiscard]] bool empty() const { return links_.empty(); }
  Link& operator[](std::size_t index) { return links_[index]; }
  const Link& operator[](std::size_t index) const { return links_[index]; }
  auto begin() { return links_.begin(); }
  auto end() { return links_.end(); }
  [[nodiscard]] auto begin() const { return links_.begin(); }
  [[nodiscard]] auto end() const { return links_.end(); }
  [[nodiscard]] bool any_up() const;
  [[nodiscard]] bool awaits_ends() const;  // slices are in flight on a link that is up
  // Whether a window costs little to lend and to take back, and a write's immediate can say that its bytes came.
  [[nodiscard]] bool take_messages_directly() const;
  // Between memories that not all devices of the link's transport took.
  [[nodiscard]] bool can_reach(const Link& link, std::uint64_t local_handle, std::uint64_t remote_handle,
                               std::string* why_not = nullptr) const {
    return peer_.transports()[link.transport]->reach(link.id, local_handle, remote_handle, why_not) !=
           transport::Reach::no;
  }
  // opening: a link of that transport is being made, or comes back.
  [[nodiscard]] transport::Reach linked_by(std::uint16_t transport, Status& why_no) const;
  [[nodiscard]] std::string why_no_link() const;
  [[nodiscard]] const std::vector<std::uint16_t>& connecting() const { return connecting_; }
  [[nodiscard]] const std::vector<std::string>& refusals() const { return refusals_; }  // "transport: why no link"
  [[nodiscard]] bool settled() const { return settled_; }  // a link was there, or every attempt has ended
  // Since when no link is up that does more than its proof; by since_now(); kNever: one is.
  [[nodiscard]] Time no_link_since() const { return no_link_since_; }

  // ---- control's words ----
  // The peer's hello: its transports, and where links are proven in its scratch region.
  void connect(std::span<const std::string> names, transport::Role role, RemoteRegionId scratch, std::uint64_t offset);
  // Before it: how many cores each end has; 0: unknown.
  void share_cores(unsigned here, unsigned there) {
    few_cores_ = here > 0 && there > 0 && here <= kFewCores && there <= kFewCores;
  }
  void refused(std::string why) { refusals_.push_back(std::move(why)); }
  void on_link_closed(const LinkClosed& message);

  // ---- transports' events ----
  void on_connect_failed(std::uint16_t transport, const Status& reason);
  void on_link_up(std::uint16_t transport, const transport::Event& event);
  void on_link_down(std::uint8_t index, const Status& reason);
  void on_retry_failed(std::uint8_t index, const Status& reason);
  void on_fenced(std::uint8_t index, const transport::Event& event);

  // ---- slices ----
  void entered(Link& link, bool waits_for_stream);  // the transport has one more
  void left(Link& link, std::uint64_t bytes);       // it has had its event, or was not taken
  void works(Link& link);                           // a slice that was no proof is done
  void forgive_stalls();  // transfers that waited for stalled links have ended: the next ones may try them
  [[nodiscard]] std::uint32_t out() const { return out_; }  // in transports' hands
  void proof_done(std::uint8_t index, const Status& status);
  void on_echo(std::uint8_t index, const record::Echo& echo);
  void on_echo_reply(std::uint8_t index, std::span<const std::byte> bytes);

  // ---- the end of an epoch ----
  void close(std::uint8_t index, const Status& reason);
  void release(std::uint8_t index);          // as far as its ends are closed
  std::optional<Time> run_timers(Time now);  // when to run again; nothing: the session is being ended

  // ---- what waits for the peer's engine, by its PeerClock ----
  PeerClock& peer_clock() { return clock_; }
  Time since_now() { return clock_.start(peer_.now()); }
  [[nodiscard]] bool is_over(Time since, Time bound) const { return clock_.over(since, bound, peer_.now()); }
  [[nodiscard]] Time look_at(Time since, Time bound) const { return clock_.look_at(since, bound, peer_.now()); }
  [[nodiscard]] Time bound() const { return bound_; }
  [[nodiscard]] std::uint32_t scratch_place() const { return place_; }  // of this side's

 private:
  // link_set.cc
  std::uint8_t link_index(std::uint16_t transport, transport::LinkId id);
  void settle();
  void set_ready(Link& link);
  void plan_retry(Link& link);
  // links on which nothing moves
  Time watch_progress(std::uint8_t index);  // returns when to look again
  void close_stalled(std::uint8_t index);
  bool forgets_a_slice(std::uint8_t index);
  // proof.cc
  [[nodiscard]] std::size_t scratch_place(std::uint8_t index) const;
  void begin_proof(std::uint8_t index);
  void continue_proof(std::uint8_t index);
  void answer_echo(std::uint8_t index);
  bool post(Link& link, const transport::Slice& slice);

  PeerContext& peer_;
  LinkOwner& owner_;
  ScratchMemory& scratch_;
  Rng& rng_;
  const Time bound_;
  const bool prove_;
  PeerClock clock_;
  const std::uint32_t place_;  // in scratch memory
  RemoteRegionId scratch_there_;
  std::uint64_t offset_there_ = 0;
  transport::Role role_ = transport::Role::initiator;
  bool begun_ = false, settled_ = false;
  bool few_cores_ = false;                 // at both ends
  std::vector<std::uint16_t> connecting_;  // transports whose attempt has not ended
  std::vector<std::string> refusals_;
  mutable std::mutex shape_;  // guards which links there are, and their texts, against collect()
  std::vector<Link> links_;
  std::vector<std::pair<std::string, std::uint64_t>> closed_early_;  // epochs the peer closed before we saw them
  Time no_link_since_ = kNever;
  std::uint32_t out_ = 0;
};

}  // namespace fairway::engine
