#include <algorithm>
#include <utility>

#include "engine/operation.h"
#include "engine/peer.h"
#include "engine/worker.h"

// Links of a peer: they come up, are proven (peer_proof.cc), and are closed on both ends before anything moves to
// another one.
//
// A link that breaks is fenced on this side; then the peer is told that this side touches nothing of that epoch any
// more. Both sides do so, whoever saw the break first. A piece that was in flight moves when it can have no late
// effect: a read once this side is fenced (it would land here), a write once the peer is (it would land there).
namespace fairway::engine {
namespace {

constexpr Time kFirstBackoff = 10 * kMillisecond;
constexpr Time kLastBackoff = kSecond;
constexpr Time kBoundsOfASlice = 4, kBoundsOfAReceive = 30;  // times peer_timeout
constexpr std::size_t kMaxClosedEarly = 256;

}  // namespace

Time Peer::since_now() {
  return patience_.start(worker_.now());
}
bool Peer::is_over(Time since, Time bound) const {
  return patience_.over(since, bound, worker_.now());
}
Time Peer::look_at(Time since, Time bound) const {
  return patience_.look_at(since, bound, worker_.now());
}

bool Peer::any_link_up() const {
  return std::any_of(links_.begin(), links_.end(), [](const Link& link) { return link.is_up(); });
}

std::uint8_t Peer::link_index(std::uint16_t transport, transport::LinkId id) {
  for (std::size_t i = 0; i < links_.size(); ++i)
    if (links_[i].transport == transport && links_[i].id.slot == id.slot) return static_cast<std::uint8_t>(i);
  if (links_.size() == kMaxLinks) return kMaxLinks;
  links_.emplace_back();
  links_.back().transport = transport;
  return static_cast<std::uint8_t>(links_.size() - 1);
}

void Peer::on_link_up(std::uint16_t transport, const transport::Event& event) {
  std::erase(connecting_, transport);
  if (down_) return;
  const std::uint8_t index = link_index(transport, event.link);
  if (index == kMaxLinks) {
    refusals_.push_back("more than " + std::to_string(kMaxLinks) + " links");
    return worker_.transport_at(transport).fence(event.link);
  }
  Link& link = links_[index];
  const transport::Device& device = worker_.transport_at(transport).devices()[event.device];
  link.id = event.link;
  link.device = event.device;
  link.name = event.value;
  link.text = std::string(worker_.transport_at(transport).name()) + "/" + device.name + "/" + std::to_string(index);
  link.capabilities = &device.capabilities;
  link.bytes_per_second = device.bytes_per_second;
  link.closed_here = link.closed_there = false;
  link.immediates_posted = 0;
  link.in_flight = 0;
  link.newest_done = link.look_at = 0;
  link.queued_bytes = 0;
  link.full = false;
  link.pace.reset();
  link.retry_at = kNever;
  link.retry_reason = {};
  learn_rates(link);
  worker_.link_at(transport, event.link, *this, index);
  const std::pair key(std::string(worker_.transport_at(transport).name()), link.name);
  link.state = LinkState::proving;
  if (std::erase(closed_early_, key) > 0) {
    link.closed_there = true;
    return close_link(index, {ErrorCode::link_failed, "the peer closed it at once"});
  }
  if (worker_.services().options.prove_paths)
    begin_proof(index);
  else
    set_ready(index);
}

void Peer::set_ready(std::uint8_t index) {
  Link& link = links_[index];
  link.state = LinkState::ready;
  link.ready_since = since_now();
  link.proof_since = kNever;
  ++route_version_;
  no_link_since_ = missed_since_ = kNever;
  settled_ = true;
  worker_.services().peers.set_ready(id());
  worker_.services().peer_events.push({PeerEvent::Kind::link_up, id(), text(), link.text, info_.incarnation, {}, {}});
  worker_.services().notice();
  worker_.again();
}

// ---- closing ----

// What was said to be done on a link that fails had been taken at the other end, and the rest goes again. Where the
// words that came make no sense, some that were said to be done may be among those that are lost: somebody would wait
// for them for ever, so nobody goes on.
void Peer::on_link_down(std::uint8_t index, const Status& reason) {
  close_link(index, reason);
  if (reason.code() == ErrorCode::protocol_error && !down_)
    worker_.services().drop(session_, reason.with_peer(text()).with_link(links_[index].text));
}

void Peer::on_retry_failed(std::uint8_t index, const Status& reason) {
  if (!links_[index].is_up()) links_[index].retry_reason = reason;
}

void Peer::close_link(std::uint8_t index, const Status& reason) {
  Link& link = links_[index];
  if (!link.is_up()) return;
  const bool was_ready = link.state == LinkState::ready;
  link.state = LinkState::closing;
  link.closing_since = since_now();
  if (was_ready && is_over(link.ready_since, bound_)) link.backoff = 0;
  link.down_reason = reason;
  link.proof_since = kNever;
  ++link.failures;
  ++route_version_;
  if (!any_link_up() && no_link_since_ == kNever) no_link_since_ = since_now();  // a proof that fails is no link
  if (was_ready) {
    missed_since_ = kNever;
    worker_.services().peer_events.push(
        {PeerEvent::Kind::link_down, id(), text(), link.text, info_.incarnation, reason.with_link(link.text), {}});
    worker_.services().notice();
  }
  wake_at(worker_.now());
  worker_.transport_at(link.transport).fence(link.id);
}

void Peer::on_fenced(std::uint8_t index, const transport::Event& event) {
  Link& link = links_[index];
  if (link.closed_here || link.is_up()) return;
  link.closed_here = true;
  if (!down_)
    worker_.services().tell(
        session_, format(LinkClosed{std::string(worker_.transport_at(link.transport).name()), link.name, event.value}));
  release_parked(index);
}

void Peer::on_link_closed(const LinkClosed& message) {
  for (std::uint8_t i = 0; i < links_.size(); ++i) {
    Link& link = links_[i];
    if (link.name != message.name || worker_.transport_at(link.transport).name() != message.transport) continue;
    if (link.closed_there || link.state == LinkState::closed) return violation("the end of a link's epoch twice");
    link.closed_there = true;
    link.immediates_there = message.immediates;
    close_link(i, {ErrorCode::link_failed, "the peer lost it"});
    return release_parked(i);
  }
  const std::uint16_t transport = worker_.transport_index(message.transport);
  if (transport != Worker::kNoTransport && worker_.transport_at(transport).forgo(owner_.index, message.name))
    return worker_.services().tell(session_, format(LinkClosed{message.transport, message.name, 0}));
  if (closed_early_.size() >= kMaxClosedEarly) return violation("the ends of too many unknown links");
  closed_early_.emplace_back(message.transport, message.name);
}

void Peer::release_parked(std::uint8_t index) {
  Link& link = links_[index];
  if (!link.closed_here) return;
  const bool both = link.closed_there || down_;
  worker_.slices().for_each(id().slot, [&](std::uint32_t token, SliceEntry& entry) {
    if (!entry.parked || entry.link != index) return;
    if (!both && entry.op != transport::Op::read) return;
    if (entry.use == SliceUse::record) {
      send_again(entry.owner);
      worker_.slices().release(token);
      return;
    }
    const bool atomic = entry.op == transport::Op::fetch_add || entry.op == transport::Op::compare_swap;
    if (entry.op == transport::Op::write_immediate && entry.immediate < link.immediates_there) {
      entry.parked = false;
      piece_done(token, 0);
    } else if (atomic) {
      const std::uint32_t slot = entry.owner;
      transfer(slot).in_doubt = true;
      drop_piece(token);
      fail(slot, link.down_reason.with_link(link.text).with_effect(Effect::unknown));
    } else {
      entry.parked = false;
      transfer(entry.owner).immediate_sent = false;
      ++link.retries;
      ++transfer(entry.owner).retried;
      retry_later(token);
    }
  });
  worker_.again();
  if (!both) return;
  notifier_.settle(link.doubtful_events, link.immediates_there);
  link.state = LinkState::closed;
  const bool fails_again = link.backoff > kFirstBackoff;
  plan_retry(link);
  // Who is dialed is there whenever the peer dials: of a link that fails again and again, as soon as that one may.
  if (!info_.initiated_here) link.retry_at = after(worker_.now(), fails_again ? kFirstBackoff : 0);
  wake_at(link.retry_at);
}

// Several tries within the time that transfers wait for a link. A link that was good for no longer than the bound goes
// on where it was: it may fail again at once, and each proof of it costs both sides.
void Peer::plan_retry(Link& link) {
  const Time last = std::clamp(bound_ / 8, kFirstBackoff, kLastBackoff);
  link.backoff = std::clamp(link.backoff * 2, kFirstBackoff, last);
  link.retry_at = after(worker_.now(), link.backoff);
}

Time Peer::link_timers(Time now) {
  if (down_) return kNever;
  Time next = kNever;
  for (std::uint8_t i = 0; i < links_.size(); ++i) {
    Link& link = links_[i];
    link.full = false;
    answer_echo(i);
    if (link.echo_owed) next = std::min(next, after(now, kMillisecond));
    if (link.state == LinkState::closed && link.retry_at <= now) {
      plan_retry(link);  // should it come to nothing
      worker_.transport_at(link.transport).reconnect(link.id);
    }
    if (link.state == LinkState::closed) next = std::min(next, link.retry_at);
    if (link.state == LinkState::proving) {
      if (is_over(link.proof_since, bound_))
        close_link(i, {ErrorCode::link_failed, "the proof did not come back in time"});
      else if (link.proof_step == 2 && link.proof_again <= now)
        link.proof_step = 1;
      if (link.state == LinkState::proving && link.in_flight == 0 && link.proof_step < 2) continue_proof(i);
      if (link.proof_step < 2) next = std::min(next, after(now, kMillisecond));  // its slice may have found no room
      next = std::min({next, look_at(link.proof_since, bound_), link.proof_step == 2 ? link.proof_again : kNever});
    }
    if (link.is_up() && link.in_flight > link.waits_for_streams) {
      if (is_over(link.last_progress, bound_))
        close_link(i, {ErrorCode::link_failed, "no slice completed within the peer timeout"});
      else if (forgets_a_slice(i, now))
        close_link(i, {ErrorCode::link_failed,
                       "a slice did not complete within four times the peer timeout, though "
                       "later ones did"});
      else
        next = std::min(next, look_at(link.last_progress, bound_));
    }
    if (link.state == LinkState::closing) {
      if (is_over(link.closing_since, 2 * bound_) && link.closed_here) {
        // The peer lives, as control says, but does not say that its end is closed: nobody knows what was applied.
        worker_.services().drop(
            session_, Status(ErrorCode::protocol_error, "the peer did not close its end of a broken link in time: " +
                                                            link.text + ": " + link.down_reason.message())
                          .with_peer(text())
                          .with_link(link.text));
        return kNever;
      }
      next = std::min(next, std::max(look_at(link.closing_since, 2 * bound_), now + kMillisecond));
    }
  }
  if (records_.next() == kNoSlot) records_stuck_since_ = kNever;
  if (records_stuck_since_ != kNever && no_link_since_ == kNever) {
    if (is_over(records_stuck_since_, 2 * bound_)) {
      worker_.services().drop(
          session_,
          Status(ErrorCode::link_failed, "no link is left that carries the engine's own messages").with_peer(text()));
      return kNever;
    }
    next = std::min(next, look_at(records_stuck_since_, 2 * bound_));
  }
  return std::min(next, give_up_without_link());
}

// Looks once in a while: while slices are in flight, link_timers() is due within the bound.
bool Peer::forgets_a_slice(std::uint8_t index, Time now) {
  Link& link = links_[index];
  if (link.look_at > now) return false;
  link.look_at = after(now, bound_);
  return worker_.slices().any_of(id().slot, [&](const SliceEntry& entry) {
    if (entry.use == SliceUse::request || entry.link != index || entry.parked || entry.retry) return false;
    if (entry.use == SliceUse::data && transfer(entry.owner).request.options.start_after != nullptr) return false;
    return entry.posted < link.newest_done && is_over(entry.posted, kBoundsOfASlice * bound_);
  });
}

// What this side has to move fails once there has been no link for the bound. A receive that waits for its message does
// not: its sender, who may have proven the link already or has it a moment later, would find nobody and wait for ever.
// But without links for good no message comes: then the session ends, at the sender too.
Time Peer::give_up_without_link() {
  if (no_link_since_ == kNever || first_active_ == kNoSlot) return kNever;
  if (!is_over(no_link_since_, bound_)) return look_at(no_link_since_, bound_);
  const Status why = Status(ErrorCode::link_failed, "no link to the peer is left: " + why_no_link()).with_peer(text());
  for (std::uint32_t slot = first_active_; slot != kNoSlot;) {
    const Transfer& t = transfer(slot);
    const std::uint32_t next = t.next_active;
    if (t.request.operation != Operation::receive || t.rendezvous.other) fail(slot, why);
    slot = next;
  }
  if (first_active_ == kNoSlot) return kNever;
  if (!is_over(no_link_since_, kBoundsOfAReceive * bound_)) return look_at(no_link_since_, kBoundsOfAReceive * bound_);
  worker_.services().drop(session_, why);
  return kNever;
}

std::string Peer::why_no_link() const {
  std::string reasons;
  const auto add = [&](const std::string& reason) { reasons += (reasons.empty() ? "" : "; ") + reason; };
  for (const Link& link : links_) add(link.text + ": " + link.why_down());
  for (const std::string& refusal : refusals_) add(refusal);
  for (const std::uint16_t transport : connecting_)
    add(std::string(worker_.transport_at(transport).name()) + ": still connecting after EngineOptions::peer_timeout");
  return reasons;
}

// opening: a link of it is being made, or comes back.
transport::Reach Peer::linked_by(std::uint16_t transport, Status& why_no) const {
  if (!greeted_ || std::find(connecting_.begin(), connecting_.end(), transport) != connecting_.end())
    return transport::Reach::opening;
  for (const Link& link : links_)
    if (link.transport == transport)
      return link.state == LinkState::ready ? transport::Reach::yes : transport::Reach::opening;
  const std::string name(worker_.transport_at(transport).name());
  why_no = {ErrorCode::unsupported, "no link by " + name + " to its owner"};
  for (const std::string& refusal : refusals_)
    if (refusal.starts_with(name + ":")) why_no = {ErrorCode::unsupported, "no link to its owner by " + refusal};
  return transport::Reach::no;
}

}  // namespace fairway::engine
