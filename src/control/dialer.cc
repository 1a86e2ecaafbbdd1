#include "control/dialer.h"

#include <algorithm>

#include <fmt/format.h>

namespace fairway::control {
namespace {

constexpr Time kFirstRetry = 5 * kMillisecond;
constexpr Time kLastRetry = 500 * kMillisecond;
constexpr Time kFirstResumeRetry = 100 * kMicrosecond;  // an exiting process closes its sockets one by one
constexpr Time kFirstFlapRetry = kMillisecond;          // for a connection that broke soon after it was made
constexpr Time kLastResumeRetry = 100 * kMillisecond;

Time backoff(Time first, Time last, std::uint32_t failures) {
  return failures >= 16 ? last : std::min(last, first << failures);
}

// Errors that a retry cannot change.
bool is_final(ErrorCode code) {
  return code == ErrorCode::authentication_failed || code == ErrorCode::version_mismatch ||
         code == ErrorCode::invalid_argument || code == ErrorCode::protocol_error;
}

Status not_reached(const std::string& address, const Status& last, std::uint32_t tries) {
  if (last.is_ok() || last.code() == ErrorCode::timed_out)
    return {ErrorCode::timed_out, fmt::format("no answer from {} in time", address)};
  const ErrorCode code =
      last.code() == ErrorCode::resource_exhausted ? ErrorCode::resource_exhausted : ErrorCode::unreachable;
  return {code, fmt::format("cannot reach {} in {} tries: {}", address, tries, last.message())};
}

}  // namespace

void Dialer::connect(const std::string& address, std::uint64_t token, Time deadline, Time now) {
  // A session whose connection is broken may belong to a dead incarnation; dialing finds out.
  Session* session = sessions_.find_address(address);
  if (session && (session->connected() || session->with_self()))
    return context_.observer.connect_done(token, session->id());
  std::size_t waiting = 0;
  for (const auto& dial : dials_) waiting += dial->waiters.size();
  if (waiting >= kMaxWaiting)
    return context_.observer.connect_done(
        token, Status(ErrorCode::queue_full, fmt::format("{} calls of connect() are pending already", waiting)));
  const auto same_address = [&](const auto& dial) {
    return dial->resumes == 0 && dial->address == address && !dial->done;
  };
  if (auto found = std::find_if(dials_.begin(), dials_.end(), same_address); found != dials_.end()) {
    (*found)->waiters.push_back({token, deadline});
    return;
  }
  auto dial = std::make_unique<Dial>();
  dial->address = address;
  dial->waiters.push_back({token, deadline});
  dial->retry_at = now;
  dials_.push_back(std::move(dial));
}

void Dialer::cancel_all(const Status& reason) {
  for (auto& dial : dials_)
    if (!dial->done) finish(*dial, reason);
  dials_.clear();
}

bool Dialer::wins_simultaneous_open(const Identity& peer) const {
  if (context_.incarnation > peer.incarnation) return false;
  return std::any_of(dials_.begin(), dials_.end(), [&](const auto& dial) {
    return !dial->done && dial->connection && dial->peer && dial->peer->incarnation == peer.incarnation &&
           dial->peer->name == peer.name && (dial->resumes != 0) == (peer.intent == Intent::resume);
  });
}

bool Dialer::has_proposed(const Identity& peer) const {
  return std::any_of(dials_.begin(), dials_.end(), [&](const auto& dial) {
    return !dial->done && dial->resumes == 0 && dial->wire_id == peer.session && dial->proposed_to == peer.incarnation;
  });
}

// A session that came up completes the waiters for its address. A session whose connection broke is redialed at once.
void Dialer::note_sessions(Time now) {
  for (const SessionId id : sessions_.take_opened()) {
    const Session* session = sessions_.find(id);
    if (!session) continue;
    for (auto& dial : dials_) {
      const bool same_peer = dial->address == session->peer().address ||
                             (dial->peer && dial->peer->incarnation == session->peer().incarnation &&
                              dial->peer->name == session->peer().name);
      if (dial->resumes == 0 && !dial->done && same_peer) finish(*dial, id);
    }
  }
  for (const SessionId id : sessions_.take_broken()) {
    const Session* session = sessions_.find(id);
    if (!session || session->connected() || !session->dialable) continue;
    auto dial = std::make_unique<Dial>();
    dial->address = session->peer().address;
    dial->resumes = id;
    dial->retry_at = session->flaps() == 0
                         ? now
                         : after(now, context_.jittered(backoff(kFirstFlapRetry, kLastResumeRetry, session->flaps())));
    dials_.push_back(std::move(dial));
  }
}

void Dialer::drop_obsolete() {
  connecting_ = resuming_ = 0;
  std::erase_if(dials_, [&](const auto& dial) {
    if (dial->resumes != 0 && !dial->done) {
      const Session* session = sessions_.find(dial->resumes);
      dial->done = !session || session->connected();
    }
    if (dial->connection && !dial->done) ++(dial->resumes != 0 ? resuming_ : connecting_);
    return dial->done;
  });
}

Time Dialer::step(Time now) {
  note_sessions(now);
  drop_obsolete();
  for (std::size_t i = 0; i < dials_.size(); ++i) {
    Dial& dial = *dials_[i];
    if (dial.resumes == 0) expire_waiters(dial, now);
    if (!dial.done && !dial.connection && now >= dial.retry_at && may_start(dial)) start(dial, now);
    if (!dial.done && dial.connection) advance(dial, now);
  }
  note_sessions(now);
  const std::size_t before = connecting_ + resuming_;
  drop_obsolete();
  Time next = connecting_ + resuming_ < before ? now : kNever;  // a slot became free for a dial that was skipped
  for (const auto& dial : dials_) next = std::min(next, wake_time(*dial, now));
  return next;
}

Time Dialer::wake_time(const Dial& dial, Time now) const {
  Time next = kNever;
  for (const Waiter& waiter : dial.waiters) next = std::min(next, waiter.deadline);
  if (dial.connection) return std::min({next, dial.attempt_ends, dial.connection->has_unread() ? now : kNever});
  return may_start(dial) ? std::min(next, dial.retry_at) : next;
}

void Dialer::expire_waiters(Dial& dial, Time now) {
  std::erase_if(dial.waiters, [&](const Waiter& waiter) {
    if (now < waiter.deadline) return false;
    context_.observer.connect_done(waiter.token, not_reached(dial.address, dial.last_error, dial.failures));
    return true;
  });
  if (dial.waiters.empty()) finish(dial, Status(ErrorCode::cancelled, "nobody waits for this connection any more"));
}

bool Dialer::may_start(const Dial& dial) const {
  return dial.resumes != 0 ? resuming_ < kMaxResumes : connecting_ < kMaxConnects;
}

void Dialer::start(Dial& dial, Time now) {
  auto channel = context_.runtime.network.dial(dial.address, *context_.task);
  if (!channel) return attempt_failed(dial, channel.status(), now);
  dial.connection = std::make_unique<Connection>(context_.wire, std::move(channel).value(), Role::dialer);
  dial.attempt_ends = after(now, kHandshakeTimeout);
  ++(dial.resumes != 0 ? resuming_ : connecting_);
}

void Dialer::advance(Dial& dial, Time now) {
  dial.connection->pump();
  while (dial.connection && !dial.done) {
    const auto frame = dial.connection->next();
    if (!frame) break;
    on_frame(dial, *frame, now);
  }
  if (dial.done || !dial.connection) return;
  if (!dial.connection->failure()) {
    attempt_failed(dial, dial.connection->failure(), now);
  } else if (now >= dial.attempt_ends) {
    attempt_failed(dial, {ErrorCode::timed_out, "the connection was accepted, but the peer does not answer"}, now);
  }
}

void Dialer::on_frame(Dial& dial, const Frame& frame, Time now) {
  const auto handle = [&](auto parsed, auto&& then) {
    if (!parsed) return attempt_failed(dial, parsed.status(), now);
    then(parsed.value());
  };
  if (frame.type == FrameType::identity && !dial.peer)
    return handle(Identity::read(frame.body), [&](const Identity& peer) { on_identity(dial, peer, now); });
  if (frame.type == FrameType::accept && dial.peer)
    return handle(Accept::read(frame.body), [&](const Accept& accept) { on_accept(dial, accept, now); });
  if (frame.type == FrameType::refuse)
    return handle(Refuse::read(frame.body), [&](const Refuse& refuse) { on_refuse(dial, refuse, now); });
  attempt_failed(dial, {ErrorCode::protocol_error, "the peer sent an unexpected frame"}, now);
}

void Dialer::on_identity(Dial& dial, const Identity& peer, Time now) {
  if (peer.intent != Intent::none)
    return attempt_failed(dial, {ErrorCode::protocol_error, "the peer's identity frame has the wrong role"}, now);
  if (dial.resumes != 0) {
    Session* session = sessions_.find(dial.resumes);
    if (!session || session->connected()) return finish(dial, Status(ErrorCode::cancelled, "not needed any more"));
    if (!same_incarnation(session->peer(), peer)) {
      sessions_.down(*session, {ErrorCode::stale_incarnation, "it restarted: another engine answers at its address"},
                     std::nullopt, now);
      return finish(dial, Status(ErrorCode::stale_incarnation, "another engine answers"));
    }
    dial.peer = peer;
    dial.connection->put(context_.identity(Intent::resume, session->wire_id(), session->received()));
    return dial.connection->flush();
  }
  if (Session* session = sessions_.find_incarnation(peer)) return finish(dial, session->id());
  if (sessions_.full())
    return finish(dial, Status(ErrorCode::resource_exhausted,
                               fmt::format("{} peers are connected, which is EngineOptions::max_peers",
                                           context_.options.max_peers)));
  if (context_.is_self(peer)) return finish(dial, sessions_.open_self(now).id());
  sessions_.end_replaced(peer, reachable_address(peer.address, dial.connection->peer_address()), now);
  dial.peer = peer;
  // Every attempt proposes the same id: if the answer to an earlier attempt was lost, the peer already has that
  // session.
  if (dial.proposed_to != peer.incarnation) dial.wire_id = context_.random_id();
  dial.proposed_to = peer.incarnation;
  dial.connection->put(context_.identity(Intent::connect, dial.wire_id));
  dial.connection->flush();
}

void Dialer::on_accept(Dial& dial, const Accept& accept, Time now) {
  if (dial.resumes != 0) {
    Session* session = sessions_.find(dial.resumes);
    if (session && !session->connected() && accept.session == session->wire_id())
      sessions_.resume(*session, std::move(dial.connection), accept.received, accept.stamp, now);
    return finish(dial, Status(ErrorCode::cancelled, "not needed any more"));
  }
  if (accept.session != dial.wire_id || accept.received != 0)
    return attempt_failed(dial, {ErrorCode::protocol_error, "the peer accepted another session than the one proposed"},
                          now);
  const Session& session =
      sessions_.open(std::move(dial.connection), *dial.peer, dial.wire_id, true, accept.stamp, dial.address, now);
  finish(dial, session.id());
}

void Dialer::on_refuse(Dial& dial, const Refuse& refuse, Time now) {
  switch (refuse.reason) {
    case Reason::stale:
      if (Session* session = sessions_.find(dial.resumes); session && !session->connected())
        sessions_.down(*session, {ErrorCode::stale_incarnation, refuse.text}, std::nullopt, now);
      return finish(dial, Status(ErrorCode::stale_incarnation, refuse.text));
    case Reason::full: return finish(dial, Status(ErrorCode::resource_exhausted, "the peer: " + refuse.text));
    case Reason::crossed:
    case Reason::closed: break;
    default: return finish(dial, Status(ErrorCode::protocol_error, "the peer: " + refuse.text));
  }
  attempt_failed(dial, {ErrorCode::link_failed, refuse.text}, now);
}

void Dialer::attempt_failed(Dial& dial, Status why, Time now) {
  if (dial.connection) --(dial.resumes != 0 ? resuming_ : connecting_);
  dial.connection.reset();
  dial.peer.reset();
  dial.last_error = std::move(why);
  if (dial.resumes != 0) {
    // Connection refused: the host is up and nobody listens, so the process has ended.
    if (dial.last_error.code() == ErrorCode::unreachable) {
      if (Session* session = sessions_.find(dial.resumes); session && !session->connected())
        sessions_.down(*session, {ErrorCode::peer_dead, "its process ended: " + dial.last_error.message()},
                       std::nullopt, now);
      return finish(dial, dial.last_error);
    }
    dial.retry_at = after(now, context_.jittered(backoff(kFirstResumeRetry, kLastResumeRetry, dial.failures++)));
    return;
  }
  if (is_final(dial.last_error.code())) return finish(dial, dial.last_error);
  dial.retry_at = after(now, context_.jittered(backoff(kFirstRetry, kLastRetry, dial.failures++)));
}

// Completes the dial, with or without success. Closes the connection unless a session took it.
void Dialer::finish(Dial& dial, const Result<SessionId>& result) {
  dial.done = true;
  dial.connection.reset();
  for (const Waiter& waiter : std::exchange(dial.waiters, {})) context_.observer.connect_done(waiter.token, result);
}

}  // namespace fairway::control
