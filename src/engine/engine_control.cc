#include "engine/control_message.h"
#include "engine/state.h"

// What control tells the engine, on control's thread: sessions become peers of a worker, their messages go to it in
// order.
namespace fairway {

using engine::MessageType;

void Engine::State::session_up(control::SessionId session, const control::PeerInfo& peer) {
  if (peer.incarnation == control_now().incarnation())
    return control_now().disconnect(session);  // itself: see connect()
  const auto id = peers.add(session, peer);
  if (!id) {
    {
      std::lock_guard lock(mutex);
      if (turned_away.size() == kMaxTurnedAway) turned_away.erase(turned_away.begin());
      turned_away[session] = id.status();
    }
    return control_now().disconnect(session);
  }
  consumed[id->slot].store(std::uint64_t{id->generation} << 32, std::memory_order_relaxed);
  peer_events.push(
      {PeerEvent::Kind::up, *id, peer.name.empty() ? peer.address : peer.name, {}, peer.incarnation, {}, {}});
  worker_of(id->slot).post([id = *id, session, peer](engine::Worker& worker) { worker.add_peer(id, session, peer); });
  notice();
}

// The control that open_control() is about to return may already speak on its own thread.
control::Control& Engine::State::control_now() {
  for (std::uint32_t seen = notices.load(); control_.load(std::memory_order_acquire) == nullptr; seen = notices.load())
    runtime.executor.wait(notices, seen, after(runtime.clock.now(), kMillisecond));
  return *control_.load(std::memory_order_acquire);
}

void Engine::State::tell(control::SessionId session, const std::vector<std::byte>& bytes) {
  const Status sent = control_now().send(session, bytes);  // to a session that is down: session_down() tells
  if (sent.code() == ErrorCode::queue_full || sent.code() == ErrorCode::invalid_argument)
    drop(session, sent.with_context("the engine's own messages cannot reach the peer"));
}

void Engine::State::drop(control::SessionId session, const Status& reason) {
  session_down(session, reason);
  control_now().disconnect(session, reason.with_context("the peer ended the session and says"));
}

void Engine::State::session_down(control::SessionId session, const Status& given) {
  const auto info = peers.find_session(session);
  if (!info) return;
  const std::string name = info->peer.name.empty() ? info->peer.address : info->peer.name;
  const Status reason = closed() ? Status(ErrorCode::cancelled, "this engine is closing") : given;
  const Status why = closed() ? Status(ErrorCode::cancelled, "the engine is closing") : reason;
  const Status named = why.peer().empty() ? why.with_peer(name) : why;
  if (!peers.set_down(info->id, named)) return;
  {
    std::lock_guard lock(mutex);
    std::erase_if(asked, [&](const Asked& ask) { return ask.session == session; });
    for (auto& [token, call] : pending)
      if (call.session == session && !call.done) call = {true, named, session, {}, {}};
  }
  // The last that is told of a peer: what had arrived by then, its notifications and the ends of transfers to it.
  PeerEvent event{PeerEvent::Kind::down, info->id, name, {}, info->peer.incarnation, named, {}};
  worker_of(info->id.slot).post([this, event = std::move(event)](engine::Worker& worker) {
    worker.peer_down(event.peer, event.reason);
    peer_events.push(PeerEvent(event));
    notice();
  });
  notice();
}

void Engine::State::message(control::SessionId session, std::span<const std::byte> bytes) {
  const auto info = peers.find_session(session);
  if (!info) return;
  const auto type = engine::message_type(bytes);
  if (type == MessageType::lookup) {
    if (const auto lookup = engine::parse_lookup(bytes)) return answer_lookup(session, lookup->token, lookup->name);
    return drop(session, {ErrorCode::protocol_error, "the peer sent a malformed lookup"});
  }
  if (type == MessageType::lookup_reply) {
    const auto reply = engine::parse_lookup_reply(bytes);
    if (!reply) return drop(session, {ErrorCode::protocol_error, "the peer sent a malformed lookup reply"});
    {
      std::lock_guard lock(mutex);
      const auto call = pending.find(reply->token);
      if (call == pending.end() || call->second.session != session) return;  // its caller has given up
      call->second.done = true;
      call->second.description = reply->description;
      const auto code = static_cast<ErrorCode>(reply->code);
      if (code != ErrorCode::ok) call->second.status = {code, "the peer cannot tell: " + std::string(to_string(code))};
    }
    return notice();
  }
  // std::function wants to be copied: the bytes are shared.
  auto copy = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
  worker_of(info->id.slot).post([id = info->id, copy](engine::Worker& worker) {
    if (engine::Peer* peer = worker.peer_of(id)) peer->on_message(*copy);
  });
}

void Engine::State::answer_lookup(control::SessionId session, std::uint64_t token, const std::string& name) {
  RegionId region;
  {
    std::lock_guard lock(mutex);
    const auto found = published.find(name);
    if (found == published.end()) {
      if (asked.size() < kMaxAsked) asked.push_back({session, token, name});  // beyond it the asker's timeout answers
      return;
    }
    region = found->second;
  }
  engine::LookupReply reply{token, 0, {}};
  if (auto description = describe(region))
    reply.description = std::move(description).value();
  else
    reply.code = static_cast<std::uint8_t>(description.status().code());
  tell(session, format(reply));
}

void Engine::State::connect_done(std::uint64_t token, Result<control::SessionId> session) {
  {
    std::lock_guard lock(mutex);
    const auto call = pending.find(token);
    if (call == pending.end()) return;
    call->second.done = true;
    call->second.status = session.status();
    if (session) call->second.session = *session;
  }
  notice();
}

void Engine::State::resolve_done(std::uint64_t token, Result<std::string> address) {
  {
    std::lock_guard lock(mutex);
    const auto call = pending.find(token);
    if (call == pending.end()) return;
    call->second.done = true;
    call->second.status = address.status();
    if (address) call->second.address = *address;
  }
  notice();
}

control::Progress Engine::State::progress() {
  control::Progress sum;
  for (const auto& worker : workers) {
    const control::Progress one = worker->progress();
    sum.queued |= one.queued && options.progress == Progress::threads;  // a caller that computes is not frozen
    sum.steps += one.steps;
  }
  return sum;
}

void Engine::State::beat(control::SessionId session, std::uint64_t steps, Time now) {
  const auto info = peers.find_session(session);
  if (!info) return;
  worker_of(info->id.slot).post([id = info->id, steps, now](engine::Worker& worker) {
    if (engine::Peer* peer = worker.peer_of(id)) peer->on_beat(steps, now);
  });
}

Status Engine::State::with_peer(PeerId id, const std::function<void(engine::Worker&, engine::Peer&)>& command) {
  if (!peers.is_usable(id)) return peers.why_not(id);
  bool found = false;
  worker_of(id.slot).call([&](engine::Worker& worker) {
    if (engine::Peer* peer = worker.peer_of(id)) {
      found = true;
      command(worker, *peer);
    }
  });
  return found ? Status() : peers.why_not(id);
}

}  // namespace fairway
