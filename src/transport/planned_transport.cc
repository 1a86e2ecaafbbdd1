#include "transport/planned_transport.h"

namespace fairway::transport {

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
