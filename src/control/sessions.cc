#include "control/sessions.h"

#include <algorithm>

#include <fmt/format.h>

namespace fairway::control {
namespace {

// A secret that only the two ends of a session can compute: derived from the job's key, the session id and both
// incarnations.
std::array<std::byte, 32> lane_secret(JobKey& key, std::uint64_t wire_id, std::uint64_t one, std::uint64_t other) {
  std::array<std::byte, 24> bytes{};
  ByteWriter(bytes).put(wire_id).put(std::min(one, other)).put(std::max(one, other));
  return key.derive(kLaneSecret, {bytes}).value_or(Mac{});
}

}  // namespace

Session* Sessions::find(SessionId id) {
  const std::uint32_t slot = slot_of(id);
  return slot < slots_.size() && slots_[slot] && slots_[slot]->id() == id ? slots_[slot].get() : nullptr;
}

Session* Sessions::find_incarnation(const Identity& peer) {
  for (auto& session : slots_)
    if (session && same_incarnation(session->peer(), peer)) return session.get();
  return nullptr;
}

Session* Sessions::find_address(const std::string& address) {
  for (auto& session : slots_)
    if (session && (session->peer().address == address || session->dialed == address)) return session.get();
  return nullptr;
}

Session& Sessions::place(std::uint64_t wire_id, PeerInfo peer, Keepalive keepalive) {
  auto free = std::find(slots_.begin(), slots_.end(), nullptr);
  if (free == slots_.end()) free = slots_.emplace(slots_.end());
  const auto slot = static_cast<std::uint32_t>(free - slots_.begin());
  *free = std::make_unique<Session>(context_, context_.mailbox.open(slot), wire_id, std::move(peer), keepalive);
  ++count_;
  opened_.push_back((*free)->id());
  return **free;
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
  // A new session has sent nothing, so `received` of 0 is always valid.
  [[maybe_unused]] const Status fresh = session.attach(std::move(connection), 0, stamp, now);
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
    down(session, status, Reason::protocol_error, now);
}

void Sessions::down(Session& session, const Status& reason, std::optional<Reason> tell, Time now) {
  const std::uint32_t slot = slot_of(session.id());
  context_.mailbox.shut(slot);
  const std::unique_ptr<Session> ended = std::move(slots_[slot]);
  --count_;
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
  for (auto& session : slots_)
    if (session && !session->with_self() && !session->connected() && session->peer().address == address &&
        !same_incarnation(session->peer(), peer))
      down(*session, {ErrorCode::stale_incarnation, "it restarted: a new engine has its address now"}, std::nullopt,
           now);
}

void Sessions::send(SessionId id, std::string message) {
  Session* session = find(id);
  if (!session) return;
  if (!session->with_self()) return session->add(std::move(message));
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
  for (auto& session : slots_) {
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
  for (auto& session : slots_) {
    if (!session || session->with_self() || now < session->keepalive().dead_at()) continue;
    auto text = fmt::format("no heartbeat for {} ms: the process is stopped, its host is down, or the network is cut",
                            session->keepalive().timeout() / kMillisecond);
    if (!session->last_break())
      text += fmt::format(" (its connection broke earlier: {})", session->last_break().message());
    down(*session, {ErrorCode::peer_dead, std::move(text)}, Reason::stale, now);
  }
}

Time Sessions::transmit(Time now) {
  // The observer is asked once per step, for all heartbeats.
  std::optional<Progress> progress;
  Time next = kNever;
  for (auto& session : slots_) {
    if (!session || session->with_self()) continue;
    if (session->connected()) {
      if (!progress && session->keepalive().beat_due(now)) progress = context_.observer.progress();
      if (session->transmit(now, progress ? &*progress : nullptr) || session->has_unread()) next = now;
      next = std::min(next, session->keepalive().next_beat());
    }
    next = std::min(next, session->keepalive().dead_at());
  }
  return next;
}

}  // namespace fairway::control
