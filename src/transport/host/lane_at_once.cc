#include <cstring>

#include "transport/host/lane.h"
#include "transport/host/transport.h"

// What is done within the call. The transport's part lies here too, so that a compiler makes one function of both.

namespace fairway::transport::host {

// Small slices pass large ones, as in work(), but neither each other nor, with an immediate, an immediate or message.
AtOnce Lane::move_now(const SmallMove& move, RegionId region, Remote& remote) {
  const bool tells = move.op == Op::write_immediate;
  if (broken_ || !urgent_.empty() || (tells && ordered_in_bulk_ > 0)) return AtOnce::later;
  if (remote.method == Method::pending) return AtOnce::later;
  if (remote.method != Method::mapped && remote.method != Method::cma) return AtOnce::never;
  if (remote.method == Method::cma && !pair_->no_cma.empty()) return AtOnce::never;
  if (tells) {
    if (!writer_.has_space()) return AtOnce::later;
    writer_.expect();
  }
  const bool reads = move.op == Op::read;
  std::byte* const there =
      remote.method == Method::mapped
          ? remote.place(remote.file->map->address(), remote.file->map->size_bytes(), move.remote_offset, move.length)
          : nullptr;
  if (!reads && there != nullptr) {  // another core may have either: both come at once
    prefetch_to_write(there);
    __builtin_prefetch(move.local);
  }
  {
    const Touch touch(*pair_);
    if (!touch.allowed()) return AtOnce::later;  // work() breaks the link
    RegionView::Resolved at;
    const ErrorCode code = pair_->regions.resolve(region, move.remote_offset, move.length, needed_access(move.op), at);
    if (code != ErrorCode::ok) return AtOnce::later;
    if (remote.method == Method::mapped) {
      if (there == nullptr) return AtOnce::later;
      if (move.length != 0) std::memmove(reads ? move.local : there, reads ? there : move.local, move.length);
    } else if (move.length != 0) {
      const sys::Process::Span span{move.local, at.address, static_cast<std::size_t>(move.length)};
      if (!reach_into({&span, 1}, reads)) return AtOnce::later;
    }
    if (tells) {
      if (!writer_.push_immediate(move.immediate)) return AtOnce::later;
      pushed_ = true;
    }
  }
  if (tells) ring();
  return AtOnce::done;
}

// It is in the ring, which the peer reads to its end: so it is done as one that was posted, under the same touch.
AtOnce Lane::send_now(std::span<const std::byte> head, std::span<const std::byte> tail) {
  if (broken_ || !urgent_.empty() || ordered_in_bulk_ > 0) return AtOnce::later;
  {
    const Touch touch(*pair_);
    if (!touch.allowed() || !send_message(head, tail)) return AtOnce::later;
  }
  ring();
  return AtOnce::done;
}

[[gnu::flatten]] AtOnce HostTransport::move_now(const SmallMove& move) {
  Link* link = find(move.link);
  if (closed_ || link == nullptr || link->state != LinkState::up) return AtOnce::later;
  auto* import = imports_.find(move.remote_handle, link->peer);
  if (import == nullptr) return AtOnce::later;
  return link->lane->move_now(move, import->region, import->extra);
}

[[gnu::flatten]] AtOnce HostTransport::send_now(LinkId id, std::span<const std::byte> head,
                                                std::span<const std::byte> tail) {
  Link* link = find(id);
  if (closed_ || link == nullptr || link->state != LinkState::up) return AtOnce::later;
  return link->lane->send_now(head, tail);
}

}  // namespace fairway::transport::host
