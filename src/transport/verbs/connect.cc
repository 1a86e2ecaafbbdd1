#include <algorithm>
#include <utility>

#include "transport/verbs/transport.h"

// How lanes are made, come back, and how peers leave. All of it is said through control: the initiator names its ports,
// the acceptor decides which meet, and for each link the initiator opens a queue pair whenever both want it.
namespace fairway::transport::verbs {
namespace {

constexpr Time kOpenWithin = 5 * kSecond;
constexpr Time kFirstPause = 10 * kMillisecond, kLastPause = 200 * kMillisecond;  // between attempts

}  // namespace

Status VerbsTransport::connect(PeerIndex index, Role role) {
  if (closed_ || task_ == nullptr) return {ErrorCode::closed, "the transport is closed"};
  const auto [at, fresh] = peers_.try_emplace(index);
  if (!fresh) return {ErrorCode::already_exists, "verbs: the peer is connected, or not forgotten yet"};
  Peer& peer = at->second;
  peer.role = role;
  if (role == Role::acceptor) return {};
  runtime_.rng.fill(peer.token);
  Handshake hello;
  for (const auto& port : ports_) hello.ports.push_back(port->address());
  say(index, hello);
  return {};
}

void VerbsTransport::exchange(PeerIndex index, std::span<const std::byte> bytes) {
  const auto found = peers_.find(index);
  if (closed_ || found == peers_.end() || found->second.failed) return;
  Peer& peer = found->second;
  const Result<Handshake> message = decode_handshake(bytes);
  if (!message) return fail_peer(index, peer, message.status(), true);
  using Kind = Handshake::Kind;
  const auto out_of_turn = [&] {
    fail_peer(index, peer, {ErrorCode::protocol_error, "verbs handshake: out of turn"}, true);
  };
  const bool acceptor = peer.role == Role::acceptor;
  if (message->kind == Kind::refused)
    return fail_peer(index, peer, {ErrorCode::unreachable, "the peer: " + message->reason}, false);
  if (message->kind == Kind::hello) return acceptor && peer.slots.empty() ? plan(index, peer, *message) : out_of_turn();
  if (message->token != peer.token) return;  // of an earlier session, or of none: it decides nothing
  if (message->kind == Kind::plan)
    return !acceptor && peer.slots.empty() ? accept_plan(index, peer, *message) : out_of_turn();
  if (message->link >= peer.slots.size()) return out_of_turn();
  Link& link = links_[peer.slots[message->link]];
  switch (message->kind) {
    case Kind::open: return acceptor ? hear_open(link, *message) : out_of_turn();
    case Kind::accept: return acceptor ? out_of_turn() : hear_accept(link, *message);
    case Kind::ready:
      if (!acceptor) return out_of_turn();
      if (link.state == LinkState::accepted && link.attempt == message->attempt) link_is_up(link);
      return;
    default: return hear_closed(link, *message);
  }
}

// ---- which ports meet: the acceptor decides ----

void VerbsTransport::plan(PeerIndex index, Peer& peer, const Handshake& hello) {
  peer.token = hello.token;
  std::vector<PortAddress> ours;
  for (const auto& port : ports_) ours.push_back(port->address());
  const auto pairs = pair_ports(ours, hello.ports);
  if (pairs.empty())
    return fail_peer(index, peer,
                     {ErrorCode::unreachable, "verbs: no port of " + text_of(hello.ports.front()) +
                                                  "'s side can reach one of " + text_of(ours.front()) + "'s"},
                     true);
  Handshake message;
  message.kind = Handshake::Kind::plan;
  const std::size_t most = kMaxLinksPerPeer / pairs.size();
  for (const auto& [our, their] : pairs)
    for (std::size_t i = 0;
         i < std::min<std::size_t>(most, std::max(ours[our].queue_pairs, hello.ports[their].queue_pairs)); ++i) {
      message.links.push_back({their, our, ours[our]});
      add_link(index, peer, our, their, hello.ports[their]);
    }
  say(index, message);
}

void VerbsTransport::accept_plan(PeerIndex index, Peer& peer, const Handshake& plan) {
  for (const PlannedLink& each : plan.links)
    if (each.initiator_port >= ports_.size() || each.address.fabric != ports_[each.initiator_port]->address().fabric)
      return fail_peer(index, peer, {ErrorCode::protocol_error, "verbs handshake: a plan for ports that are not"},
                       true);
  for (const PlannedLink& each : plan.links)
    add_link(index, peer, each.initiator_port, each.acceptor_port, each.address);
  for (std::size_t i = 0; i < peer.slots.size() && !peer.failed; ++i) open(links_[peer.slots[i]]);
}

void VerbsTransport::add_link(PeerIndex peer_index, Peer& peer, std::uint8_t port, std::uint8_t peer_port,
                              const PortAddress& address) {
  auto slot = static_cast<std::uint32_t>(
      std::find_if(links_.begin(), links_.end(), [](const Link& link) { return link.state == LinkState::free; }) -
      links_.begin());
  if (slot == links_.size()) links_.emplace_back().id.slot = slot;
  Link& link = links_[slot];
  link.state = peer.role == Role::acceptor ? LinkState::waiting : LinkState::fenced;
  link.peer = peer_index;
  link.index = static_cast<std::uint16_t>(peer.slots.size());
  link.attempt = link.held_attempt = 0;
  link.pause = 0;
  link.port = port;
  link.peer_port = peer_port;
  link.address = address;
  peer.slots.push_back(slot);
}

// ---- one link, whenever it is wanted ----

Status VerbsTransport::make_lane(Link& link) {
  Port& port = *ports_[link.port];
  if (!port.active()) return {ErrorCode::link_failed, "verbs: " + port.device().name + ": the port is not active"};
  std::array<std::byte, 4> chance{};
  runtime_.rng.fill(chance);
  std::uint32_t first_psn = 0;
  for (const std::byte each : chance) first_psn = first_psn << 8 | std::to_integer<std::uint32_t>(each);
  auto lane = Lane::make(port, {link.id.slot, link.id.epoch + 1}, inbox_, first_psn);
  if (!lane) return lane.status();
  link.lane = std::move(*lane);
  return {};
}

void VerbsTransport::open(Link& link) {
  if (link.attempt + 1 >= kMaxAttempts) return;
  ++link.attempt;
  link.again_at = kNever;
  link.state = LinkState::opening;
  if (const Status made = make_lane(link); !made) return open_failed(link, made);
  link.deadline = after(runtime_.clock.now(), kOpenWithin);
  timer_ = std::min(timer_, link.deadline);
  link.initiator_number = link.lane->endpoint().number;
  say(link, Handshake::Kind::open);
}

void VerbsTransport::hear_open(Link& link, const Handshake& message) {
  if (message.attempt <= std::max(link.attempt, link.held_attempt)) return;
  if (link.state == LinkState::waiting || link.state == LinkState::accepted)
    return accept(link, message.endpoint, message.attempt);
  link.held = message.endpoint;  // the peer is done with the last one: reconnect() here takes it
  link.held_attempt = message.attempt;
  if (link.state == LinkState::up) link.lane->fail({ErrorCode::link_failed, "verbs: the peer opens the link anew"});
}

void VerbsTransport::accept(Link& link, const Endpoint& theirs, std::uint32_t attempt) {
  link.attempt = attempt;
  link.held_attempt = 0;
  link.lane.reset();
  link.state = LinkState::accepted;
  link.initiator_number = theirs.number;
  Status status = make_lane(link);
  if (status) status = link.lane->connect(theirs, link.address);
  if (!status) return open_failed(link, status);
  say(link, Handshake::Kind::accept);
}

void VerbsTransport::hear_accept(Link& link, const Handshake& message) {
  if (link.state != LinkState::opening || link.attempt != message.attempt) return;
  if (const Status status = link.lane->connect(message.endpoint, link.address); !status)
    return open_failed(link, status);
  say(link, Handshake::Kind::ready);
  link_is_up(link);
}

void VerbsTransport::link_is_up(Link& link) {
  ++link.id.epoch;
  link.state = LinkState::up;
  link.deadline = kNever;
  link.pause = 0;
  up_.push_back(link.id.slot);
  peers_[link.peer].was_up = true;
  Event& event = inbox_.add(EventKind::link_up);
  event.link = link.id;
  event.peer = link.peer;
  event.device = link.port;
  event.value = std::uint64_t{link.attempt} << 40 | std::uint64_t{link.index} << 24 | link.initiator_number;
}

void VerbsTransport::hear_closed(Link& link, const Handshake& message) {
  if (link.held_attempt == message.attempt) link.held_attempt = 0;
  if (link.attempt != message.attempt) return;
  const Status why(ErrorCode::link_failed, "verbs: the peer closed its end");
  if (link.state == LinkState::up) {
    link.lane->fail(why);
  } else if (link.state == LinkState::accepted) {
    link.lane.reset();
    link.state = LinkState::waiting;  // for the next attempt
  } else if (link.state == LinkState::opening) {
    open_failed(link, why);
  }
}

// The others may still come. Without any, the peer is told why. While there is hope the initiator tries again and
// again: a port that is down says nothing to the peer when it is up again.
void VerbsTransport::open_failed(Link& link, const Status& why) {
  link.lane.reset();
  link.deadline = kNever;
  Peer& peer = peers_[link.peer];
  peer.reason = why.message();
  link.state = peer.role == Role::acceptor ? LinkState::waiting : LinkState::fenced;
  const bool hope = peer.was_up || std::any_of(peer.slots.begin(), peer.slots.end(), [this](std::uint32_t slot) {
                      const Link& other = links_[slot];
                      return other.state == LinkState::opening || other.state == LinkState::accepted ||
                             (other.state != LinkState::free && other.attempt == 0);
                    });
  if (!hope) return fail_peer(link.peer, peer, Status(ErrorCode::unreachable, peer.reason), true);
  say(link, Handshake::Kind::closed);
  if (peer.role == Role::acceptor) return;
  link.pause = std::clamp(2 * link.pause, kFirstPause, kLastPause);
  link.again_at = after(runtime_.clock.now(), link.pause);
  timer_ = std::min(timer_, link.again_at);
}

void VerbsTransport::reconnect(LinkId id) {
  Link* link = find(id);
  if (link == nullptr || link->state != LinkState::fenced || closed_) return;
  const Peer& peer = peers_[link->peer];
  if (peer.failed) return;
  if (peer.role == Role::initiator) return open(*link);
  link->state = LinkState::waiting;
  if (link->held_attempt != 0) accept(*link, link->held, link->held_attempt);
}

void VerbsTransport::look_at_deadlines(Time now) {
  timer_ = kNever;
  for (std::size_t i = 0; i < links_.size(); ++i) {  // by index: one that fails may end its peer
    if (now >= links_[i].deadline)
      open_failed(links_[i], {ErrorCode::timed_out, "verbs: the peer did not answer within 5 s"});
    if (now >= links_[i].again_at) open(links_[i]);
    timer_ = std::min({timer_, links_[i].deadline, links_[i].again_at});
  }
}

// ---- both ----

void VerbsTransport::say(PeerIndex index, const Handshake& message) {
  Handshake said = message;
  said.token = peers_[index].token;
  inbox_.add(EventKind::exchange, {}, encode(said)).peer = index;
}

void VerbsTransport::say(const Link& link, Handshake::Kind kind) {
  Handshake message;
  message.kind = kind;
  message.link = link.index;
  message.attempt = link.attempt;
  if (kind == Handshake::Kind::open || kind == Handshake::Kind::accept) message.endpoint = link.lane->endpoint();
  say(link.peer, message);
}

void VerbsTransport::fail_peer(PeerIndex index, Peer& peer, Status status, bool tell) {
  if (peer.failed) return;
  peer.failed = true;
  if (tell) {
    Handshake refused;
    refused.kind = Handshake::Kind::refused;
    refused.reason = status.message();
    say(index, refused);
  }
  bool a_link_tells = false;
  for (const std::uint32_t slot : peer.slots) {
    Link& link = links_[slot];
    link.deadline = link.again_at = kNever;
    if (link.state == LinkState::up) {
      a_link_tells = true;
      link.lane->fail(status);
    } else if (link.state == LinkState::opening || link.state == LinkState::accepted) {
      link.lane.reset();
      link.state = LinkState::fenced;
    }
  }
  if (a_link_tells) return;
  Event& event = inbox_.add(EventKind::link_down);
  event.peer = index;
  event.status = std::move(status);
}

void VerbsTransport::disconnect(PeerIndex index) {
  const auto found = peers_.find(index);
  if (found == peers_.end()) return;
  for (const std::uint32_t slot : found->second.slots) {
    Link& link = links_[slot];
    if (link.state == LinkState::opening || link.state == LinkState::accepted) say(link, Handshake::Kind::closed);
    fence(link.id);
    link.lane.reset();
    link.state = LinkState::free;
    link.deadline = link.again_at = kNever;
    std::erase(up_, slot);
  }
  imports_.release_all(index);
  peers_.erase(found);
}

}  // namespace fairway::transport::verbs
