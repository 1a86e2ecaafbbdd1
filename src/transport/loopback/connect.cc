#include <algorithm>
#include <array>
#include <string>

#include "transport/loopback/transport.h"

// LoopbackTransport: connecting and reconnecting links, disconnecting peers.
namespace fairway::transport::loopback {

namespace {
constexpr Time kRetry = 5 * kMillisecond;  // while a device cannot make a link
}

Status LoopbackTransport::connect(PeerIndex index, Role role) {
  if (closed_) return {ErrorCode::closed, "the transport is closed"};
  const auto [at, fresh] = peers_.try_emplace(index);
  if (!fresh) return {ErrorCode::already_exists, "loopback: the peer is connected, or not forgotten yet"};
  at->second.role = role;
  if (role == Role::initiator) {
    Handshake hello;
    hello.kind = Handshake::Kind::hello;
    hello.fabric = wire_.fabric();
    hello.devices = static_cast<std::uint16_t>(std::min<std::size_t>(wire_.devices().size(), kMaxLinksPerPeer));
    send_handshake(index, hello);
  }
  return {};
}

void LoopbackTransport::exchange(PeerIndex index, std::span<const std::byte> bytes) {
  const auto found = peers_.find(index);
  if (closed_ || found == peers_.end() || found->second.leaving || found->second.failed) return;
  Peer& peer = found->second;
  const Result<Handshake> message = decode_handshake(bytes);
  if (!message) return fail_peer(index, peer, message.status(), true);
  const bool to_acceptor = message->kind == Handshake::Kind::hello || message->kind == Handshake::Kind::attached;
  if (message->kind != Handshake::Kind::refused && to_acceptor != (peer.role == Role::acceptor))
    return fail_peer(index, peer, {ErrorCode::protocol_error, "loopback handshake: unexpected message"}, true);
  switch (message->kind) {
    case Handshake::Kind::hello: return accept_hello(index, peer, *message);
    case Handshake::Kind::offer: return accept_offer(index, peer, *message);
    case Handshake::Kind::attached: return accept_attached(index, peer, *message);
    case Handshake::Kind::refused:
      return fail_peer(index, peer,
                       {message->reason == ErrorCode::ok ? ErrorCode::unreachable : message->reason,
                        "loopback: the peer refused the link"},
                       false);
  }
}

void LoopbackTransport::accept_hello(PeerIndex index, Peer& peer, const Handshake& hello) {
  if (peer.got_hello)
    return fail_peer(index, peer, {ErrorCode::protocol_error, "loopback handshake: a second hello"}, true);
  peer.got_hello = true;
  if (hello.fabric != wire_.fabric())
    return fail_peer(index, peer,
                     {ErrorCode::unreachable, "loopback: the peer does not share this engine's Loopback object"}, true);
  const auto own = std::min<std::size_t>(wire_.devices().size(), kMaxLinksPerPeer);
  peer.links = static_cast<std::uint16_t>(std::max<std::size_t>(own, hello.devices));
  peer.slots.assign(peer.links, kNoSlot);
  for (std::uint16_t i = 0; i < peer.links; ++i) offer_link(make_link(index, peer, i));
}

void LoopbackTransport::accept_offer(PeerIndex index, Peer& peer, const Handshake& offer) {
  if (peer.links == 0) {
    peer.links = offer.links;
    peer.slots.assign(peer.links, kNoSlot);
  }
  if (offer.links != peer.links)
    return fail_peer(index, peer, {ErrorCode::protocol_error, "loopback handshake: the number of links changed"}, true);
  if (peer.slots[offer.index] == kNoSlot) make_link(index, peer, offer.index).state = LinkState::wanted;
  Link& link = links_[peer.slots[offer.index]];
  if (offer.attempt <= std::max(link.attempt, link.held_attempt))
    return fail_peer(index, peer, {ErrorCode::protocol_error, "loopback handshake: an outdated offer"}, true);
  if (link.state == LinkState::wanted) return attach_link(link, offer.offer, offer.attempt);
  link.held_offer = offer.offer;  // the peer has fenced already; reconnect() takes this offer
  link.held_attempt = offer.attempt;
}

void LoopbackTransport::accept_attached(PeerIndex index, Peer& peer, const Handshake& attached) {
  if (attached.index < peer.links) {
    Link& link = links_[peer.slots[attached.index]];
    if (link.state == LinkState::offered && link.attempt == attached.attempt) return link_is_up(link);
    // Up already, because the peer used it at once, or fenced meanwhile.
    if (attached.attempt <= link.attempt && link.attempt != 0 && link.state != LinkState::free) return;
  }
  fail_peer(index, peer, {ErrorCode::protocol_error, "loopback handshake: attached to a link that was not offered"},
            true);
}

LoopbackTransport::Link& LoopbackTransport::make_link(PeerIndex peer_index, Peer& peer, std::uint16_t index) {
  auto slot = static_cast<std::uint32_t>(
      std::find_if(links_.begin(), links_.end(), [](const Link& link) { return link.state == LinkState::free; }) -
      links_.begin());
  if (slot == links_.size()) links_.emplace_back().id.slot = slot;
  Link& link = links_[slot];
  link.state = LinkState::offering;
  link.peer = peer_index;
  link.index = index;
  link.device = static_cast<DeviceIndex>(index % wire_.devices().size());
  link.attempt = link.held_attempt = 0;
  peer.slots[index] = slot;
  return link;
}

// Acceptor: makes the next attempt at a link, now or once its device is ready.
void LoopbackTransport::offer_link(Link& link) {
  link.state = LinkState::offering;
  if (!wire_.ready(link.device)) {
    retry_at_ = std::min(retry_at_, after(runtime_.clock.now(), kRetry));
    return;
  }
  Handshake offer;
  offer.kind = Handshake::Kind::offer;
  offer.fabric = wire_.fabric();
  offer.offer = random();
  offer.attempt = ++link.attempt;
  offer.index = link.index;
  offer.links = peers_[link.peer].links;
  link.port = wire_.offer(offer.offer, {regions_, doorbell_, link.device, &ready_, link.id.slot});
  link.state = LinkState::offered;
  send_handshake(link.peer, offer);
}

void LoopbackTransport::retry_offers(Time now) {
  if (now < retry_at_) return;
  retry_at_ = kNever;
  for (Link& link : links_)
    if (link.state == LinkState::offering) offer_link(link);
}

// Initiator.
void LoopbackTransport::attach_link(Link& link, std::uint64_t offer, std::uint32_t attempt) {
  link.attempt = attempt;
  link.port = wire_.attach(offer, {regions_, doorbell_, link.device, &ready_, link.id.slot});
  if (!link.port)
    return fail_peer(link.peer, peers_[link.peer],
                     {ErrorCode::unreachable, "loopback: the offered link does not exist"}, true);
  Handshake attached;
  attached.kind = Handshake::Kind::attached;
  attached.fabric = wire_.fabric();
  attached.attempt = attempt;
  attached.index = link.index;
  send_handshake(link.peer, attached);
  link_is_up(link);
}

void LoopbackTransport::link_is_up(Link& link) {
  link.state = LinkState::up;
  ++link.id.epoch;
  link.domain_epoch = domain_epochs_[link.device];
  Queued& queued = queued_.emplace_back();
  queued.event.kind = EventKind::link_up;
  queued.event.link = link.id;
  queued.event.peer = link.peer;
  queued.event.device = link.device;
  queued.event.value = link.port->name();
}

void LoopbackTransport::send_handshake(PeerIndex peer, const Handshake& message) {
  Queued& queued = queued_.emplace_back();
  queued.event.kind = EventKind::exchange;
  queued.event.peer = peer;
  const auto bytes = encode(message);
  queued.bytes.assign(bytes.begin(), bytes.end());
}

// Gives the peer up: its links break; if it has none, connect() has failed.
void LoopbackTransport::fail_peer(PeerIndex index, Peer& peer, Status status, bool tell) {
  peer.failed = true;
  if (tell) {
    Handshake refused;
    refused.kind = Handshake::Kind::refused;
    refused.reason = status.code();
    send_handshake(index, refused);
  }
  bool a_link_tells = false;
  for (const std::uint32_t slot : peer.slots) {
    if (slot == kNoSlot) continue;
    Link& link = links_[slot];
    a_link_tells = a_link_tells || link.state == LinkState::up;
    if (link.state == LinkState::up) link.port->cut();
    if (link.state == LinkState::offered) link.port->close();
  }
  if (a_link_tells) return;
  Queued& queued = queued_.emplace_back();
  queued.event.kind = EventKind::link_down;
  queued.event.peer = index;
  queued.event.status = std::move(status);
}

void LoopbackTransport::reconnect(LinkId id) {
  Link* link = find(id);
  if (!link || link->state != LinkState::fenced) return;
  const Peer& peer = peers_[link->peer];
  if (peer.leaving || peer.failed) return;
  if (peer.role == Role::acceptor) return offer_link(*link);
  link->state = LinkState::wanted;
  if (link->held_attempt > link->attempt) attach_link(*link, link->held_offer, link->held_attempt);
}

void LoopbackTransport::disconnect(PeerIndex index) {
  const auto found = peers_.find(index);
  if (found == peers_.end()) return;
  found->second.leaving = peers_leaving_ = true;
  for (const std::uint32_t slot : found->second.slots) {
    if (slot == kNoSlot) continue;
    Link& link = links_[slot];
    if (link.state == LinkState::up || link.state == LinkState::down) {
      link.state = LinkState::fencing;
      link.port->fence();
    } else if (link.state == LinkState::offered) {
      link.port->close();
    }
  }
}

void LoopbackTransport::forget_gone_peers() {
  peers_leaving_ = false;
  for (auto at = peers_.begin(); at != peers_.end();) {
    const auto& slots = at->second.slots;
    const bool fencing = std::any_of(slots.begin(), slots.end(), [this](std::uint32_t slot) {
      return slot != kNoSlot && links_[slot].state == LinkState::fencing;
    });
    if (!at->second.leaving || fencing) {
      peers_leaving_ = peers_leaving_ || at->second.leaving;
      ++at;
      continue;
    }
    for (const std::uint32_t slot : slots) {
      if (slot == kNoSlot) continue;
      Link& link = links_[slot];
      link.state = LinkState::free;
      if (link.port) retired_.push_back(std::move(link.port));
    }
    imports_.release_all(at->first);
    at = peers_.erase(at);
  }
}

std::uint64_t LoopbackTransport::random() {
  std::uint64_t value = 0;
  runtime_.rng.fill(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

}  // namespace fairway::transport::loopback
