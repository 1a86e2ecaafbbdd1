#include <array>
#include <utility>

#include "transport/verbs/transport.h"

// What planned links are made of here: ports, and queue pairs at them.
namespace fairway::transport::verbs {

Status VerbsTransport::connect(PeerIndex peer, Role role) {
  if (closed_ || task_ == nullptr) return {ErrorCode::closed, "the transport is closed"};
  return links_.connect(peer, role);
}

void VerbsTransport::exchange(PeerIndex peer, std::span<const std::byte> bytes) {
  if (!closed_) links_.exchange(peer, bytes);
}

std::vector<PortAddress> VerbsTransport::addresses() const {
  std::vector<PortAddress> all;
  for (const auto& port : ports_) all.push_back(port->address());
  return all;
}

std::vector<std::byte> VerbsTransport::describe_devices() {
  return encode(addresses());
}

Result<std::vector<PlannedPair>> VerbsTransport::pair_devices(std::span<const std::byte> initiators) {
  const auto theirs = decode_ports(initiators);
  if (!theirs) return theirs.status();
  const auto ours = addresses();
  auto pairs = pair_ports(ours, *theirs);
  if (pairs.empty())
    return Status(ErrorCode::unreachable, "verbs: no port of " + text_of(theirs->front()) +
                                              "'s side can reach one of " + text_of(ours.front()) + "'s");
  return pairs;
}

Status VerbsTransport::check_plan(std::span<const PlannedPair> pairs, std::span<const std::byte> acceptors) {
  const auto theirs = decode_ports(acceptors);
  if (!theirs) return theirs.status();
  for (const PlannedPair& each : pairs)
    if (each.initiator >= ports_.size() || each.acceptor >= theirs->size() ||
        !can_meet(ports_[each.initiator]->address(), (*theirs)[each.acceptor]))
      return {ErrorCode::protocol_error, "verbs handshake: a plan for ports that cannot meet"};
  return {};
}

Result<std::vector<std::byte>> VerbsTransport::make_end(const Link& link) {
  Port& port = *ports_[link.device];
  if (!port.active())
    return Status(ErrorCode::link_failed, "verbs: " + port.device().name + ": the port is not active");
  std::array<std::byte, 4> chance{};
  runtime_.rng.fill(chance);
  std::uint32_t first_psn = 0;
  for (const std::byte each : chance) first_psn = first_psn << 8 | std::to_integer<std::uint32_t>(each);
  auto lane = Lane::make(port, link.next_id(), inbox_, link.end_name(), first_psn);
  if (!lane) return lane.status();
  if (ends_.size() <= link.id.slot) ends_.resize(link.id.slot + 1);
  ends_[link.id.slot].lane = std::move(*lane);
  return encode(lane_of(link)->endpoint());
}

Status VerbsTransport::connect_end(const Link& link, std::span<const std::byte> theirs) {
  const auto endpoint = decode_endpoint(theirs);
  if (!endpoint) return endpoint.status();
  if (!can_meet(ports_[link.device]->address(), endpoint->port))
    return {ErrorCode::protocol_error, "verbs handshake: an endpoint at a port that cannot be met"};
  return lane_of(link)->connect(*endpoint);
}

void VerbsTransport::drop_end(const Link& link) {
  if (link.id.slot < ends_.size()) ends_[link.id.slot].lane.reset();
}

void VerbsTransport::fail_end(const Link& link, Status why) {
  lane_of(link)->fail(std::move(why));
}

}  // namespace fairway::transport::verbs
