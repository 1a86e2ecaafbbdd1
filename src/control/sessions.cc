#include <algorithm>

#include <fmt/format.h>

#include "control/session.h"

namespace fairway::control {
namespace {

// A secret that only the two ends of a session can compute: derived from the job's key, the session id and both
// incarnations.
std::array<std::byte, 32> lane_secret(JobKey& key, std::uint64_t wire_id, std::uint64_t one, std::uint64_t other) {
  std::array<std::byte, 24> bytes{};
  ByteWriter(bytes).put(wire_id).put(std::min(one, other)).put(std::max(one, other));
  return key.derive(kLaneSecret, {bytes}).value_or(Mac{});
}

std::size_t hash_of(const std::string& address) {
  return std::hash<std::string>{}(address);
}

// Takes out the entry of that slot, if there is one.
template <class Index, class Key>
void remove(Index& index, const Key& key, std::uint32_t slot) {
  const auto [first, last] = index.equal_range(key);
  const auto found = std::find_if(first, last, [slot](const auto& entry) { return entry.second == slot; });
  if (found != last) index.erase(found);
}

}  // namespace

Session* Sessions::find(SessionId id) {
  const std::uint32_t slot = slot_of(id);
  return slot < slots_.size() && slots_[slot] && slots_[slot]->id() == id ? slots_[slot].get() : nullptr;
}

Session* Sessions::find_incarnation(const Identity& peer) {
  const auto [first, last] = by_incarnation_.equal_range(peer.incarnation);
  for (auto at = first; at != last; ++at)
    if (Session* session = slots_[at->second].get(); same_incarnation(session->peer(), peer)) return session;
  return nullptr;
}

Session* Sessions::find_address(const std::string& address) {
  Session* found = nullptr;
  const auto [first, last] = by_address_.equal_range(hash_of(address));
  for (auto at = first; at != last; ++at) {
    Session* session = slots_[at->second].get();
    if (session->peer().address != address && session->dialed != address) continue;
    if (!found || slot_of(session->id()) < slot_of(found->id())) found = session;
  }
  return found;
}

Session& Sessions::place(std::uint64_t wire_id, PeerInfo peer, Keepalive keepalive) {
  auto free = std::find(slots_.begin(), slots_.end(), nullptr);
  if (free == slots_.end()) free = slots_.emplace(slots_.end());
  const auto slot = static_cast<std::uint32_t>(free - slots_.begin());
  *free = std::make_unique<Session>(context_, context_.mailbox.open(slot), wire_id, std::move(peer), keepalive);
  ++count_;
  by_incarnation_.emplace((*free)->peer().incarnation, slot);
  by_address_.emplace(hash_of((*free)->peer().address), slot);
  opened_.push_back((*free)->id());
  return **free;
}

void Sessions::mark(Session& session) {
  if (std::exchange(session.ready, true)) return;
  ready_.push_back(slot_of(session.id()));
}

void Sessions::attached(Session& session) {
  session.announce_in(announced_, slot_of(session.id()));
  mark(session);  // frames may be there, and messages wait
  timers_at_ = std::min({timers_at_, session.keepalive().next_beat(), session.keepalive().dead_at()});
}

Session& Sessions::open(std::unique_ptr<Connection> connection, const Identity& peer, std::uint64_t wire_id,
                        bool initiated_here, std::uint64_t stamp, const std::string& dialed, Time now) {
  PeerInfo info;
  info.name = peer.name;
  info.address = reachable_address(peer.address, connection->peer_address());
  info.incarnation = peer.incarnation;
  info.by_caller = peer.by_caller;
  info.initiated_here = initiated_here;
  info.secret = lane_secret(context_.wire.key, wire_id, context_.incarnation, peer.incarnation);
  const bool dialable = !looks_loopback(info.address) || looks_loopback(connection->peer_address());
  Session& session =
      place(wire_id, std::move(info), Keepalive(now, context_.options.peer_timeout, peer.timeout_ms * kMillisecond));
  session.dialable = dialable;
  session.dialed = dialed;
  if (!dialed.empty() && dialed != session.peer().address) by_address_.emplace(hash_of(dialed), slot_of(session.id()));
  // A new session has sent nothing, so `received` of 0 is always valid.
  [[maybe_unused]] const Status fresh = session.attach(std::move(connection), 0, stamp, now);
  attached(session);
  context_.observer.session_up(session.id(), session.peer());
  return session;
}

Session& Sessions::open_self(Time now) {
  PeerInfo info;
  info.name = context_.name;
  info.address = context_.address;
  info.incarnation = context_.incarnation;
  info.initiated_here = true;
  context_.runtime.rng.fill(info.secret);
  Session& session = place(context_.random_id(), std::move(info), Keepalive(now, kMaxTimeout, kMaxTimeout));
  session.make_self();
  context_.observer.session_up(session.id(), session.peer());
  return session;
}

void Sessions::resume(Session& session, std::unique_ptr<Connection> connection, std::uint64_t received,
                      std::uint64_t stamp, Time now) {
  session.detach();
  if (Status status = session.attach(std::move(connection), received, stamp, now); !status)
    return down(session, status, Reason::protocol_error, now);
  attached(session);
}

void Sessions::down(Session& session, const Status& reason, std::optional<Reason> tell, Time now) {
  const std::uint32_t slot = slot_of(session.id());
  context_.mailbox.shut(slot);
  const std::unique_ptr<Session> ended = std::move(slots_[slot]);
  --count_;
  remove(by_incarnation_, ended->peer().incarnation, slot);
  remove(by_address_, hash_of(ended->peer().address), slot);
  if (ended->dialed != ended->peer().address) remove(by_address_, hash_of(ended->dialed), slot);
  if (auto connection = ended->detach(); connection && tell) {
    connection->put(Goodbye{*tell, reason.message()});
    context_.closing.add(std::move(connection), now);
  }
  context_.observer.session_down(ended->id(), reason.with_peer(ended->label()));
}

void Sessions::down_all(const Status& reason, Reason tell, Time now) {
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    if (!slots_[slot]) continue;
    slots_[slot]->transmit(now, nullptr);
    down(*slots_[slot], reason, tell, now);
  }
}

void Sessions::end_replaced(const Identity& peer, const std::string& address, Time now) {
  std::vector<Session*> replaced;
  const auto [first, last] = by_address_.equal_range(hash_of(address));
  for (auto at = first; at != last; ++at) {
    Session* session = slots_[at->second].get();
    if (!session->with_self() && !session->connected() && session->peer().address == address &&
        !same_incarnation(session->peer(), peer))
      replaced.push_back(session);
  }
  for (Session* session : replaced)
    down(*session, {ErrorCode::stale_incarnation, "it restarted: a new engine has its address now"}, std::nullopt, now);
}

void Sessions::send(SessionId id, std::string message) {
  Session* session = find(id);
  if (!session) return;
  if (!session->with_self()) {
    mark(*session);
    return session->add(std::move(message));
  }
  context_.observer.message(id, std::as_bytes(std::span(message.data(), message.size())));
  if (context_.mailbox.release(id, message.size() + kMessageOverhead)) context_.observer.session_writable(id);
}

void Sessions::set_disconnect_reason(SessionId id, const Status& why) {
  if (Session* session = find(id)) session->disconnect_reason = why;
}

void Sessions::end_disconnected(Time now) {
  for (auto& session : slots_) {
    if (!session || !context_.mailbox.wants_disconnect(session->id())) continue;
    session->transmit(now, nullptr);
    const Status why =
        session->disconnect_reason ? Status(ErrorCode::closed, "disconnected") : session->disconnect_reason;
    down(*session, why, why.code() == ErrorCode::protocol_error ? Reason::protocol_error : Reason::closed, now);
  }
}

void Sessions::tell_writable() {
  for (auto& session : slots_)
    if (session && context_.mailbox.freed(session->id())) context_.observer.session_writable(session->id());
}

void Sessions::allow_for_pause(Time now, Time late) {
  for (auto& session : slots_)
    if (session) session->keepalive().allow_for_pause(now, late);
}

void Sessions::receive(Time now) {
  for (const std::uint32_t slot : announced_)
    if (slot < slots_.size() && slots_[slot]) mark(*slots_[slot]);
  announced_.clear();
  for (std::size_t i = 0; i < ready_.size(); ++i) {  // by index: what a session says may mark another
    Session* session = slots_[ready_[i]].get();
    if (!session || !session->connected()) continue;
    if (auto end = session->receive(now)) {
      down(*session, end->reason, end->tell, now);
    } else if (!session->connected()) {
      broken_.push_back(session->id());
    }
  }
  end_dead(now);
}

void Sessions::end_dead(Time now) {
  if (now < timers_at_) return;
  for (auto& session : slots_) {
    if (!session || session->with_self() || now < session->keepalive().dead_at()) continue;
    auto text = fmt::format("no heartbeat for {} ms: the process is stopped, its host is down, or the network is cut",
                            session->keepalive().timeout() / kMillisecond);
    if (!session->last_break())
      text += fmt::format(" (its connection broke earlier: {})", session->last_break().message());
    down(*session, {ErrorCode::peer_dead, std::move(text)}, Reason::stale, now);
  }
}

// The earliest timer of all. Hearing from a peer only makes its own one later, so nobody needs to look until then.
void Sessions::find_timers() {
  timers_at_ = kNever;
  for (const auto& session : slots_) {
    if (!session || session->with_self()) continue;
    timers_at_ = std::min(timers_at_, session->keepalive().dead_at());
    if (session->connected()) timers_at_ = std::min(timers_at_, session->keepalive().next_beat());
  }
}

Time Sessions::transmit(Time now) {
  // The observer is asked once per step, for all heartbeats.
  std::optional<Progress> progress;
  const bool timer = now >= timers_at_;
  if (timer) {
    for (auto& session : slots_) {
      if (!session || session->with_self() || !session->connected() || !session->keepalive().beat_due(now)) continue;
      if (!progress) progress = context_.observer.progress();
      mark(*session);
    }
  }
  bool more = false;
  visited_.swap(ready_);
  for (const std::uint32_t slot : visited_) {
    Session* session = slots_[slot].get();
    if (!session || !std::exchange(session->ready, false) || !session->connected()) continue;
    const bool left = session->transmit(now, progress ? &*progress : nullptr) || session->has_unread();
    more = more || left;
    if (left || session->is_busy()) mark(*session);
  }
  visited_.clear();
  if (timer) find_timers();
  return more ? now : timers_at_;
}

}  // namespace fairway::control
