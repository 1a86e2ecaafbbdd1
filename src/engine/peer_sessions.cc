#include "engine/peer_sessions.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace fairway::engine {
namespace {

constexpr Time kAnswer = 100 * kMillisecond;  // how long control's answer may take after its deadline

const std::string& text_of(const control::PeerInfo& peer) {
  return peer.name.empty() ? peer.address : peer.name;
}

}  // namespace

Status PeerSessions::open(SessionListener& listener) {
  listener_ = &listener;
  control::Options options;
  options.name = tables_.options.name;
  options.listen = tables_.options.listen;
  options.job_key = tables_.options.job_key;
  options.directory = tables_.options.directory;
  options.peer_timeout = static_cast<Time>(std::chrono::nanoseconds(tables_.options.peer_timeout).count());
  options.max_peers = tables_.options.max_peers;
  options.by_caller = tables_.options.progress == Progress::caller;
  auto opened = control::open_control(options, tables_.runtime, *this);
  if (!opened) return opened.status();
  control_ = std::move(opened).value();
  control_now_.store(control_.get(), std::memory_order_release);
  opened_.store(1, std::memory_order_release);
  tables_.runtime.executor.wake_all(opened_);
  return {};
}

void PeerSessions::close() {
  if (control_ != nullptr) control_->close();
}

void PeerSessions::end_calls(const Status& why) {
  connects_.end_all(why);
  resolves_.end_all(why);
}

// The control that open_control() is about to return may already speak on its own thread.
control::Control& PeerSessions::control_now() {
  while (control_now_.load(std::memory_order_acquire) == nullptr)
    tables_.runtime.executor.wait(opened_, 0, after(waiting_.now(), kMillisecond));
  return *control_now_.load(std::memory_order_acquire);
}

// ---- callers of the API ----

// Control may still answer with a session that this side has just dropped: ask again until it knows. If a second
// session has ended too, the peer ended it: do not connect in a loop.
Result<control::SessionId> PeerSessions::session_with(std::string& target, Time until) {
  const Time now = waiting_.now();
  const Time left = until == kNever ? kNever : until - std::min(now, until);
  const Time latest = after(until, kAnswer);
  const auto late = [](const std::string& whom) {
    return Status(ErrorCode::timed_out, "no answer from " + whom + " in time");
  };
  if (target.find(':') == std::string::npos) {
    const auto resolved = resolves_.ask(0, latest, late(target),
                                        [&](std::uint64_t token) { return control_->resolve(target, token, left); });
    if (!resolved) return resolved.status();
    target = *resolved;
  }
  for (std::optional<control::SessionId> dropped;;) {
    auto session = connects_.ask(0, latest, late(target),
                                 [&](std::uint64_t token) { return control_->connect(target, token, left); });
    if (!session) return session;
    const auto info = tables_.peers.find_session(*session);
    if (!info || info->state != PeerTable::State::down) return session;
    if ((dropped && *dropped != *session) || waiting_.now() >= until) return session;
    dropped = *session;
  }
}

Result<PeerId> PeerSessions::connect(std::string_view address, Timeout timeout) {
  if (waiting_.closed()) return Status(ErrorCode::closed, "the engine is closed");
  const Time until = waiting_.deadline(timeout);
  std::string target(address);
  const auto session = session_with(target, until);
  if (!session) return session.status();
  PeerId peer;
  Status failure;
  const bool decided = waiting_.wait_until(until, [&] {
    const auto info = peer ? tables_.peers.find(peer) : tables_.peers.find_session(*session);
    if (!info) {
      failure = turned_away(*session);
      return true;
    }
    peer = info->id;
    failure = info->reason;
    return info->state == PeerTable::State::ready || !info->reason.is_ok() || info->state == PeerTable::State::down;
  });
  if (!decided) return Status(ErrorCode::timed_out, "connected, but no link came up in time").with_peer(target);
  if (failure) return peer;
  // A port or an address that a transport lacked may be there next time. A session without a link would only repeat the
  // reasons of its beginning.
  if (peer && failure.code() == ErrorCode::unsupported) drop(*session, failure);
  return failure;
}

Status PeerSessions::turned_away(control::SessionId session) {
  const std::lock_guard lock(mutex_);
  const auto full = turned_away_.extract(session);
  return full
             ? full.mapped()
             : Status(ErrorCode::unsupported, "an engine does not connect to itself: its own memory needs no transfer");
}

Status PeerSessions::disconnect(PeerId peer) {
  const auto info = tables_.peers.find(peer);
  if (!info || info->state == PeerTable::State::down) return tables_.peers.why_not(peer);
  // The worker handles these in order: pending messages, the goodbye, the end.
  workers_.owner_of(info->id.slot).post([this, session = info->session](Worker& worker) {
    worker.acknowledge();
    control_now().disconnect(session);
  });
  session_down(info->session, {ErrorCode::closed, "disconnected by this side"});
  return {};
}

std::size_t PeerSessions::poll_events(std::span<PeerEvent> events) {
  waiting_.drive();
  const std::size_t count = tables_.peer_events.pop(events);
  if (count == 0) waiting_.settle();
  return count;
}

Status PeerSessions::wait_event(Timeout timeout) {
  return waiting_.wait_for(timeout, "no peer event came in time", [&] { return !tables_.peer_events.empty(); });
}

Status PeerSessions::send(control::SessionId session, std::span<const std::byte> bytes) {
  return control_now().send(session, bytes);
}

void PeerSessions::tell(control::SessionId session, const std::vector<std::byte>& bytes) {
  const Status sent = send(session, bytes);  // if the session is down, session_down() reports it
  if (sent.code() == ErrorCode::queue_full || sent.code() == ErrorCode::invalid_argument)
    drop(session, Status(ErrorCode::resource_exhausted, sent.message())
                      .with_context("the engine's own messages cannot reach the peer"));
}

void PeerSessions::drop(control::SessionId session, const Status& reason) {
  session_down(session, reason);
  control_now().disconnect(session, reason.with_context("the peer ended the session and says"));
}

// ---- what control says ----

void PeerSessions::session_up(control::SessionId session, const control::PeerInfo& peer) {
  if (peer.incarnation == incarnation()) return control_now().disconnect(session);  // this engine itself: see connect()
  const auto id = tables_.peers.add(session, peer);
  if (!id) {
    {
      std::lock_guard lock(mutex_);
      if (turned_away_.size() == kMaxTurnedAway) turned_away_.erase(turned_away_.begin());
      turned_away_[session] = id.status();
    }
    return control_now().disconnect(session);
  }
  tables_.polled.open(*id);
  tables_.peer_events.push({PeerEvent::Kind::up, *id, text_of(peer), {}, peer.incarnation, {}, {}});
  workers_.owner_of(id->slot).post([id = *id, session, peer](Worker& worker) { worker.add_peer(id, session, peer); });
  waiting_.notice();
}

void PeerSessions::session_down(control::SessionId session, const Status& given) {
  const auto info = tables_.peers.find_session(session);
  if (!info) return;
  const std::string& name = text_of(info->peer);
  const Status why = waiting_.closed() ? Status(ErrorCode::cancelled, "the engine is closing") : given;
  const Status reason = why.peer().empty() ? why.with_peer(name) : why;
  if (!tables_.peers.set_down(info->id, reason)) return;
  listener_->on_session_down(session, reason);
  // The last event of a peer: its notifications and the completions of its transfers come before it.
  PeerEvent event{PeerEvent::Kind::down, info->id, name, {}, info->peer.incarnation, reason, {}};
  workers_.owner_of(info->id.slot).post([this, event = std::move(event)](Worker& worker) {
    worker.peer_down(event.peer, event.reason, [this, event] {
      tables_.peer_events.push(PeerEvent(event));
      waiting_.notice();
    });
  });
  waiting_.notice();
}

void PeerSessions::message(control::SessionId session, std::span<const std::byte> bytes) {
  const auto info = tables_.peers.find_session(session);
  if (!info) return;
  const auto type = message_type(bytes);
  if (type == MessageType::lookup || type == MessageType::lookup_reply) {
    if (const Status status = listener_->on_message(session, *type, bytes); !status) drop(session, status);
    return;
  }
  // std::function must be copyable, so the bytes are shared.
  auto copy = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
  workers_.owner_of(info->id.slot).post([id = info->id, copy](Worker& worker) {
    if (Peer* peer = worker.peer_of(id)) peer->on_message(*copy);
  });
}

void PeerSessions::connect_done(std::uint64_t token, Result<control::SessionId> session) {
  if (connects_.answer(0, token, std::move(session))) waiting_.notice();
}

void PeerSessions::resolve_done(std::uint64_t token, Result<std::string> address) {
  if (resolves_.answer(0, token, std::move(address))) waiting_.notice();
}

control::Progress PeerSessions::progress() {
  control::Progress progress = workers_.progress();
  if (tables_.options.progress == Progress::caller) progress.queued = false;  // a caller that computes is not frozen
  return progress;
}

void PeerSessions::beat(control::SessionId session, std::uint64_t steps, Time now) {
  const auto info = tables_.peers.find_session(session);
  if (!info) return;
  workers_.owner_of(info->id.slot).post([id = info->id, steps, now](Worker& worker) {
    if (Peer* peer = worker.peer_of(id)) peer->on_beat(steps, now);
  });
}

}  // namespace fairway::engine
