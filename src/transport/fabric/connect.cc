#include <algorithm>

#include <fmt/format.h>

#include "core/bytes.h"
#include "transport/fabric/transport.h"

// The ends of planned links: endpoints of domains.
namespace fairway::transport::fabric {
namespace {

constexpr std::uint16_t kLeastReceives = 4, kMostReceives = 4096;

std::string names_of(std::span<const DomainAddress> domains) {
  std::string text;
  for (const DomainAddress& each : domains.first(std::min<std::size_t>(domains.size(), 3)))
    text += (text.empty() ? "" : ", ") + each.provider + "/" + each.name;
  return domains.size() > 3 ? text + ", ..." : text;
}

}  // namespace

std::vector<DomainAddress> FabricTransport::addresses() const {
  std::vector<DomainAddress> all;
  for (const auto& domain : domains_) all.push_back(domain->address());
  return all;
}

std::vector<std::byte> FabricTransport::describe_devices() {
  return encode(addresses());
}

Result<std::vector<PlannedPair>> FabricTransport::pair_devices(std::span<const std::byte> initiators) {
  const auto theirs = decode_addresses(initiators);
  if (!theirs) return theirs.status();
  const auto ours = addresses();
  auto pairs = pair_domains(ours, *theirs);
  if (pairs.empty())
    return Status(ErrorCode::unreachable,
                  fmt::format("fabric: no domain of the initiator ({}) can reach one of the acceptor ({}): they need "
                              "the same provider (EngineOptions::providers)",
                              names_of(*theirs), names_of(ours)));
  return pairs;
}

Status FabricTransport::check_plan(std::span<const PlannedPair> pairs, std::span<const std::byte> acceptors) {
  const auto theirs = decode_addresses(acceptors);
  if (!theirs) return theirs.status();
  for (const PlannedPair& each : pairs)
    if (each.initiator >= domains_.size() || each.acceptor >= theirs->size() ||
        !can_connect(domains_[each.initiator]->address(), (*theirs)[each.acceptor]))
      return {ErrorCode::protocol_error, "fabric handshake: the plan pairs domains that cannot connect"};
  return {};
}

Result<std::vector<std::byte>> FabricTransport::make_end(const Link& link) {
  auto lane = Lane::make(*domains_[link.device], link.next_id(), inbox_, link.end_name());
  if (!lane) return lane.status();
  if (const int fd = (*lane)->endpoint_fd(); fd >= 0)
    if (Status status = task_->watch(fd); !status) return status;
  if (lanes_.size() <= link.id.slot) lanes_.resize(link.id.slot + 1);
  lanes_[link.id.slot] = std::move(*lane);
  const auto address = lanes_[link.id.slot]->endpoint().address();
  std::vector<std::byte> end(4 + address.size());
  ByteWriter(end).put(static_cast<std::uint16_t>(kReceives)).put_sized(address);
  return end;
}

Status FabricTransport::connect_end(const Link& link, std::span<const std::byte> theirs) {
  ByteReader reader(theirs);
  const auto receives = reader.get<std::uint16_t>();
  const auto address = reader.get_sized();
  if (!reader.done() || receives < kLeastReceives || receives > kMostReceives)
    return {ErrorCode::protocol_error, "malformed fabric handshake: endpoint"};
  return lane_of(link)->connect(address, receives);
}

void FabricTransport::drop_end(const Link& link) {
  Lane* lane = lane_of(link);
  if (lane == nullptr) return;
  if (!lane->closed()) {
    if (lane->endpoint_fd() >= 0) task_->unwatch(lane->endpoint_fd());
    lane->shut();
    note_unstopped(link);
  }
  lanes_[link.id.slot].reset();
}

void FabricTransport::fail_end(const Link& link, Status why) {
  lane_of(link)->fail(std::move(why));
}

bool FabricTransport::on_note(PeerIndex peer, std::span<const std::byte> bytes) {
  const auto note = decode_note(bytes);
  if (!note) return true;  // an unknown or malformed note is ignored
  switch (note->kind) {
    case Note::Kind::revoke: on_revoke(peer, note->region); break;
    case Note::Kind::revoked: on_revoked(peer, note->region); break;
    case Note::Kind::ask_key: on_ask_key(peer, *note); break;
    case Note::Kind::key: on_key(peer, *note); break;
  }
  return true;
}

}  // namespace fairway::transport::fabric
