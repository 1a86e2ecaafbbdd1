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
  if (!options_.links && !closed_)
    return {ErrorCode::unsupported, name() + ": copies only within this process and has no links to peers"};
  return LinkedTransport::connect(index, role);
}

void HostTransport::offer(PeerIndex index, Peer& peer) {
  if (Status status = join_socket_.listen(*task_); !status) return fail_peer(index, peer, status, true);
  runtime_.rng.fill(peer.dialer);
  runtime_.rng.fill(peer.listener);
  peer.socket = join_socket_.name();
  make_link(index, 0, LinkState::waiting);
  Handshake message;
  message.kind = Handshake::Kind::offer;
  message.socket = peer.socket;
  message.dialer = peer.dialer;
  message.listener = peer.listener;
  send(index, encode(message));
}

void HostTransport::exchange(PeerIndex index, std::span<const std::byte> bytes) {
  Peer* const found = listens_to(index);
  if (found == nullptr) return;
  Peer& peer = *found;
  const Result<Handshake> message = decode_handshake(bytes);
  if (!message) return fail_peer(index, peer, message.status(), true);
  if (message->kind == Handshake::Kind::refused)
    return fail_peer(index, peer, {ErrorCode::unreachable, message->reason}, false);
  const bool to_acceptor = message->kind == Handshake::Kind::hello;
  if (to_acceptor != (peer.role == Role::acceptor) || peer.slots[0] != kNoSlot)
    return fail_peer(index, peer, {ErrorCode::protocol_error, name() + " handshake: unexpected message"}, true);
  if (to_acceptor) return offer(index, peer);
  peer.socket = message->socket;
  peer.dialer = message->dialer;
  peer.listener = message->listener;
  make_link(index, 0, LinkState::waiting);
  dial(links_[peer.slots[0]]);
}

void HostTransport::make_lane(Link& link, std::shared_ptr<Pair> pair) {
  link.lane = std::make_unique<Lane>(std::move(pair), link.next_id(), link.peer, regions_, imports_, inbox_, counters_,
                                     mover_.get());
  up_.push_back(link.id.slot);
}

void HostTransport::link_is_up(Link& link) {
  link.deadline = kNever;
  link.up_since = runtime_.clock.now();
  link.stuck_reported = false;
  if (mover_ && mover_->keeps_awake()) wake_links_at_ = kPollAgain;
  announce(link, link.attempt);
  forget_ended(link);
  peers_[link.peer].asked = 0;
  for (const auto& file : peers_[link.peer].files) file->asked = false;
  ask_next(link);
}

// The peer's end of that epoch was up, so if it was welcomed here the peer has joined.
bool HostTransport::forgo(PeerIndex index, std::uint64_t name) {
  const auto found = peers_.find(index);
  if (found == peers_.end() || found->second.slots[0] == kNoSlot) return true;
  Link& link = links_[found->second.slots[0]];
  if (name != link.attempt) return true;
  if (link.state == LinkState::welcomed) abandon(link, {ErrorCode::link_failed, "the peer closed its end"});
  return link.state != LinkState::up && link.state != LinkState::down;
}

void HostTransport::try_again(Link& link, Role role) {
  if (role == Role::initiator) return dial(link);
  link.state = LinkState::waiting;
  const Time now = runtime_.clock.now();
  if (now < after(link.up_since, kFlap)) {
    count_flap(link);
  } else {
    link.flaps = 0;
    link.welcome_at = now;
  }
  take_join_request(link, now);
}

void HostTransport::poll_connections(Time now) {
  timer_ = kNever;
  if (join_socket_.listening()) {
    join_socket_.poll(now, [&](JoinRequest request) { on_join_request(std::move(request), now); });
    counters_.system_calls.fetch_add(1, std::memory_order_relaxed);
    timer_ = join_socket_.next();
  }
  connections_at_ = after(now, join_socket_.any() ? kConnectingPoll : kIdlePoll);
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

std::vector<std::byte> HostTransport::refusal(const Status& why) {
  Handshake refused;
  refused.kind = Handshake::Kind::refused;
  refused.reason = why.message();
  return encode(refused);
}

void HostTransport::give_up(Link& link, const Status& why) {
  if (link.state == LinkState::welcomed) abandon(link, why);
  if (link.state == LinkState::up) return link.lane->fail(why);
  if (link.state != LinkState::dialing) return;
  if (link.dialed) unwatch(*link.dialed);
  link.dialed.reset();
  link.state = LinkState::fenced;
  link.deadline = kNever;
}

void HostTransport::unwatch(const Pair& pair) {
  if (task_ == nullptr) return;
  if (pair.socket) task_->unwatch(pair.socket.fd());
  if (pair.process) task_->unwatch(pair.process.fd());
}

void HostTransport::leave(Link& link) {
  if (link.dialed) unwatch(*link.dialed);
  link.dialed.reset();
  link.join_request.reset();
  link.out = {};
  link.deadline = kNever;
  if (!link.lane) {
    link.state = LinkState::free;
    return;
  }
  link.lane->fence();
  end_views(*link.lane->pair(), {ErrorCode::peer_dead, "the peer was disconnected"});
  unwatch(*link.lane->pair());
  link.was_up = link.state != LinkState::welcomed;
  link.state = LinkState::leaving;
  link.fencing_since = runtime_.clock.now();
  finish_leaving(link);
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
      if (Link& link = links_[up_[i - 1]]; link.state == LinkState::leaving) finish_leaving(link);
    if (up_.empty()) return;
    runtime_.executor.wait(nothing, 0, after(runtime_.clock.now(), kCopyLook));
  }
}

// Its slices end after the copies that a device has queued for them, which may wait for a user's event. What the peer
// has written is delivered, since it counts as arrived there; a touch is short, unless the peer is stopped in it.
void HostTransport::finish_leaving(Link& link) {
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
  if (link.was_up) inbox_.fenced(link.id, link.lane->immediates());
  link.lane.reset();
  std::erase(up_, link.id.slot);
  link.state = LinkState::free;
}

}  // namespace fairway::transport::host
