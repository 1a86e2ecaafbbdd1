#include <algorithm>
#include <utility>

#include "transport/host/transport.h"

// Connecting and reconnecting links, disconnecting peers. The initiator sends hello through control, the acceptor
// offers a local socket, and the initiator connects to it and sends the segment's descriptor (dial.cc).
namespace fairway::transport::host {
namespace {

constexpr Time kFlap = kMillisecond;                  // a link that breaks sooner counts as a flap
constexpr Time kConnectingPoll = 200 * kMicrosecond;  // how often to poll sockets while a link is being connected
constexpr Time kIdlePoll = kMillisecond;              // and otherwise, to notice the end of a peer
constexpr Time kLastTouch = 100 * kMillisecond;       // of a peer that is left
constexpr Time kCopyLook = 20 * kMicrosecond;         // between looks at a device's copies when closing

}  // namespace

Status HostTransport::connect(PeerIndex index, Role role) {
  if (closed_ || task_ == nullptr) return {ErrorCode::closed, "the transport is closed"};
  if (!options_.links)
    return {ErrorCode::unsupported, name() + ": copies only within this process and has no links to peers"};
  const auto [at, fresh] = peers_.try_emplace(index);
  if (!fresh) return {ErrorCode::already_exists, "the peer is connected, or not forgotten yet"};
  at->second.role = role;
  if (role == Role::initiator) send_handshake(index, Handshake());
  return {};
}

void HostTransport::offer(PeerIndex index, Peer& peer) {
  if (Status status = pending_.listen(*task_); !status) return fail_peer(index, peer, status, true);
  runtime_.rng.fill(peer.dialer);
  runtime_.rng.fill(peer.listener);
  peer.socket = pending_.name();
  make_link(index, peer);
  Handshake message;
  message.kind = Handshake::Kind::offer;
  message.socket = peer.socket;
  message.dialer = peer.dialer;
  message.listener = peer.listener;
  send_handshake(index, message);
}

void HostTransport::exchange(PeerIndex index, std::span<const std::byte> bytes) {
  const auto found = peers_.find(index);
  if (closed_ || found == peers_.end() || found->second.failed) return;
  Peer& peer = found->second;
  const Result<Handshake> message = decode_handshake(bytes);
  if (!message) return fail_peer(index, peer, message.status(), true);
  if (message->kind == Handshake::Kind::refused)
    return fail_peer(index, peer, {ErrorCode::unreachable, message->reason}, false);
  const bool to_acceptor = message->kind == Handshake::Kind::hello;
  if (to_acceptor != (peer.role == Role::acceptor) || peer.slot != kNoSlot)
    return fail_peer(index, peer, {ErrorCode::protocol_error, name() + " handshake: unexpected message"}, true);
  if (to_acceptor) return offer(index, peer);
  peer.socket = message->socket;
  peer.dialer = message->dialer;
  peer.listener = message->listener;
  make_link(index, peer);
  dial(links_[peer.slot]);
}

void HostTransport::make_link(PeerIndex index, Peer& peer) {
  const auto free =
      std::find_if(links_.begin(), links_.end(), [](const Link& link) { return link.state == LinkState::free; });
  const auto slot = static_cast<std::uint32_t>(free - links_.begin());
  if (slot == links_.size()) links_.emplace_back().id.slot = slot;
  Link& link = links_[slot];
  link.state = LinkState::waiting;
  link.peer = index;
  link.attempt = link.flaps = 0;
  link.welcome_at = 0;
  peer.slot = slot;
}

void HostTransport::make_lane(Link& link, std::shared_ptr<Pair> pair) {
  const LinkId id{link.id.slot, link.id.epoch + 1};
  link.lane =
      std::make_unique<Lane>(std::move(pair), id, link.peer, regions_, imports_, events_, counters_, mover_.get());
  up_.push_back(id.slot);
}

void HostTransport::link_is_up(Link& link) {
  ++link.id.epoch;
  link.state = LinkState::up;
  link.deadline = kNever;
  link.up_since = runtime_.clock.now();
  link.stuck_reported = false;
  if (mover_ && mover_->keeps_awake()) wake_links_at_ = kPollAgain;
  peers_[link.peer].was_up = true;
  Event& event = events_.add(EventKind::link_up);
  event.link = link.id;
  event.peer = link.peer;
  event.value = link.attempt;
  forget_ended(link);
  peers_[link.peer].asked = 0;
  for (const auto& file : peers_[link.peer].files) file->asked = false;
  ask_next(link);
}

// The peer's end of that epoch was up, so if it was welcomed here the peer has joined.
bool HostTransport::forgo(PeerIndex index, std::uint64_t name) {
  const auto found = peers_.find(index);
  if (found == peers_.end() || found->second.slot == kNoSlot) return true;
  Link& link = links_[found->second.slot];
  if (name != link.attempt) return true;
  if (link.state == LinkState::welcomed) abandon(link, {ErrorCode::link_failed, "the peer closed its end"});
  return link.state != LinkState::up && link.state != LinkState::down;
}

void HostTransport::reconnect(LinkId id) {
  Link* link = find(id);
  if (link == nullptr || link->state != LinkState::fenced || closed_) return;
  const Peer& peer = peers_[link->peer];
  if (peer.failed) return;
  if (peer.role == Role::initiator) return dial(*link);
  link->state = LinkState::waiting;
  const Time now = runtime_.clock.now();
  if (now < after(link->up_since, kFlap)) {
    count_flap(*link);
  } else {
    link->flaps = 0;
    link->welcome_at = now;
  }
  take_join_request(*link, now);
}

void HostTransport::poll_connections(Time now) {
  timer_ = kNever;
  if (pending_.listening()) {
    pending_.poll(now, [&](JoinRequest request) { on_join_request(std::move(request), now); });
    counters_.system_calls.fetch_add(1, std::memory_order_relaxed);
    timer_ = pending_.next();
  }
  connections_at_ = after(now, pending_.any() ? kConnectingPoll : kIdlePoll);
  for (std::size_t i = 0; i < links_.size(); ++i) {  // by index: a failed dial may change links_
    poll_connection(links_[i], now);
    timer_ = std::min(timer_, links_[i].deadline);
  }
  forget_retired();
}

void HostTransport::poll_connection(Link& link, Time now) {
  if (link.state == LinkState::waiting && link.join_request) take_join_request(link, now);
  if (link.state == LinkState::welcomed) check_joined(link, now);
  if (link.state == LinkState::up && !link.lane->broken()) {
    read_notes(link);
    Pair& pair = *link.lane->pair();
    if (!pair.gone && pair.process && pair.process.ended()) {
      pair.gone = true;
      link.lane->fail({ErrorCode::link_failed, name() + ": the peer's process has ended"});
    }
  } else if (link.state == LinkState::down || link.state == LinkState::fencing || link.state == LinkState::leaving) {
    Pair& pair = *link.lane->pair();
    if (!pair.gone && pair.process && pair.process.ended()) {
      pair.gone = true;
      if (task_ != nullptr) task_->unwatch(pair.process.fd());
    }
  } else if (link.state == LinkState::dialing && link.dialed) {
    connections_at_ = after(now, kConnectingPoll);
    if (link.dialed->socket) return receive_welcome(link, now);
    ask_to_join(link, now);
    if (link.dialed && !link.dialed->socket)
      timer_ = std::min(timer_, connections_at_);  // nothing announces room in the socket's queue
  }
}

void HostTransport::send_handshake(PeerIndex index, const Handshake& message) {
  events_.add(EventKind::exchange, {}, encode(message)).peer = index;
}

void HostTransport::fail_peer(PeerIndex index, Peer& peer, Status status, bool tell) {
  if (peer.failed) return;
  peer.failed = true;
  if (tell) {
    Handshake refused;
    refused.kind = Handshake::Kind::refused;
    refused.reason = status.message();
    send_handshake(index, refused);
  }
  if (peer.slot != kNoSlot) {
    Link& link = links_[peer.slot];
    if (link.state == LinkState::welcomed) abandon(link, status);
    if (link.state == LinkState::up) return link.lane->fail(status);
    if (link.state == LinkState::dialing) {
      if (link.dialed) unwatch(*link.dialed);
      link.dialed.reset();
      link.state = LinkState::fenced;
      link.deadline = kNever;
    }
  }
  events_.no_link(index, std::move(status));
}

void HostTransport::unwatch(const Pair& pair) {
  if (task_ == nullptr) return;
  if (pair.socket) task_->unwatch(pair.socket.fd());
  if (pair.process) task_->unwatch(pair.process.fd());
}

void HostTransport::disconnect(PeerIndex index) {
  const auto found = peers_.find(index);
  if (found == peers_.end()) return;
  if (found->second.slot != kNoSlot) {
    Link& link = links_[found->second.slot];
    if (link.dialed) unwatch(*link.dialed);
    link.dialed.reset();
    link.join_request.reset();
    link.out = {};
    link.deadline = kNever;
    if (link.lane) {
      link.lane->fence();
      end_views(*link.lane->pair(), {ErrorCode::peer_dead, "the peer was disconnected"});
      unwatch(*link.lane->pair());
      link.was_up = link.state != LinkState::welcomed;
      link.state = LinkState::leaving;
      link.fencing_since = runtime_.clock.now();
      leave(link);
    } else {
      link.state = LinkState::free;
    }
  }
  imports_.release_all(index);
  peers_.erase(found);
}

bool HostTransport::leaves(PeerIndex peer) const {
  return std::any_of(up_.begin(), up_.end(), [&](std::uint32_t slot) {
    return links_[slot].peer == peer && links_[slot].state == LinkState::leaving;
  });
}

// Until no device copies for a link any more. Whatever a copy waits for, until then it may touch a region.
void HostTransport::await_copies() {
  std::atomic<std::uint32_t> nothing{0};
  for (;;) {
    for (std::size_t i = up_.size(); i > 0; --i)
      if (Link& link = links_[up_[i - 1]]; link.state == LinkState::leaving) leave(link);
    if (up_.empty()) return;
    runtime_.executor.wait(nothing, 0, after(runtime_.clock.now(), kCopyLook));
  }
}

// Its slices end after the copies that a device has queued for them, which may wait for a user's event. What the peer
// has written is delivered, since it counts as arrived there; a touch is short, unless the peer is stopped in it.
void HostTransport::leave(Link& link) {
  if (!link.lane->copied()) return;
  if (link.was_up && link.lane->in_touch()) {
    const Time now = runtime_.clock.now();
    if (now < after(link.fencing_since, kLastTouch)) {
      timer_ = std::min(timer_, next_touch_check(link.fencing_since, now));
      return;
    }
  }
  if (link.was_up) link.lane->take_rest();
  link.lane->close();
  keep_while_touched(link.peer, link.lane->pair());
  if (link.was_up) events_.fenced(link.id, link.lane->immediates());
  link.lane.reset();
  std::erase(up_, link.id.slot);
  link.state = LinkState::free;
}

}  // namespace fairway::transport::host
