#include "transport/tcp/transport.h"

#include <algorithm>

namespace fairway::transport::tcp {
namespace {

constexpr std::uint64_t kBytesPerPoll = 1 << 20;  // per lane: about 100 us
// For how many polls a lane without bytes is still read in each: while an answer is likely to be on its way. Few, where
// many lanes are read in a poll.
constexpr std::size_t kReadsOfQuietLanes = 512, kLeastPolls = 16, kMostPolls = 256;

// What passes where longer segments are swallowed: tunnels leave more of 1280, which IPv6 asks of every way.
constexpr std::uint16_t kSafeSegment = 1024;

Capabilities capabilities() {
  Capabilities can;
  can.operations = bits(Op::write, Op::read, Op::message, Op::fetch_add, Op::compare_swap, Op::write_immediate);
  can.shapes = bits(Shape::contiguous, Shape::strided, Shape::indexed);
  can.queue_depth = kQueueDepth;
  can.ordered = true;
  can.visible_when_done = true;
  return can;
}

}  // namespace

TcpTransport::TcpTransport(RegionTable& regions, Runtime& runtime, const TcpOptions& options)
    : LinkedTransport("tcp", regions, runtime), options_(options) {}

bool TcpTransport::usable(const InterfaceAddress& address) const {
  if (options_.interfaces.empty()) return true;
  return std::any_of(options_.interfaces.begin(), options_.interfaces.end(),
                     [&](const std::string& wanted) { return wanted == address.interface || wanted == address.host; });
}

Status TcpTransport::open() {
  auto found = runtime_.network.addresses();
  if (!found) return found.status();
  for (InterfaceAddress& address : *found) {
    if (!usable(address)) continue;
    const auto known = std::find_if(devices_.begin(), devices_.end(),
                                    [&](const Device& device) { return device.name == address.interface; });
    if (known == devices_.end())
      devices_.push_back({address.interface, address.bytes_per_second, capabilities(), MovedBy::sockets});
    addresses_.push_back(std::move(address));
  }
  if (!devices_.empty()) return {};
  std::string wanted;
  for (const std::string& each : options_.interfaces) wanted += (wanted.empty() ? "" : ", ") + each;
  return {ErrorCode::unsupported, wanted.empty() ? "tcp: this host has no network address: bring an interface up"
                                                 : "tcp: EngineOptions::interfaces names " + wanted +
                                                       ", and this host has no such interface or address"};
}

// Nothing to wait for: each piece is resolved in the region table, which refuses by now, and moved by one system call.
void TcpTransport::deregister(std::uint64_t handle) {
  for (const std::uint32_t slot : up_) links_[slot].lane->stop_memory(region_of(handle));
  inbox_.add(EventKind::deregistered).value = handle;
}

std::size_t TcpTransport::post(std::span<const Slice> slices) {
  return post_each(
      slices, [this](const Link& link, const Slice& slice, Command& out) { return check(link, slice, out); },
      [](Lane& lane) {
        if (!lane.may_hold()) lane.flush();
      });
}

// Checks what this side can; the target checks its own bounds and permissions.
ErrorCode TcpTransport::check(const Link& link, const Slice& slice, Command& out) {
  const ErrorCode code = prepare(link, slice, out);
  if (code != ErrorCode::ok || out.local_begin == nullptr) return code;
  if (out.slice.count > kMaxBlocks) return ErrorCode::invalid_argument;
  if (out.slice.shape == Shape::contiguous) {
    const auto first = static_cast<std::uint64_t>(slice.local - out.local_begin);
    return slice.length <= out.local_size - first ? ErrorCode::ok : ErrorCode::out_of_range;
  }
  BlockCursor cursor;
  for (Piece piece; !cursor.done(out.slice);)
    if (const ErrorCode block = cursor.next(out, kMaxSliceBytes, piece); block != ErrorCode::ok) return block;
  return ErrorCode::ok;
}

std::size_t TcpTransport::poll(std::span<Event> events, Time now) {
  inbox_.begin_poll();
  if (!closed_) poll_connections(now);
  const std::size_t count = up_.size();
  // No division where there are few: a poll of an idle engine takes 30 ns.
  const auto patience = static_cast<std::uint32_t>(
      count <= kReadsOfQuietLanes / kMostPolls ? kMostPolls : std::max(kReadsOfQuietLanes / count, kLeastPolls));
  poll_each([&](Link& link) {
    std::uint64_t budget = kBytesPerPoll;
    if (link.lane->due(turn_ + link.id.slot, patience)) link.lane->receive(budget);
    if (link.lane->has_output() && !link.lane->hold()) link.lane->flush();
    if (link.lane->broken() && link.state == LinkState::up) link.state = LinkState::down;
  });
  ++turn_;
  return inbox_.take(events);
}

// For the next connection. The initiator makes it, so the acceptor tells it.
void TcpTransport::shorten_segments(Link& link) {
  Peer& peer = peers_[link.peer];
  const std::size_t address = link.index / peer.lanes;
  link.segment_bytes = kSafeSegment;
  limit_segments(peer, address, kSafeSegment);
  if (peer.role == Role::initiator || peer.failed) return;
  Handshake message;
  message.kind = Handshake::Kind::segments;
  message.address = static_cast<std::uint8_t>(address);
  message.segment_bytes = kSafeSegment;
  send(link.peer, encode(message));
}

void TcpTransport::fence(LinkId id) {
  Link* link = find(id);
  if (link == nullptr || (link->state != LinkState::up && link->state != LinkState::down)) return;
  if (link->lane->swallowed_segment() > kSafeSegment) shorten_segments(*link);
  link->lane->close();
  inbox_.fenced(id, link->lane->immediates());
  link->lane.reset();
  link->state = LinkState::fenced;
  std::erase(up_, id.slot);
}

void TcpTransport::cancel(SliceToken token) {
  for (const std::uint32_t slot : up_) links_[slot].lane->cancel(token);
}

Reach TcpTransport::reach(LinkId id, std::uint64_t, std::uint64_t, std::string* path) {
  if (path == nullptr) return Reach::yes;
  *path = "by sockets: the kernel copies once on each side";
  if (const Link* link = find(id); link != nullptr && link->segment_bytes != 0)
    *path += ", in segments of " + std::to_string(link->segment_bytes) +
             " bytes, since the way swallowed longer ones: its MTU is smaller than the interface's";
  return Reach::yes;
}

std::uint64_t TcpTransport::moved(LinkId id) {
  const Link* link = find(id);
  return link != nullptr && link->lane ? link->lane->moved() : 0;
}

std::string TcpTransport::why_stalled(LinkId id) {
  const Link* link = find(id);
  const std::uint32_t swallowed = link != nullptr && link->lane ? link->lane->swallowed_segment() : 0;
  if (swallowed == 0) return {};
  const std::string next = "; the next connection uses segments of " + std::to_string(kSafeSegment) + " bytes";
  return "tcp: segments of " + std::to_string(swallowed) +
         " bytes get no answer from the peer, though shorter ones do: on the way the MTU is smaller than that of the "
         "interface " +
         devices_[link->device].name + ". Set the interface's MTU to that, or sysctl net.ipv4.tcp_mtu_probing=2" +
         (swallowed > kSafeSegment ? next : "");
}

bool TcpTransport::prepare_sleep() {
  data_port_.sleeps();
  bool quiet = inbox_.empty();
  for (const std::uint32_t slot : up_) quiet = links_[slot].lane->prepare_sleep() && quiet;
  return quiet;
}

void TcpTransport::close() {
  if (closed_) return;
  disconnect_all();
  closed_ = true;
  data_port_.close();
  timer_ = kNever;
}

}  // namespace fairway::transport::tcp

namespace fairway::transport {

Result<std::unique_ptr<Transport>> open_tcp_transport(RegionTable& regions, Runtime& runtime,
                                                      const TcpOptions& options) {
  return open_transport<tcp::TcpTransport>(regions, runtime, options);
}

}  // namespace fairway::transport
