#include "control/acceptor.h"

#include <algorithm>

#include <fmt/format.h>

#include "control/directory_server.h"
#include "core/runtime.h"

namespace fairway::control {

Status Acceptor::listen(const std::string& address) {
  auto listener = context_.runtime.network.listen(address, *context_.task);
  if (!listener) return listener.status();
  listener_ = std::move(listener).value();
  Hello no_room;
  no_room.versions = context_.wire.versions;
  no_room.role = Role::listener;
  no_room.keyed = context_.wire.key.set();
  no_room.no_room = true;
  const HelloBytes words = encode(no_room);
  if (auto* rejecting = dynamic_cast<RejectionSender*>(listener_.get()))
    rejecting->set_rejection({words.begin(), words.end()});
  return {};
}

void Acceptor::close() {
  pending_.clear();
  listener_.reset();
}

Time Acceptor::step(Time now) {
  if (listener_ && now >= pending_.paused_until()) accept(now);
  bool unread = false;
  pending_.look(now, [&](Incoming& each, bool late) {
    if (!step(each, late, now)) return true;
    unread |= each.connection->has_unread();
    return false;
  });
  return unread ? now : pending_.next();
}

void Acceptor::accept(Time now) {
  const auto find = [this](Incoming& out) {
    auto channel = listener_->accept(*context_.task);
    if (!channel) {
      context_.observer.refused(listener_->address(), channel.status());
      return Pending::Found::no_descriptor;
    }
    if (!channel.value()) return Pending::Found::none;
    out.connection = std::make_unique<Connection>(context_.wire, std::move(channel).value(), Role::listener);
    return Pending::Found::one;
  };
  pending_.accept(now, find, [](Incoming&) {});
}

// False when this connection is finished here.
bool Acceptor::step(Incoming& incoming, bool late, Time now) {
  Connection& connection = *incoming.connection;
  connection.pump();
  if (connection.is_open() && !incoming.identity_sent) {
    incoming.identity_sent = true;
    connection.put(context_.identity(Intent::none));
    connection.flush();
  }
  if (const auto frame = connection.next()) {
    Result<Identity> peer = Status(ErrorCode::protocol_error, "the first frame is not an identity");
    if (frame->type == FrameType::identity) peer = Identity::read(frame->body);
    if (peer && peer->intent != Intent::none) {
      decide(std::move(incoming.connection), peer.value(), now);
      return false;
    }
    const std::string text = peer ? "an identity without an intent" : peer.status().message();
    context_.observer.refused(connection.peer_address(), {ErrorCode::protocol_error, text});
    refuse(std::move(incoming.connection), Reason::protocol_error, text, now);
    return false;
  }
  if (const Status& failure = connection.failure(); !failure) {
    const ErrorCode code = failure.code();
    if (code != ErrorCode::closed && code != ErrorCode::link_failed)
      context_.observer.refused(connection.peer_address(), failure);
    return false;
  }
  return !late;
}

void Acceptor::refuse(std::unique_ptr<Connection> connection, Reason reason, std::string text, Time now) {
  connection->put(Refuse{reason, std::move(text)});
  context_.closing.add(std::move(connection), now);
}

void Acceptor::decide(std::unique_ptr<Connection> connection, const Identity& peer, Time now) {
  if (context_.is_self(peer))
    return refuse(std::move(connection), Reason::crossed, "an engine connected to itself", now);
  if (peer.intent == Intent::connect) return decide_connect(std::move(connection), peer, now);
  if (peer.intent == Intent::resume) return decide_resume(std::move(connection), peer, now);
  if (!directory_)
    return refuse(std::move(connection), Reason::no_directory,
                  "this engine serves no directory: open it with \"serve\"", now);
  if (directory_->full())
    return refuse(std::move(connection), Reason::full, "too many engines use this directory", now);
  connection->put(Accept{0, 0, context_.next_stamp()});
  connection->flush();
  directory_->add(std::move(connection), now);
}

void Acceptor::decide_connect(std::unique_ptr<Connection> connection, const Identity& peer, Time now) {
  if (Session* session = sessions_.find_incarnation(peer)) {
    // The peer sent this before the proposal that made the current session: this connection was the slower one.
    if (peer.stamp < session->peer_stamp())
      return refuse(std::move(connection), Reason::crossed, "another connection was faster; the session is up", now);
    if (session->wire_id() == peer.session) {
      // A repeated proposal of the accepted session: the acceptance was lost, so the peer has received nothing.
      connection->put(Accept{peer.session, 0, context_.next_stamp()});
      connection->flush();
      return sessions_.resume(*session, std::move(connection), 0, peer.stamp, now);
    }
    // The peer proposed this after it made the session that is still open here, so it has given that one up.
    sessions_.down(*session, {ErrorCode::stale_incarnation, "the peer abandoned this session and connects again"},
                   std::nullopt, now);
  }
  if (dialer_.wins_simultaneous_open(peer))
    return refuse(std::move(connection), Reason::crossed, "both sides connected at once; the other connection is kept",
                  now);
  if (sessions_.full())
    return refuse(
        std::move(connection), Reason::full,
        fmt::format("this engine has {} peers, which is its EngineOptions::max_peers", context_.options.max_peers),
        now);
  sessions_.end_replaced(peer, reachable_address(peer.address, connection->peer_address()), now);
  connection->put(Accept{peer.session, 0, context_.next_stamp()});
  connection->flush();
  sessions_.open(std::move(connection), peer, peer.session, false, peer.stamp, {}, now);
}

void Acceptor::decide_resume(std::unique_ptr<Connection> connection, const Identity& peer, Time now) {
  Session* session = sessions_.find_incarnation(peer);
  if (!session || session->wire_id() != peer.session) {
    // The peer resumes a session that this side proposed, whose acceptance this side has not read yet.
    if (dialer_.has_proposed(peer))
      return refuse(std::move(connection), Reason::crossed, "the session is being set up", now);
    return refuse(std::move(connection), Reason::stale,
                  "stale incarnation: this engine ended that session (it had declared the peer dead, or was told to)",
                  now);
  }
  if (peer.stamp < session->peer_stamp() || dialer_.wins_simultaneous_open(peer))
    return refuse(std::move(connection), Reason::crossed,
                  "both sides reconnected at once; the other connection is kept", now);
  connection->put(Accept{session->wire_id(), session->received(), context_.next_stamp()});
  connection->flush();
  sessions_.resume(*session, std::move(connection), peer.received, peer.stamp, now);
}

}  // namespace fairway::control
