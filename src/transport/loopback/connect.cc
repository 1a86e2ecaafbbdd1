#include <algorithm>
#include <array>
#include <string>

#include "transport/loopback/transport.h"

// LoopbackTransport: connecting and reconnecting links, disconnecting peers.
namespace fairway::transport::loopback {

namespace {
constexpr Time kRetry = 5 * kMillisecond;  // while a device cannot make a link

std::vector<std::byte> encoded(const Handshake& message) {
  const auto bytes = encode(message);
  return {bytes.begin(), bytes.end()};
}
}  // namespace

std::vector<std::byte> LoopbackTransport::hello() {
  Handshake hello;
  hello.kind = Handshake::Kind::hello;
  hello.fabric = wire_.fabric();
  hello.devices = static_cast<std::uint16_t>(std::min<std::size_t>(wire_.devices().size(), kMaxLinksPerPeer));
  return encoded(hello);
}

void LoopbackTransport::exchange(PeerIndex index, std::span<const std::byte> bytes) {
  Peer* const found = listens_to(index);
  if (found == nullptr || found->leaving) return;
  Peer& peer = *found;
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
  peer.slots.assign(std::max<std::size_t>(own, hello.devices), kNoSlot);
  for (std::uint16_t i = 0; i < peer.slots.size(); ++i) offer_link(add_link(index, i, LinkState::offering));
}

void LoopbackTransport::accept_offer(PeerIndex index, Peer& peer, const Handshake& offer) {
  if (peer.slots.empty()) peer.slots.assign(offer.links, kNoSlot);
  if (offer.links != peer.slots.size())
    return fail_peer(index, peer, {ErrorCode::protocol_error, "loopback handshake: the number of links changed"}, true);
  if (peer.slots[offer.index] == kNoSlot) add_link(index, offer.index, LinkState::wanted);
  Link& link = links_[peer.slots[offer.index]];
  if (offer.attempt <= std::max(link.attempt, link.held_attempt))
    return fail_peer(index, peer, {ErrorCode::protocol_error, "loopback handshake: an outdated offer"}, true);
  if (link.state == LinkState::wanted) return attach_link(link, offer.offer, offer.attempt);
  link.held_offer = offer.offer;  // the peer has fenced already; reconnect() takes this offer
  link.held_attempt = offer.attempt;
}

void LoopbackTransport::accept_attached(PeerIndex index, Peer& peer, const Handshake& attached) {
  if (attached.index < peer.slots.size()) {
    Link& link = links_[peer.slots[attached.index]];
    if (link.state == LinkState::offered && link.attempt == attached.attempt) return link_is_up(link);
    // Up already, because the peer used it at once, or fenced meanwhile.
    if (attached.attempt <= link.attempt && link.attempt != 0 && link.state != LinkState::free) return;
  }
  fail_peer(index, peer, {ErrorCode::protocol_error, "loopback handshake: attached to a link that was not offered"},
            true);
}

Link& LoopbackTransport::add_link(PeerIndex peer, std::uint16_t index, LinkState state) {
  Link& link = make_link(peer, index, state);
  link.device = static_cast<DeviceIndex>(index % wire_.devices().size());
  return link;
}

// Acceptor: makes the next attempt at a link, now or once its device is ready.
void LoopbackTransport::offer_link(Link& link) {
  link.state = LinkState::offering;
  if (!wire_.ready(link.device)) {
    timer_ = std::min(timer_, after(runtime_.clock.now(), kRetry));
    return;
  }
  Handshake offer;
  offer.kind = Handshake::Kind::offer;
  offer.fabric = wire_.fabric();
  offer.offer = random();
  offer.attempt = ++link.attempt;
  offer.index = link.index;
  offer.links = static_cast<std::uint16_t>(peers_[link.peer].slots.size());
  link.port = wire_.offer(offer.offer, {regions_, doorbell_, link.device, &ready_, link.id.slot});
  link.state = LinkState::offered;
  send(link.peer, encode(offer));
}

void LoopbackTransport::retry_offers(Time now) {
  if (now < timer_) return;
  timer_ = kNever;
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
  send(link.peer, encode(attached));
  link_is_up(link);
}

void LoopbackTransport::link_is_up(Link& link) {
  link.domain_epoch = domain_epochs_[link.device];
  announce(link, link.port->name());
}

std::vector<std::byte> LoopbackTransport::refusal(const Status& why) {
  Handshake refused;
  refused.kind = Handshake::Kind::refused;
  refused.reason = why.code();
  return encoded(refused);
}

void LoopbackTransport::give_up(Link& link, const Status&) {
  if (link.state == LinkState::up) link.port->cut();
  if (link.state == LinkState::offered) link.port->close();
}

void LoopbackTransport::try_again(Link& link, Role role) {
  if (peers_[link.peer].leaving) return;
  if (role == Role::acceptor) return offer_link(link);
  link.state = LinkState::wanted;
  if (link.held_attempt > link.attempt) attach_link(link, link.held_offer, link.held_attempt);
}

void LoopbackTransport::disconnect(PeerIndex index) {
  const auto found = peers_.find(index);
  if (found == peers_.end()) return;
  found->second.leaving = peers_leaving_ = true;
  each_link(found->second, [this](Link& link) { leave(link); });
}

void LoopbackTransport::leave(Link& link) {
  if (link.state == LinkState::up || link.state == LinkState::down) {
    link.state = LinkState::fencing;
    link.port->fence();
  } else if (link.state == LinkState::offered) {
    link.port->close();
  }
}

void LoopbackTransport::forget_gone_peers() {
  peers_leaving_ = false;
  for (auto at = peers_.begin(); at != peers_.end();) {
    bool fencing = false;
    each_link(at->second, [&](const Link& link) { fencing |= link.state == LinkState::fencing; });
    if (!at->second.leaving || fencing) {
      peers_leaving_ = peers_leaving_ || at->second.leaving;
      ++at;
      continue;
    }
    each_link(at->second, [this](Link& link) {
      link.state = LinkState::free;
      if (link.port) retired_.push_back(std::move(link.port));
    });
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
