#include "transport/planned_links.h"

#include <algorithm>
#include <utility>

namespace fairway::transport {
namespace {

constexpr Time kOpenWithin = 5 * kSecond;
constexpr Time kFirstPause = 10 * kMillisecond, kLastPause = 200 * kMillisecond;  // between attempts
using Kind = PlannedHandshake::Kind;

}  // namespace

Status PlannedLinks::connect(PeerIndex index, Role role) {
  const auto [at, fresh] = peers_.try_emplace(index);
  if (!fresh) return {ErrorCode::already_exists, name_ + ": the peer is connected, or not forgotten yet"};
  Peer& peer = at->second;
  peer.role = role;
  if (role == Role::acceptor) return {};
  runtime_.rng.fill(peer.token);
  PlannedHandshake hello;
  hello.bytes = maker_.describe_devices();
  send(index, std::move(hello));
  return {};
}

void PlannedLinks::exchange(PeerIndex index, std::span<const std::byte> bytes) {
  const auto found = peers_.find(index);
  if (found == peers_.end() || found->second.failed) return;
  Peer& peer = found->second;
  const Result<PlannedHandshake> message = decode_planned(bytes, version_, name_);
  if (!message) return fail_peer(index, peer, message.status(), true);
  const auto out_of_turn = [&] {
    fail_peer(index, peer, {ErrorCode::protocol_error, name_ + " handshake: unexpected message"}, true);
  };
  const bool acceptor = peer.role == Role::acceptor;
  if (message->kind == Kind::refused)
    return fail_peer(index, peer, {ErrorCode::unreachable, "the peer: " + message->reason}, false);
  if (message->kind == Kind::hello) return acceptor && peer.slots.empty() ? plan(index, peer, *message) : out_of_turn();
  if (message->token != peer.token) return;  // of an earlier session: ignored
  if (message->kind == Kind::note) return maker_.on_note(index, message->bytes) ? void() : out_of_turn();
  if (message->kind == Kind::plan)
    return !acceptor && peer.slots.empty() ? accept_plan(index, peer, *message) : out_of_turn();
  if (message->link >= peer.slots.size()) return out_of_turn();
  Link& link = links_[peer.slots[message->link]];
  switch (message->kind) {
    case Kind::open: return acceptor ? on_open(link, *message) : out_of_turn();
    case Kind::accept: return acceptor ? out_of_turn() : on_accept(link, *message);
    case Kind::ready:
      if (!acceptor) return out_of_turn();
      if (link.state != State::accepted || link.attempt != message->attempt) return;
      return maker_.is_preparing(link) || maker_.is_connecting(link) ? out_of_turn() : link_is_up(link);
    default: return on_closed(link, *message);
  }
}

// ---- the plan: the acceptor decides which devices to connect ----

void PlannedLinks::plan(PeerIndex index, Peer& peer, const PlannedHandshake& hello) {
  peer.token = hello.token;
  auto pairs = maker_.pair_devices(hello.bytes);
  if (!pairs) return fail_peer(index, peer, pairs.status(), true);
  PlannedHandshake message;
  message.kind = Kind::plan;
  message.pairs = std::move(*pairs);
  message.bytes = maker_.describe_devices();
  for (const PlannedPair& each : message.pairs) add_link(index, peer, each.acceptor, each.initiator);
  send(index, std::move(message));
  maker_.on_planned(index);
}

void PlannedLinks::accept_plan(PeerIndex index, Peer& peer, const PlannedHandshake& plan) {
  if (Status status = maker_.check_plan(plan.pairs, plan.bytes); !status)
    return fail_peer(index, peer, std::move(status), true);
  for (const PlannedPair& each : plan.pairs) add_link(index, peer, each.initiator, each.acceptor);
  maker_.on_planned(index);
  for (const std::uint32_t slot : peer.slots) open(links_[slot]);
}

void PlannedLinks::add_link(PeerIndex index, Peer& peer, std::uint8_t device, std::uint8_t peer_device) {
  Link& link = free_link(links_);
  link.initiator = peer.role == Role::initiator;
  link.state = link.initiator ? State::fenced : State::waiting;
  link.peer = index;
  link.index = static_cast<std::uint16_t>(peer.slots.size());
  link.device = device;
  link.peer_device = peer_device;
  peer.slots.push_back(link.id.slot);
}

// ---- one attempt at one link ----

void PlannedLinks::open(Link& link) {
  link.again_at = kNever;
  if (link.attempt + 1 >= kMaxPlannedAttempts) return;  // takes a month of attempts
  ++link.attempt;
  link.state = State::opening;
  auto end = maker_.make_end(link);
  if (!end) return open_failed(link, end.status());
  link.deadline = after(runtime_.clock.now(), kOpenWithin);
  next_deadline_ = std::min(next_deadline_, link.deadline);
  send(link, Kind::open, std::move(*end));
}

void PlannedLinks::on_open(Link& link, const PlannedHandshake& message) {
  if (message.attempt <= std::max(link.attempt, link.held_attempt)) return;
  if (link.state == State::waiting || link.state == State::accepted)
    return accept(link, message.bytes, message.attempt);
  link.held = message.bytes;  // the peer has fenced the last epoch; reconnect() takes this attempt
  link.held_attempt = message.attempt;
  if (link.state == State::up)
    maker_.fail_end(link, {ErrorCode::link_failed, name_ + ": the peer opened the link again"});
}

void PlannedLinks::accept(Link& link, std::vector<std::byte> theirs, std::uint32_t attempt) {
  link.held_attempt = 0;
  if (link.state == State::accepted) maker_.drop_end(link);
  link.attempt = attempt;
  link.state = State::accepted;
  auto end = maker_.make_end(link);
  Status status = end.status();
  if (status) status = maker_.connect_end(link, theirs);
  if (!status) return open_failed(link, status);
  link.answer = std::move(*end);
  if (!maker_.is_preparing(link)) on_prepared(link);
}

void PlannedLinks::on_accept(Link& link, const PlannedHandshake& message) {
  if (link.state != State::opening || link.attempt != message.attempt) return;
  if (maker_.is_preparing(link) || maker_.is_connecting(link)) return;  // a repeated message
  if (const Status status = maker_.connect_end(link, message.bytes); !status) return open_failed(link, status);
  if (!maker_.is_preparing(link)) on_prepared(link);
}

void PlannedLinks::on_prepared(Link& link) {
  if (link.state == State::accepted) return send(link, Kind::accept, std::exchange(link.answer, {}));
  if (!maker_.is_connecting(link)) on_connected(link);
}

void PlannedLinks::on_connected(Link& link) {
  if (link.state != State::opening) return;
  send(link, Kind::ready);
  link_is_up(link);
}

void PlannedLinks::on_connect_failed(Link& link, const Status& why) {
  if (link.state == State::opening || link.state == State::accepted) open_failed(link, why);
}

void PlannedLinks::link_is_up(Link& link) {
  link.deadline = kNever;
  link.pause = 0;
  up_.push_back(link.id.slot);
  peers_[link.peer].was_up = true;
  announce(link, link.name(), events_);
}

void PlannedLinks::on_closed(Link& link, const PlannedHandshake& message) {
  if (link.held_attempt == message.attempt) link.held_attempt = 0;
  if (link.attempt != message.attempt) return;
  const Status why(ErrorCode::link_failed,
                   name_ + ": the peer closed its end" + (message.reason.empty() ? "" : ": " + message.reason));
  if (link.state == State::up) {
    maker_.fail_end(link, why);
  } else if (link.state == State::accepted) {
    maker_.drop_end(link);
    link.state = State::waiting;  // for the next attempt
    report_retry_failed(link, why);
  } else if (link.state == State::opening) {
    open_failed(link, why);
  }
}

// Other links of the peer may still come up. If none can, or after a protocol error, the peer fails and is told why.
void PlannedLinks::open_failed(Link& link, const Status& why) {
  maker_.drop_end(link);
  link.deadline = kNever;
  Peer& peer = peers_[link.peer];
  link.state = link.initiator ? State::fenced : State::waiting;
  if (why.code() == ErrorCode::protocol_error) return fail_peer(link.peer, peer, why, true);
  const bool hope = peer.was_up || std::any_of(peer.slots.begin(), peer.slots.end(), [this](std::uint32_t slot) {
                      const Link& other = links_[slot];
                      return other.state == State::opening || other.state == State::accepted ||
                             (other.state != State::free && other.attempt == 0);
                    });
  if (!hope) return fail_peer(link.peer, peer, Status(ErrorCode::unreachable, why.message()), true);
  send(link, Kind::closed, {}, why.message());
  report_retry_failed(link, why);
  if (!link.initiator) return;
  link.pause = std::clamp(2 * link.pause, kFirstPause, kLastPause);
  link.again_at = after(runtime_.clock.now(), link.pause);
  next_deadline_ = std::min(next_deadline_, link.again_at);
}

void PlannedLinks::report_retry_failed(const Link& link, const Status& why) {
  if (link.id.epoch != 0) events_.add(EventKind::retry_failed, link.id, why);  // 0: it was never up
}

void PlannedLinks::reconnect(LinkId id) {
  Link* link = find(id);
  if (link == nullptr || link->state != State::fenced || peers_[link->peer].failed) return;
  if (link->initiator) return open(*link);
  link->state = State::waiting;
  if (link->held_attempt != 0) accept(*link, std::exchange(link->held, {}), link->held_attempt);
}

void PlannedLinks::check_deadlines(Time now) {
  if (now < next_deadline_) return;
  next_deadline_ = kNever;
  for (std::size_t i = 0; i < links_.size(); ++i) {  // by index: a failure may change links_
    if (now >= links_[i].deadline)
      open_failed(links_[i], {ErrorCode::timed_out, name_ + ": the peer did not answer within 5 s"});
    if (now >= links_[i].again_at) open(links_[i]);
    next_deadline_ = std::min({next_deadline_, links_[i].deadline, links_[i].again_at});
  }
}

// ---- both roles ----

void PlannedLinks::on_fenced(Link& link) {
  link.state = State::fenced;
  std::erase(up_, link.id.slot);
  send(link, Kind::closed);
}

std::vector<PeerIndex> PlannedLinks::peers() const {
  std::vector<PeerIndex> all;
  for (const auto& [index, peer] : peers_) all.push_back(index);
  return all;
}

void PlannedLinks::note(PeerIndex peer, std::span<const std::byte> bytes) {
  if (!knows(peer)) return;
  PlannedHandshake message;
  message.kind = Kind::note;
  message.bytes.assign(bytes.begin(), bytes.end());
  send(peer, std::move(message));
}

void PlannedLinks::send(PeerIndex index, PlannedHandshake message) {
  message.token = peers_[index].token;
  events_.add(EventKind::exchange, {}, encode(message, version_)).peer = index;
}

void PlannedLinks::send(const Link& link, Kind kind, std::vector<std::byte> bytes, std::string reason) {
  PlannedHandshake message;
  message.kind = kind;
  message.link = link.index;
  message.attempt = link.attempt;
  message.bytes = std::move(bytes);
  message.reason = std::move(reason);
  send(link.peer, std::move(message));
}

void PlannedLinks::fail_peer(PeerIndex index, Peer& peer, Status status, bool tell) {
  peer.failed = true;
  if (tell) {
    PlannedHandshake refused;
    refused.kind = Kind::refused;
    refused.reason = status.message();
    send(index, std::move(refused));
  }
  bool a_link_tells = false;
  for (const std::uint32_t slot : peer.slots) {
    Link& link = links_[slot];
    link.deadline = link.again_at = kNever;
    if (link.state == State::up) {
      a_link_tells = true;
      maker_.fail_end(link, status);
    } else if (link.state == State::opening || link.state == State::accepted) {
      maker_.drop_end(link);
      link.state = State::fenced;
    }
  }
  if (!a_link_tells) events_.no_link(index, std::move(status));
}

void PlannedLinks::leave(Link& link) {
  if (link.state == State::opening || link.state == State::accepted) {
    send(link, Kind::closed);
    maker_.drop_end(link);
  }
  link.state = State::free;
  link.deadline = link.again_at = kNever;
  std::erase(up_, link.id.slot);
}

Status PlannedTransport::connect(PeerIndex peer, Role role) {
  if (closed_ || task_ == nullptr) return {ErrorCode::closed, "the transport is closed"};
  return links_.connect(peer, role);
}

void PlannedTransport::exchange(PeerIndex peer, std::span<const std::byte> bytes) {
  if (!closed_) links_.exchange(peer, bytes);
}

void PlannedTransport::disconnect(PeerIndex peer) {
  links_.disconnect(peer, [this](Link& link) { end_epoch(link); });
  forget(peer);
}

void PlannedTransport::disconnect_all() {
  for (const PeerIndex peer : links_.peers()) disconnect(peer);
}

void PlannedTransport::fence(LinkId id) {
  Link* link = links_.find(id);
  if (link != nullptr && (is_up(link) || link->state == PlannedLinks::State::down)) end_epoch(*link);
}

void PlannedTransport::fenced(Link& link, std::uint64_t immediates, Status status) {
  inbox_.fenced(link.id, immediates, std::move(status));
  links_.on_fenced(link);
}

void PlannedTransport::reconnect(LinkId link) {
  if (!closed_) links_.reconnect(link);
}

void PlannedTransport::close() {
  if (closed_) return;
  disconnect_all();
  closed_ = true;
}

// ---- one device, without keys ----

Result<RegisteredMemory> PlannedTransport::register_memory(const Region& memory, const MemorySource&) {
  return RegisteredMemory{handle_of(memory.id), {}};
}

void PlannedTransport::deregister(std::uint64_t handle) {
  inbox_.add(EventKind::deregistered).value = handle;
}

Result<std::vector<PlannedPair>> PlannedTransport::pair_devices(std::span<const std::byte>) {
  return std::vector{PlannedPair()};
}

Status PlannedTransport::check_plan(std::span<const PlannedPair> pairs, std::span<const std::byte>) {
  if (pairs.size() == 1 && pairs.front() == PlannedPair()) return {};
  return {ErrorCode::protocol_error, name() + " handshake: the plan pairs devices that cannot connect"};
}

}  // namespace fairway::transport
