#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "core/bytes.h"
#include "transport/host/transport.h"

// One attempt at a link, from the dial until both sides have a lane. An unauthenticated process can send one hello, no
// more.
//
// The dialer's end is up once it is welcomed. Its first record tells the listener, whose end is up from then on. To end
// an attempt whose dialer may not have received the welcome, the listener closes the epoch first and then looks for
// that record: either the dialer has joined, and the link is up before it breaks, or it finds the epoch closed and
// accesses nothing.
namespace fairway::transport::host {
namespace {

constexpr Time kHelloTimeout = 2 * kSecond;
constexpr Time kFirstPause = kMillisecond;  // before the next attempt after a flap; doubles with each flap
constexpr std::uint32_t kMostFlaps = 5;
constexpr std::uint32_t kMaxRegions = 1 << 24;  // of a peer's table

}  // namespace

// ---- the initiator ----

void HostTransport::dial(Link& link) {
  link.state = LinkState::dialing;
  ++link.attempt;
  link.deadline = after(runtime_.clock.now(), kHelloTimeout);
  connections_at_ = 0;
  auto pair = std::make_shared<Pair>();
  auto file = sys::MemoryFile::make(sizeof(Segment));
  if (!file) return dial_failed(link, file.status());
  pair->made = std::move(*file);
  pair->segment = new (pair->made.address()) Segment;
  runtime_.rng.fill(pair->segment->nonce);
  link.dialed = std::move(pair);
  ask_to_join(link, runtime_.clock.now());
}

void HostTransport::ask_to_join(Link& link, Time now) {
  const Peer& peer = peers_[link.peer];
  Pair& pair = *link.dialed;
  auto socket = sys::LocalSocket::dial(peer.socket);
  if (!socket) {
    if (socket.status().code() != ErrorCode::queue_full || now >= link.deadline)
      return dial_failed(link, socket.status());
    return;  // poll_connections() tries again
  }
  if (!socket->of_this_user())
    return dial_failed(
        link, {ErrorCode::access_denied, name() + ": the peer runs as user " + std::to_string(socket->peer_user()) +
                                             ": run both processes as one user to share memory"});
  pair.socket = std::move(*socket);
  const Note hello = introduce(Note::Kind::hello, peer.dialer, link.attempt, pair);
  const std::array<int, Note::kHelloFds> fds{pair.made.fd(), regions_.file()};
  const auto sent = pair.socket.send(encode(hello), fds);
  if (!sent || !*sent)
    return dial_failed(link, sent
                                 ? Status(ErrorCode::resource_exhausted, name() + ": the local socket's buffer is full")
                                 : sent.status());
  if (Status status = task_->watch(pair.socket.fd()); !status) return dial_failed(link, status);
}

void HostTransport::receive_welcome(Link& link, Time now) {
  auto message = link.dialed->socket.receive();
  if (!message) return dial_failed(link, message.status());
  if (!*message) {
    if (now >= link.deadline)
      dial_failed(link, {ErrorCode::timed_out, name() + ": no answer on the local socket within 2 s"});
    return;
  }
  const auto note = decode_note((*message)->bytes);
  if (!note) return dial_failed(link, note.status());
  if (note->kind == Note::Kind::refused) return dial_failed(link, {ErrorCode::resource_exhausted, note->reason});
  if (note->kind != Note::Kind::welcome || note->attempt != link.attempt ||
      !equal_constant_time(peers_[link.peer].listener, note->token))
    return dial_failed(link, {ErrorCode::protocol_error, name() + ": another process answered on the local socket"});
  if (Status status = join(*link.dialed, *note, (*message)->fds); !status) return dial_failed(link, status);
  make_lane(link, std::exchange(link.dialed, nullptr));
  link.lane->nudge();
  link_is_up(link);
}

void HostTransport::dial_failed(Link& link, const Status& why) {
  if (link.dialed) unwatch(*link.dialed);
  link.dialed.reset();
  link.state = LinkState::fenced;
  link.deadline = kNever;
  attempt_failed(link, why);
}

// ---- the acceptor ----

void HostTransport::on_join_request(JoinRequest request, Time now) {
  for (auto& [index, peer] : peers_) {
    if (peer.role != Role::acceptor || peer.failed || peer.slots[0] == kNoSlot ||
        !equal_constant_time(peer.dialer, request.note.token))
      continue;
    Link& link = links_[peer.slots[0]];
    if (request.note.attempt <= link.attempt) return;
    link.join_request =
        std::make_unique<JoinRequest>(std::move(request));  // if this side has not fenced yet, reconnect() takes it
    if (link.state == LinkState::waiting) return take_join_request(link, now);
    if (link.state == LinkState::welcomed) abandon(link, {ErrorCode::link_failed, name() + ": the peer dialed again"});
    return;
  }
}  // an unknown token: closed without an answer

void HostTransport::welcome(Link& link, JoinRequest request) {
  auto pair = std::make_shared<Pair>();
  pair->side = 1;
  pair->socket = std::move(request.socket);
  link.attempt = request.note.attempt;
  const auto refuse = [&](const Status& why) {
    unwatch(*pair);
    count_flap(link);
    attempt_failed(link, why);
  };
  if (Status status = join(*pair, request.note, request.fds); !status) return refuse(status);
  if (Status status = task_->watch(pair->socket.fd()); !status) return refuse(status);
  const Note answer = introduce(Note::Kind::welcome, peers_[link.peer].listener, link.attempt, *pair);
  const std::array<int, Note::kWelcomeFds> fds{regions_.file()};
  const auto sent = pair->socket.send(encode(answer), fds);
  if (!sent || !*sent) return refuse({ErrorCode::resource_exhausted, name() + ": the local socket's buffer is full"});
  link.state = LinkState::welcomed;
  link.deadline = after(runtime_.clock.now(), kHelloTimeout);
  make_lane(link, std::move(pair));
}

// The dialer writes its first record to the ring before it sends anything on the socket.
void HostTransport::check_joined(Link& link, Time now) {
  const Pair& pair = *link.lane->pair();
  counters_.system_calls.fetch_add(1, std::memory_order_relaxed);
  const bool silent = pair.socket.next() == sys::LocalSocket::Next::nothing;
  if (link.lane->joined()) return link_is_up(link);
  if (!silent || (pair.process && pair.process.ended()))
    return abandon(link, {ErrorCode::link_failed, name() + ": the peer gave up the link"});
  if (now >= link.deadline)
    abandon(link, {ErrorCode::timed_out, name() + ": the peer did not join the link within 2 s"});
}

void HostTransport::abandon(Link& link, const Status& why) {
  link.lane->pair()->own_end().closed.store(1, std::memory_order_seq_cst);
  if (link.lane->joined()) {
    link_is_up(link);
    return link.lane->fail(why);
  }
  unwatch(*link.lane->pair());
  link.lane->close();
  link.lane.reset();
  link.out = {};
  std::erase(up_, link.id.slot);
  link.state = LinkState::waiting;
  link.deadline = kNever;
  count_flap(link);
  take_join_request(link, runtime_.clock.now());
}

// Backoff for a peer whose links keep breaking at once.
void HostTransport::count_flap(Link& link) {
  link.flaps = std::min(link.flaps + 1, kMostFlaps);
  link.welcome_at = after(runtime_.clock.now(), kFirstPause << link.flaps);
}

void HostTransport::take_join_request(Link& link, Time now) {
  link.deadline = kNever;
  if (!link.join_request || peers_[link.peer].failed) return;
  if (now >= link.welcome_at) return welcome(link, std::move(*std::exchange(link.join_request, nullptr)));
  link.deadline = link.welcome_at;
  timer_ = std::min(timer_, link.deadline);
}

// ---- both roles ----

void HostTransport::attempt_failed(const Link& link, const Status& why) {
  Peer& peer = peers_[link.peer];
  if (!peer.was_up) return fail_peer(link.peer, peer, Status(ErrorCode::unreachable, why.message()), true);
  inbox_.add(EventKind::retry_failed, link.id, why);
}

Note HostTransport::introduce(Note::Kind kind, const Token& token, std::uint32_t attempt, const Pair& pair) const {
  Note note;
  note.kind = kind;
  note.token = token;
  note.attempt = attempt;
  note.regions = regions_.capacity();
  note.nonce_at = reinterpret_cast<std::uintptr_t>(&pair.segment->nonce);
  return note;
}

// Everything the peer sent is checked before it is used.
Status HostTransport::join(Pair& pair, const Note& note, std::vector<sys::Fd>& fds) {
  const bool dialer = pair.side == 0;
  if (fds.size() != (dialer ? Note::kWelcomeFds : Note::kHelloFds) || note.regions == 0 || note.regions > kMaxRegions)
    return {ErrorCode::protocol_error, "malformed " + name() + " handshake: unexpected fd count or size"};
  if (!dialer) {
    auto segment = sys::MappedFile::map(fds.front(), 0, sizeof(Segment), true);
    if (!segment) return segment.status();
    pair.joined = std::move(*segment);
    pair.segment = reinterpret_cast<Segment*>(pair.joined.address());
  }
  auto table = sys::MappedFile::map(fds.back(), 0, note.regions * sizeof(RegionSlot<>), false);
  if (!table) return table.status();
  pair.table = std::move(*table);
  pair.regions = RegionView(reinterpret_cast<const RegionSlot<>*>(pair.table.address()), note.regions);
  probe_cma(pair, note.nonce_at);
  return {};
}

// The kernel tells the pid of the other end. Reading the nonce at the stated address by cross-memory attach proves that
// this process shares the segment and that its memory can be read.
void HostTransport::probe_cma(Pair& pair, std::uint64_t nonce_at) {
  auto process = sys::Process::open(pair.socket.peer_pid(), pair.socket.peer_process());
  if (!process) {
    pair.no_cma = process.status().message();
    return;
  }
  pair.process = std::move(*process);
  static_cast<void>(task_->watch(pair.process.fd()));
  if (!options_.cma) {
    pair.no_cma = "cross-memory attach is switched off";
    return;
  }
  Token seen{};
  const sys::Process::Span span{seen.data(), reinterpret_cast<std::byte*>(nonce_at), seen.size()};
  if (const Status status = pair.process.read({&span, 1}); !status)
    pair.no_cma = status.message() + " (another user, ptrace_scope, or a container without CAP_SYS_PTRACE)";
  else if (std::memcmp(seen.data(), pair.segment->nonce.data(), seen.size()) != 0)
    pair.no_cma = "the process at the local socket does not share the segment";
}

}  // namespace fairway::transport::host
