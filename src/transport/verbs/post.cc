#include <cstring>
#include <utility>

#include "transport/verbs/transport.h"

// What becomes of a slice within post(): the transport's part and the lane's lie here together, so that a compiler
// makes one function of both.
namespace fairway::transport::verbs {
namespace {

constexpr bool is_plain(const Slice& slice) {
  return slice.shape == Shape::contiguous && slice.local_handle != 0 &&
         (slice.op == Op::write || slice.op == Op::read || slice.op == Op::write_immediate);
}

}  // namespace

Command* Lane::place(Op op) {
  const bool received = op == Op::message || op == Op::write_immediate;  // uses a credit
  if (broken_ || newest_ - oldest_ == kQueueDepth) return nullptr;
  if ((received && credits_.left() == 0) || (by_message(op) && free_outs_ == 0)) return nullptr;
  return &at(newest_).command;
}

void Lane::post(const Registration* local, const Key* remote) {
  Flight& flight = at(newest_++);
  const Slice& slice = flight.command.slice;
  const bool message = slice.op == Op::message, as_message = by_message(slice.op);
  flight.ended = flight.cancelled = false;
  flight.wrong = ErrorCode::ok;
  flight.first = flight.last = 0;
  flight.cursor = {};
  flight.remote = remote == nullptr ? Key() : *remote;
  const auto& lkeys = slice.op == Op::read ? &Registration::read_lkeys : &Registration::lkeys;
  flight.lkey = local == nullptr ? 0 : (local->*lkeys)[port_.index()];
  flight.gpu = local == nullptr ? nullptr : local->gpu;
  if (message || slice.op == Op::write_immediate) credits_.take();
  flight.out = as_message ? free_out_[--free_outs_] : kNoBuffer;
  if (message) {
    if (slice.length != 0) std::memcpy(memory_.out(flight.out) + header_bytes(), slice.local, slice.length);
    add(inbox_.copied_bytes, slice.length);
  }
}

// Each lane with new slices is flushed once, at the end, since the slices of a stripe alternate between lanes.
[[gnu::flatten]] std::size_t VerbsTransport::post(std::span<const Slice> slices) {
  const std::size_t taken = post_each(slices, [this](const Link& link, const Slice& slice) -> std::optional<ErrorCode> {
    End& end = ends_[link.id.slot];
    Command* const command = end.lane->place(slice.op);
    if (command == nullptr) return std::nullopt;
    const Registration* local = nullptr;
    const Key* remote = nullptr;
    const ErrorCode code = is_plain(slice) ? check_plain(link, slice, *command, local, remote)
                                           : check(link, slice, *command, local, remote);
    if (code != ErrorCode::ok) return code;
    end.lane->post(local, remote);
    if (!std::exchange(end.rings, true)) ringing_.push_back(&end);
    return code;
  });
  for (End* end : ringing_) {
    end->rings = false;
    end->lane->flush();
  }
  ringing_.clear();
  return taken;
}

// Checks bounds and permissions of the remote side too, since the peer's NIC would end the queue pair on a violation.
// Only the peer knows whether the region is still registered.
[[gnu::noinline]] ErrorCode VerbsTransport::check(const Link& link, const Slice& slice, Command& out,
                                                  const Registration*& local, const Key*& remote) {
  Import* import = nullptr;
  const ErrorCode code = prepare(link, slice, out, &import);
  if (code != ErrorCode::ok || slice.op == Op::message) return code;
  const Remote& far = import->extra;
  remote = far.at(link.peer_device);
  if (remote == nullptr) return ErrorCode::not_found;
  if (!includes(far.access, needed_access(slice.op))) return ErrorCode::access_denied;
  if (slice.op == Op::fetch_add || slice.op == Op::compare_swap) {
    if (slice.remote_offset > far.size_bytes || far.size_bytes - slice.remote_offset < 8)
      return ErrorCode::out_of_range;
    return (remote->address + slice.remote_offset) % 8 == 0 ? ErrorCode::ok : ErrorCode::invalid_argument;
  }
  if (const ErrorCode blocks = check_blocks(out, far.size_bytes, kMaxBlocks, kMaxSliceBytes); blocks != ErrorCode::ok)
    return blocks;
  if (out.local_begin == nullptr) return ErrorCode::ok;
  local = registrations_.find(slice.local_handle);
  if (local == nullptr) return ErrorCode::revoked;
  if (!local->is_at(link.device)) return ErrorCode::unsupported;
  return slice.op == Op::read && !local->writable ? ErrorCode::access_denied : ErrorCode::ok;
}

// The same, in the same order, for what most slices are: one block of a region. What the region's table says of it was
// kept when it was registered, and holds while its generation is live.
ErrorCode VerbsTransport::check_plain(const Link& link, const Slice& slice, Command& out, const Registration*& local,
                                      const Key*& remote) {
  const Capabilities& can = devices_[link.device].capabilities;
  if ((can.operations & static_cast<Bits>(slice.op)) == 0) return ErrorCode::unsupported;
  const Import* const import = imports_.find(slice.remote_handle, link.peer);
  if (import == nullptr) return ErrorCode::not_found;
  if (slice.length > can.max_slice_bytes) return ErrorCode::invalid_argument;
  local = registrations_.find(slice.local_handle);
  if (local == nullptr) return ErrorCode::revoked;
  const Region& memory = local->memory;
  if (!regions_.slot_of(memory.id).is_live(memory.id.generation)) return ErrorCode::revoked;
  const auto from = static_cast<std::uint64_t>(slice.local - memory.address);  // huge if it lies before
  if (from > memory.size_bytes) return ErrorCode::out_of_range;
  const Remote& far = import->extra;
  remote = far.at(link.peer_device);
  if (remote == nullptr) return ErrorCode::not_found;
  if (!includes(far.access, needed_access(slice.op))) return ErrorCode::access_denied;
  if (slice.remote_offset > far.size_bytes || slice.length > far.size_bytes - slice.remote_offset ||
      slice.length > memory.size_bytes - from)
    return ErrorCode::out_of_range;
  if (!local->is_at(link.device)) return ErrorCode::unsupported;
  if (slice.op == Op::read && !local->writable) return ErrorCode::access_denied;
  // By fields, those of other shapes left out: compilers copy a whole Slice byte by byte.
  Slice& mine = out.slice;
  mine.op = slice.op;
  mine.shape = Shape::contiguous;
  mine.token = slice.token;
  mine.local = slice.local;
  mine.local_handle = slice.local_handle;
  mine.remote_offset = slice.remote_offset;
  mine.length = slice.length;
  mine.immediate = slice.immediate;
  mine.count = 1;
  out.region = import->region;
  out.local_begin = memory.address;
  out.local_size = memory.size_bytes;
  out.local_kind = memory.kind;
  return ErrorCode::ok;
}

}  // namespace fairway::transport::verbs
