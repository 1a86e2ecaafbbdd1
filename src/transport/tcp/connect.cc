#include <algorithm>
#include <utility>

#include "core/bytes.h"
#include "transport/tcp/transport.h"

// Connecting and reconnecting lanes, disconnecting peers. The initiator sends hello through control, the acceptor
// offers its addresses, and the initiator connects to each of them, once per lane. An unauthenticated connection can
// send no more than one hello of fixed size.
namespace fairway::transport::tcp {
namespace {

constexpr Time kDialTimeout = 5 * kSecond;
constexpr Time kDialAgain = 2 * kSecond;  // for a lane that was never up

bool is_any(const std::string& host) {
  return host == "0.0.0.0" || host == "::";
}

std::string with_port(const std::string& host, const std::string& port) {
  return host.find(':') == std::string::npos ? host + port : "[" + host + "]" + port;
}

}  // namespace

// Where to accept lanes: on control's host, unless the options allow only other addresses.
std::string TcpTransport::lane_host() const {
  const auto usable_there = [this](const InterfaceAddress& own) { return own.host == options_.listen_host; };
  if (options_.interfaces.empty() || is_any(options_.listen_host) ||
      std::any_of(addresses_.begin(), addresses_.end(), usable_there))
    return options_.listen_host;
  const bool v6 = std::any_of(addresses_.begin(), addresses_.end(),
                              [](const InterfaceAddress& own) { return own.host.find(':') != std::string::npos; });
  return v6 ? "::" : "0.0.0.0";
}

void TcpTransport::offer(PeerIndex index, Peer& peer) {
  if (Status status = data_port_.listen(with_port(lane_host(), ":0"), *task_); !status)
    return fail_peer(index, peer, status, true);
  runtime_.rng.fill(peer.token);
  Handshake message;
  message.kind = Handshake::Kind::offer;
  message.token = peer.token;
  const std::string bound = data_port_.address();
  const std::string port = bound.substr(bound.rfind(':'));
  if (const std::string host = lane_host(); is_any(host)) {
    const bool v4_only = host == "0.0.0.0";
    for (const bool loopback : {false, true})  // loopback only if there is nothing else
      for (const InterfaceAddress& address : addresses_)
        if (address.loopback == loopback && (!loopback || message.addresses.empty()) &&
            !(v4_only && address.host.find(':') != std::string::npos) && message.addresses.size() < kMaxAddresses)
          message.addresses.push_back(with_port(address.host, port));
  } else {
    message.addresses.push_back(bound);
  }
  if (message.addresses.empty())
    return fail_peer(index, peer,
                     {ErrorCode::unreachable,
                      "tcp: this host has no address to offer that matches "
                      "EngineOptions::listen and interfaces"},
                     true);
  const auto most = static_cast<std::uint16_t>(kMaxLanesPerPeer / message.addresses.size());
  message.lanes = std::clamp<std::uint16_t>(options_.lanes, 1, most);
  peer.lanes = message.lanes;
  peer.addresses = message.addresses;
  peer.slots.assign(std::size_t{message.lanes} * message.addresses.size(), kNoSlot);
  send(index, encode(message));
}

void TcpTransport::exchange(PeerIndex index, std::span<const std::byte> bytes) {
  Peer* const found = listens_to(index);
  if (found == nullptr) return;
  Peer& peer = *found;
  const Result<Handshake> message = decode_handshake(bytes);
  if (!message) return fail_peer(index, peer, message.status(), true);
  if (message->kind == Handshake::Kind::refused)
    return fail_peer(index, peer, {ErrorCode::unreachable, "tcp: " + message->reason}, false);
  if (message->kind == Handshake::Kind::segments) {
    if (peer.role == Role::initiator && message->address < peer.addresses.size())
      return limit_segments(peer, message->address, message->segment_bytes);
    return fail_peer(index, peer, {ErrorCode::protocol_error, "tcp handshake: unexpected message"}, true);
  }
  const bool to_acceptor = message->kind == Handshake::Kind::hello;
  if (to_acceptor != (peer.role == Role::acceptor) || !peer.slots.empty())
    return fail_peer(index, peer, {ErrorCode::protocol_error, "tcp handshake: unexpected message"}, true);
  if (to_acceptor) return offer(index, peer);
  accept_offer(index, peer, *message);
}

void TcpTransport::accept_offer(PeerIndex index, Peer& peer, const Handshake& message) {
  peer.token = message.token;
  peer.lanes = message.lanes;
  peer.addresses = message.addresses;
  peer.slots.assign(std::size_t{message.lanes} * message.addresses.size(), kNoSlot);
  for (std::uint16_t i = 0; i < peer.slots.size() && !peer.failed; ++i) dial(make_link(index, i, LinkState::waiting));
}

// ---- the initiator ----

const std::string& TcpTransport::address_of(const Link& link) {
  const Peer& peer = peers_[link.peer];
  return peer.addresses[link.index / peer.lanes];
}

void TcpTransport::dial(Link& link) {
  Peer& peer = peers_[link.peer];
  link.state = LinkState::dialing;
  ++dialing_;
  ++link.attempt;
  link.sent = link.received = 0;
  Hello hello;
  hello.token = peer.token;
  hello.lane = link.index;
  hello.attempt = link.attempt;
  link.bytes = encode(hello);
  link.deadline = after(runtime_.clock.now(), kDialTimeout);
  timer_ = std::min(timer_, link.deadline);
  const std::string& address = address_of(link);
  auto channel = link.segment_bytes == 0 ? runtime_.network.dial(address, *task_)
                                         : runtime_.network.dial_in_segments(address, link.segment_bytes, *task_);
  if (!channel) return dial_failed(link, channel.status());
  // The route decides the local address, which is known before anything is sent.
  if (const std::string local = (*channel)->local_address();
      !options_.interfaces.empty() && !local.empty() && own_address(local) == nullptr)
    return dial_failed(link, {ErrorCode::unreachable, "tcp: the route to " + address + " leaves from " + local +
                                                          ", which EngineOptions::interfaces does not allow"});
  link.channel = std::move(*channel);
  continue_dial(link, runtime_.clock.now());
}

void TcpTransport::continue_dial(Link& link, Time now) {
  if (link.sent < kHelloBytes) {
    const auto sent = link.channel->send(std::span(link.bytes).subspan(link.sent));
    if (!sent) {
      link.received = 0;
      if (!receive_welcome(link)) dial_failed(link, sent.status());  // a peer that refuses does not read the hello
      return;
    }
    link.sent += *sent;
    if (link.sent < kHelloBytes && now < link.deadline) return;
  }
  if (link.sent == kHelloBytes && receive_welcome(link)) return;
  if (now >= link.deadline)
    dial_failed(link, {ErrorCode::timed_out,
                       "tcp: " + address_of(link) + " did not answer within 5 s: does a firewall drop its packets?"});
}

bool TcpTransport::receive_welcome(Link& link) {
  const auto got = link.channel->receive(std::span(link.bytes).first(kWelcomeBytes).subspan(link.received));
  if (!got) {
    dial_failed(link, got.status());
    return true;
  }
  link.received += *got;
  if (link.received < kWelcomeBytes) return false;
  if (const Status refused = check_welcome(std::span(link.bytes).first<kWelcomeBytes>(), link.attempt); !refused) {
    dial_failed(link, refused);
    return true;
  }
  --dialing_;
  link_is_up(link, std::move(link.channel), {});
  return true;
}

// Other lanes of the peer may still come up; if none can, the peer fails and is told why. A lane that was up waits for
// reconnect(). The engine does not know of a lane that was never up, so that one is dialed again here.
void TcpTransport::dial_failed(Link& link, const Status& why) {
  --dialing_;
  link.channel.reset();
  link.state = link.was_up ? LinkState::fenced : LinkState::pausing;
  link.deadline = link.was_up ? kNever : after(runtime_.clock.now(), kDialAgain);
  timer_ = std::min(timer_, link.deadline);
  if (link.was_up) inbox_.add(EventKind::retry_failed, link.id, why);
  Peer& peer = peers_[link.peer];
  const bool hope = peer.was_up || std::any_of(peer.slots.begin(), peer.slots.end(), [this](std::uint32_t slot) {
                      return slot == kNoSlot || links_[slot].state == LinkState::dialing;
                    });
  if (!hope) fail_peer(link.peer, peer, Status(ErrorCode::unreachable, why.message()), true);
}

// All lanes to an address take the same way: those that are up come back with short segments too.
void TcpTransport::limit_segments(Peer& peer, std::size_t address, std::uint16_t most_bytes) {
  for (std::size_t i = address * peer.lanes; i < (address + 1) * peer.lanes; ++i) {
    if (peer.slots[i] == kNoSlot) continue;
    Link& link = links_[peer.slots[i]];
    if (std::exchange(link.segment_bytes, most_bytes) == 0 && link.state == LinkState::up)
      link.lane->fail({ErrorCode::link_failed, "tcp: another lane of its way found that it swallows long segments"});
  }
}

// ---- the acceptor ----

void TcpTransport::on_hello(std::unique_ptr<Channel> channel, const Hello& hello) {
  for (auto& [index, peer] : peers_) {
    if (peer.role != Role::acceptor || peer.failed || !equal_constant_time(peer.token, hello.token)) continue;
    if (hello.lane >= peer.slots.size()) return;
    if (peer.slots[hello.lane] == kNoSlot) make_link(index, hello.lane, LinkState::waiting);
    Link& link = links_[peer.slots[hello.lane]];
    if (hello.attempt <= std::max({link.attempt, link.held_attempt, link.refused_attempts})) return;
    if (link.state == LinkState::waiting) return welcome(link, std::move(channel), hello.attempt);
    link.channel = std::move(channel);  // the peer has fenced already; reconnect() takes this connection
    link.held_attempt = hello.attempt;
    return;
  }
}  // an unknown token: closed without an answer

void TcpTransport::welcome(Link& link, std::unique_ptr<Channel> channel, std::uint32_t attempt) {
  link.attempt = attempt;
  std::array<std::byte, kAlignment> first;
  first.fill(kPadding);
  std::ranges::copy(encode_welcome(attempt), first.begin());
  link_is_up(link, std::move(channel), first);
}

// ---- both roles ----

// The usable interface address of a local "host:port".
const InterfaceAddress* TcpTransport::own_address(const std::string& local) const {
  const auto found = std::find_if(addresses_.begin(), addresses_.end(), [&](const InterfaceAddress& own) {
    return local.starts_with(with_port(own.host, ":"));
  });
  return found == addresses_.end() ? nullptr : &*found;
}

void TcpTransport::link_is_up(Link& link, std::unique_ptr<Channel> channel, std::span<const std::byte> first) {
  link.deadline = kNever;
  link.held_attempt = 0;
  const InterfaceAddress* own = own_address(channel->local_address());
  link.lane = std::make_unique<Lane>(std::move(channel), link.next_id(), regions_, inbox_, first);
  link.lane->flush();
  up_.push_back(link.id.slot);
  link.was_up = true;
  link.device = 0;
  if (own != nullptr)
    link.device =
        static_cast<DeviceIndex>(std::find_if(devices_.begin(), devices_.end(),
                                              [&](const Device& device) { return device.name == own->interface; }) -
                                 devices_.begin());
  announce(link, static_cast<std::uint64_t>(link.attempt) << 16 | link.index);
}

// The acceptor's end is up once it has sent its welcome, which the initiator may not have received.
bool TcpTransport::forgo(PeerIndex index, std::uint64_t name) {
  const auto found = peers_.find(index);
  const auto lane = static_cast<std::uint16_t>(name);
  const auto attempt = static_cast<std::uint32_t>(name >> 16);
  if (found == peers_.end() || lane >= found->second.slots.size()) return true;
  Peer& peer = found->second;
  if (peer.slots[lane] == kNoSlot) {
    if (peer.role == Role::initiator) return true;
    make_link(index, lane, LinkState::waiting);
  }
  Link& link = links_[peer.slots[lane]];
  if (peer.role == Role::acceptor) {
    if (attempt == link.attempt) return false;
    link.refused_attempts = std::max(link.refused_attempts, attempt);  // in case it still comes
    if (link.held_attempt != 0 && link.held_attempt <= attempt) {
      link.held_attempt = 0;
      link.channel.reset();
    }
    return true;
  }
  if (attempt != link.attempt) return true;
  if (link.state == LinkState::dialing) dial_failed(link, {ErrorCode::link_failed, "tcp: the peer closed its end"});
  return link.state == LinkState::pausing || link.state == LinkState::fenced;
}

void TcpTransport::try_again(Link& link, Role role) {
  if (role == Role::initiator) return dial(link);
  link.state = LinkState::waiting;
  if (link.channel) welcome(link, std::exchange(link.channel, nullptr), link.held_attempt);
}

void TcpTransport::poll_connections(Time now) {
  const bool due = now >= timer_;
  if (due) timer_ = kNever;
  data_port_.poll(
      now, [this](std::unique_ptr<Channel> channel, const Hello& hello) { on_hello(std::move(channel), hello); });
  timer_ = std::min(timer_, data_port_.next());
  if (dialing_ == 0 && !due) return;
  for (std::size_t i = 0; i < links_.size(); ++i) {  // by index: a failed dial may change links_
    if (links_[i].state == LinkState::pausing && now >= links_[i].deadline) dial(links_[i]);
    if (links_[i].state == LinkState::dialing) continue_dial(links_[i], now);
    if (links_[i].state == LinkState::dialing || links_[i].state == LinkState::pausing)
      timer_ = std::min(timer_, links_[i].deadline);
  }
}

std::vector<std::byte> TcpTransport::refusal(const Status& why) {
  Handshake refused;
  refused.kind = Handshake::Kind::refused;
  refused.reason = why.message();
  return encode(refused);
}

void TcpTransport::give_up(Link& link, const Status& why) {
  if (link.state == LinkState::up) {
    link.lane->fail(why);
  } else if (link.state == LinkState::dialing || link.state == LinkState::pausing) {
    if (link.state == LinkState::dialing) --dialing_;
    link.channel.reset();
    link.state = LinkState::fenced;
  }
}

void TcpTransport::leave(Link& link) {
  if (link.state == LinkState::dialing) --dialing_;
  fence(link.id);
  link.channel.reset();
  link.state = LinkState::free;
  link.deadline = kNever;
}

}  // namespace fairway::transport::tcp
