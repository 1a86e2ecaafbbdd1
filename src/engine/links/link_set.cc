#include "engine/links/link_set.h"

#include <algorithm>
#include <string>
#include <utility>

#include "transport/optional_calls.h"

namespace fairway::engine {
namespace {

constexpr Time kFirstBackoff = 10 * kMillisecond;
constexpr Time kLastBackoff = kSecond;
constexpr std::size_t kMaxClosedEarly = 256;

}  // namespace

// ---- the beginning ----

void LinkSet::connect(std::span<const std::string> names, transport::Role role, RemoteRegionId scratch,
                      std::uint64_t offset) {
  begun_ = true;
  role_ = role;
  scratch_there_ = scratch;
  offset_there_ = offset;
  for (std::uint16_t i = 0; i < peer_.transports().size(); ++i) {
    const std::string name(peer_.transports()[i]->name());
    if (std::find(names.begin(), names.end(), name) == names.end())
      refused(name + ": the peer does not have it");
    else
      connecting_.push_back(i);
  }
  for (const std::uint16_t i : std::vector(connecting_))  // all are listed first, since one may fail at once
    if (const Status status = peer_.transports()[i]->connect(peer_.owner().index, role); !status)
      on_connect_failed(i, status);
  for (const std::string& name : names)
    if (std::none_of(peer_.transports().begin(), peer_.transports().end(),
                     [&](const auto& transport) { return transport->name() == name; }))
      refused(name + ": this engine does not have it");
  no_link_since_ = since_now();
  peer_.wake_at(peer_.now());
  settle();
}

void LinkSet::on_connect_failed(std::uint16_t transport, const Status& reason) {
  std::erase(connecting_, transport);
  refused(std::string(peer_.transports()[transport]->name()) + ": " + reason.message());
  settle();
}

// Called once every transport's attempt has failed.
void LinkSet::settle() {
  if (settled_ || !connecting_.empty() || !links_.empty()) return;
  settled_ = true;
  std::string reasons;
  for (const std::string& refusal : refusals_) reasons += (reasons.empty() ? "" : "; ") + refusal;
  owner_.no_link(reasons.empty() ? "neither side has a transport" : reasons);
}

bool LinkSet::any_up() const {
  return std::any_of(links_.begin(), links_.end(), [](const Link& link) { return link.is_up(); });
}

bool LinkSet::awaits_ends() const {
  return std::any_of(links_.begin(), links_.end(),
                     [](const Link& link) { return link.is_up() && link.in_flight > link.waits_for_streams; });
}

bool LinkSet::take_messages_directly() const {
  bool any = false;
  for (const Link& link : links_) {
    if (link.state != LinkState::ready) continue;
    const transport::Capabilities& c = *link.capabilities;
    if (!c.ordered || !link.has(transport::Op::write_immediate) || c.needs_keys || !c.visible_when_done) return false;
    any = true;
  }
  return any;
}

void LinkSet::collect(PeerId peer, std::vector<LinkMetrics>& out) const {
  const std::lock_guard lock(shape_);
  for (const Link& link : links_)
    out.push_back({link.text, peer, link.state == LinkState::ready, link.bytes_out, link.slices, link.errors,
                   link.retries, link.failures, link.in_flight});
}

std::uint8_t LinkSet::link_index(std::uint16_t transport, transport::LinkId id) {
  for (std::size_t i = 0; i < links_.size(); ++i)
    if (links_[i].transport == transport && links_[i].id.slot == id.slot) return static_cast<std::uint8_t>(i);
  if (links_.size() == kMaxLinks) return kMaxLinks;
  const std::lock_guard lock(shape_);
  links_.emplace_back();
  links_.back().transport = transport;
  return static_cast<std::uint8_t>(links_.size() - 1);
}

void LinkSet::on_link_up(std::uint16_t transport, const transport::Event& event) {
  std::erase(connecting_, transport);
  if (peer_.is_down()) return;
  const std::uint8_t index = link_index(transport, event.link);
  if (index == kMaxLinks) {
    refusals_.push_back("more than " + std::to_string(kMaxLinks) + " links");
    return peer_.transports()[transport]->fence(event.link);
  }
  Link& link = links_[index];
  const transport::Device& device = peer_.transports()[transport]->devices()[event.device];
  link.id = event.link;
  link.device = event.device;
  link.way = device.moved_by == transport::MovedBy::sockets ? static_cast<std::uint16_t>(event.device + 1) : 0;
  link.one_of_way = few_cores_;
  link.name = event.value;
  {
    const std::lock_guard lock(shape_);
    link.text = std::string(peer_.transports()[transport]->name()) + "/" + device.name + "/" + std::to_string(index);
  }
  if (link.careful) {
    const std::uint64_t most = link.careful->max_slice_bytes;
    *link.careful = device.capabilities;
    link.careful->max_slice_bytes = std::min(most, device.capabilities.max_slice_bytes);
  }
  link.capabilities = link.careful ? link.careful.get() : &device.capabilities;
  link.bytes_per_second = device.bytes_per_second;
  link.closed_here = link.closed_there = false;
  link.immediates_posted = 0;
  link.in_flight = 0;
  link.newest_done = link.look_at = 0;
  link.moved = 0;
  link.queued_bytes = 0;
  link.full = false;
  link.pace.reset();
  link.retry_at = kNever;
  link.retry_reason = {};
  owner_.link_up(index);
  const std::pair key(std::string(peer_.transports()[transport]->name()), link.name);
  link.state = LinkState::proving;
  if (std::erase(closed_early_, key) > 0) {
    link.closed_there = true;
    return close(index, {ErrorCode::link_failed, "the peer closed it at once"});
  }
  if (prove_)
    begin_proof(index);
  else
    set_ready(link);
}

void LinkSet::set_ready(Link& link) {
  link.state = LinkState::ready;
  link.ready_since = since_now();
  link.proof_since = kNever;
  if (!link.stalled) no_link_since_ = kNever;
  settled_ = true;
  owner_.link_ready(link);
  peer_.again();
}

// ---- closing ----

// When a link fails, the peer has received everything that was reported `done`, and the rest is sent again. After
// malformed data that is not certain: messages that were reported `done` may be lost, and their receiver would wait for
// ever. So the session ends.
void LinkSet::on_link_down(std::uint8_t index, const Status& reason) {
  close(index, reason);
  if (reason.code() == ErrorCode::protocol_error && !peer_.is_down())
    peer_.end_session(reason.with_peer(peer_.text()).with_link(links_[index].text));
}

void LinkSet::on_retry_failed(std::uint8_t index, const Status& reason) {
  if (!links_[index].is_up()) links_[index].retry_reason = reason;
}

void LinkSet::close(std::uint8_t index, const Status& reason) {
  Link& link = links_[index];
  if (!link.is_up()) return;
  const bool was_ready = link.state == LinkState::ready;
  link.state = LinkState::closing;
  link.closing_since = since_now();
  if (was_ready && is_over(link.ready_since, bound_)) link.backoff = 0;
  link.down_reason = reason;
  link.proof_since = kNever;
  ++link.failures;
  const auto counts = [](const Link& each) { return each.is_up() && !each.stalled; };
  if (no_link_since_ == kNever && std::none_of(links_.begin(), links_.end(), counts))
    no_link_since_ = since_now();  // a link whose proof fails does not count
  owner_.link_lost(link, was_ready);
  peer_.wake_at(peer_.now());
  peer_.transports()[link.transport]->fence(link.id);
}

void LinkSet::on_fenced(std::uint8_t index, const transport::Event& event) {
  Link& link = links_[index];
  if (link.closed_here || link.is_up()) return;
  // The peer would move to other links what may still land here by this one. So it hears of the session's end instead:
  // what was on its way ends as unknown.
  if (!event.status) return peer_.end_session(event.status.with_peer(peer_.text()).with_link(link.text));
  link.closed_here = true;
  if (!peer_.is_down()) owner_.tell({std::string(peer_.transports()[link.transport]->name()), link.name, event.value});
  release(index);
}

void LinkSet::on_link_closed(const LinkClosed& message) {
  for (std::uint8_t i = 0; i < links_.size(); ++i) {
    Link& link = links_[i];
    if (link.name != message.name || peer_.transports()[link.transport]->name() != message.transport) continue;
    if (link.closed_there || link.state == LinkState::closed) return peer_.violation("the end of a link's epoch twice");
    link.closed_there = true;
    link.immediates_there = message.immediates;
    close(i, {ErrorCode::link_failed, "the peer lost it"});
    return release(i);
  }
  for (const auto& transport : peer_.transports()) {
    auto* const made = dynamic_cast<transport::ConnectsByItself*>(transport.get());
    if (made != nullptr && transport->name() == message.transport && made->forgo(peer_.owner().index, message.name))
      return owner_.tell({message.transport, message.name, 0});
  }
  if (closed_early_.size() >= kMaxClosedEarly) return peer_.violation("the ends of too many unknown links");
  closed_early_.emplace_back(message.transport, message.name);
}

void LinkSet::release(std::uint8_t index) {
  Link& link = links_[index];
  if (!link.closed_here) return;
  const bool both = link.closed_there || peer_.is_down();
  owner_.epoch_closed(index, both);
  peer_.again();
  if (!both) return;
  link.state = LinkState::closed;
  const bool fails_again = link.backoff > kFirstBackoff;
  plan_retry(link);
  // The acceptor waits for the initiator at once, or after the first backoff if the link fails repeatedly.
  if (role_ == transport::Role::acceptor) link.retry_at = after(peer_.now(), fails_again ? kFirstBackoff : 0);
  peer_.wake_at(link.retry_at);
}

// Several attempts fit into the time that transfers wait for a link. A link that broke again within the bound keeps its
// backoff: it may fail again at once, and each proof costs both sides.
void LinkSet::plan_retry(Link& link) {
  const Time last = std::clamp(bound_ / 8, kFirstBackoff, kLastBackoff);
  link.backoff = std::clamp(link.backoff * 2, kFirstBackoff, last);
  link.retry_at = after(peer_.now(), link.backoff);
}

std::optional<Time> LinkSet::run_timers(Time now) {
  Time next = kNever;
  for (std::uint8_t i = 0; i < links_.size(); ++i) {
    Link& link = links_[i];
    link.full = false;
    answer_echo(i);
    if (link.echo_owed) next = std::min(next, after(now, kMillisecond));
    if (link.state == LinkState::closed && link.retry_at <= now) {
      plan_retry(link);  // in case this attempt fails
      peer_.transports()[link.transport]->reconnect(link.id);
    }
    if (link.state == LinkState::closed) next = std::min(next, link.retry_at);
    if (link.state == LinkState::proving) {
      if (is_over(link.proof_since, bound_))
        close(i, {ErrorCode::link_failed, "the proof did not come back in time"});
      else if (link.proof_step == 2 && link.proof_again <= now)
        link.proof_step = 1;
      if (link.state == LinkState::proving && link.in_flight == 0 && link.proof_step < 2) continue_proof(i);
      if (link.proof_step < 2)
        next = std::min(next, after(now, kMillisecond));  // its slice may have found the queue full
      next = std::min({next, look_at(link.proof_since, bound_), link.proof_step == 2 ? link.proof_again : kNever});
    }
    if (link.is_up() && link.in_flight > link.waits_for_streams) next = std::min(next, watch_progress(i));
    if (link.state == LinkState::closing) {
      if (is_over(link.closing_since, 2 * bound_) && link.closed_here) {
        // By control the peer is alive, but it does not report that its end is closed: what was applied is unknown.
        peer_.end_session(
            Status(ErrorCode::protocol_error, "the peer did not close its end of a broken link in time: " + link.text +
                                                  ": " + link.down_reason.message())
                .with_peer(peer_.text())
                .with_link(link.text));
        return std::nullopt;
      }
      next = std::min(next, std::max(look_at(link.closing_since, 2 * bound_), now + kMillisecond));
    }
  }
  return next;
}

std::string LinkSet::why_no_link() const {
  std::string reasons;
  const auto add = [&](const std::string& reason) { reasons += (reasons.empty() ? "" : "; ") + reason; };
  for (const Link& link : links_) add(link.text + ": " + link.why_down());
  for (const std::string& refusal : refusals_) add(refusal);
  for (const std::uint16_t transport : connecting_)
    add(std::string(peer_.transports()[transport]->name()) + ": still connecting after EngineOptions::peer_timeout");
  return reasons;
}

// opening: a link of that transport is connecting or reconnecting.
transport::Reach LinkSet::linked_by(std::uint16_t transport, Status& why_no) const {
  if (!begun_ || std::find(connecting_.begin(), connecting_.end(), transport) != connecting_.end())
    return transport::Reach::opening;
  for (const Link& link : links_)
    if (link.transport == transport)
      return link.state == LinkState::ready ? transport::Reach::yes : transport::Reach::opening;
  const std::string name(peer_.transports()[transport]->name());
  why_no = {ErrorCode::unsupported, "no link by " + name + " to its owner"};
  for (const std::string& refusal : refusals_)
    if (refusal.starts_with(name + ":")) why_no = {ErrorCode::unsupported, "no link to its owner by " + refusal};
  return transport::Reach::no;
}

// Links on which nothing moves. A slow link is not one: where the transport tells of bytes, any that move count, and
// elsewhere slices are cut shorter once a link seemed to stall.

namespace {

constexpr Time kLooks = 16;                    // at the bytes that moved, within peer_timeout
constexpr Time kKnown = 2 * kSecond;           // the longest wait where the transport knows why nothing moves
constexpr std::uint64_t kAtWork = 64 * 1024;   // bytes of an epoch: more than a proof and some records move
constexpr std::uint64_t kCareful = 64 * 1024;  // bytes of a slice
constexpr Time kBoundsOfASlice = 4;            // times peer_timeout

}  // namespace

// The first slice in flight starts the bound within which the link must make progress.
void LinkSet::entered(Link& link, bool waits_for_stream) {
  if (waits_for_stream) {
    ++link.waits_for_streams;
  } else if (link.in_flight == link.waits_for_streams) {
    link.last_progress = since_now();
    peer_.wake_at(after(peer_.now(), bound_ / kLooks));
  }
  ++link.in_flight;
  ++out_;
}

void LinkSet::left(Link& link, std::uint64_t bytes) {
  --link.in_flight;
  link.queued_bytes -= std::min(link.queued_bytes, bytes);
  link.last_progress = since_now();
  link.full = false;
  --out_;
}

void LinkSet::works(Link& link) {
  link.stalled = false;
  no_link_since_ = kNever;
}

void LinkSet::forgive_stalls() {
  for (Link& link : links_)
    if (std::exchange(link.stalled, false) && link.state == LinkState::ready) no_link_since_ = kNever;
}

Time LinkSet::watch_progress(std::uint8_t index) {
  Link& link = links_[index];
  auto* const tells = dynamic_cast<transport::TellsProgress*>(peer_.transports()[link.transport].get());
  const Time look = bound_ / kLooks;
  if (tells != nullptr && is_over(link.last_progress, look)) {
    const std::uint64_t moved = tells->moved(link.id);
    if (moved != std::exchange(link.moved, moved)) link.last_progress = since_now();
    if (link.stalled && moved >= kAtWork) works(link);
  }
  const bool known = tells != nullptr && is_over(link.last_progress, kKnown) && !tells->why_stalled(link.id).empty();
  if (known || is_over(link.last_progress, bound_))
    close_stalled(index);
  else if (tells == nullptr && forgets_a_slice(index))
    close(index, {ErrorCode::link_failed,
                  "a slice did not complete within four times the peer timeout, though "
                  "later ones did"});
  if (!link.is_up()) return kNever;
  const Time end = look_at(link.last_progress, bound_);
  return tells == nullptr ? end : std::min(end, after(peer_.now(), look));
}

// A link that has stalled is tried again, but once it stalls twice in a row without anything done, and no other works,
// its transfers end: each further attempt would only take peer_timeout.
void LinkSet::close_stalled(std::uint8_t index) {
  Link& link = links_[index];
  std::string why = "no slice completed within the peer timeout";
  if (auto* const tells = dynamic_cast<transport::TellsProgress*>(peer_.transports()[link.transport].get())) {
    why = "no byte has moved within the peer timeout";
    if (const std::string cause = tells->why_stalled(link.id); !cause.empty()) why = cause;
  } else if (link.capabilities->max_slice_bytes > kCareful) {
    link.careful = std::make_unique<transport::Capabilities>(*link.capabilities);
    link.careful->max_slice_bytes = kCareful;
  }
  link.stalled = true;
  close(index, {ErrorCode::link_failed, why});
}

// Checked at intervals: while slices are in flight, run_timers() runs within the bound. Not where the transport tells
// of bytes: a stream loses no slice alone, and a short one may pass a long one that waits for a slow link.
bool LinkSet::forgets_a_slice(std::uint8_t index) {
  Link& link = links_[index];
  if (link.look_at > peer_.now()) return false;
  link.look_at = after(peer_.now(), bound_);
  return peer_.slices().any_of(peer_.id().slot, [&](const SliceEntry& entry) {
    if (entry.use == SliceUse::request || entry.link != index || entry.parked || entry.retry) return false;
    if (entry.use == SliceUse::data && peer_.transfer(entry.owner).request.options.start_after != nullptr) return false;
    return entry.posted < link.newest_done && is_over(entry.posted, kBoundsOfASlice * bound_);
  });
}

}  // namespace fairway::engine
