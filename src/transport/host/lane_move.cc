#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transport/command.h"
#include "transport/host/lane.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

// Moves slices by the CPU: through mapped memory, by cross-memory attach, or by records that the peer serves.
namespace fairway::transport::host {
namespace {

// Slices of at least this size use non-temporal stores: the target is unlikely to read them from the cache, and an
// ordinary store also reads its line first, which is 1.5 times the traffic. Measured: docs/shm.md.
constexpr std::size_t kStreamFrom = std::size_t{2} << 20;

// Copies bytes. The memories may overlap only if not `streaming`. Orders non-temporal stores before it returns.
void copy(std::byte* to, const std::byte* from, std::size_t size, bool streaming) {
#if defined(__SSE2__)
  constexpr std::size_t kLine = 64;
  if (streaming && size >= 4 * kLine && (from + size <= to || to + size <= from)) {
    const std::size_t head = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
    std::memcpy(to, from, head);
    to += head;
    from += head;
    size -= head;
    for (; size >= kLine; size -= kLine, to += kLine, from += kLine) {
      const auto* source = reinterpret_cast<const __m128i*>(from);
      auto* target = reinterpret_cast<__m128i*>(to);
      _mm_prefetch(reinterpret_cast<const char*>(from + 8 * kLine), _MM_HINT_T0);
      const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1), c = _mm_loadu_si128(source + 2),
                    d = _mm_loadu_si128(source + 3);
      _mm_stream_si128(target, a);
      _mm_stream_si128(target + 1, b);
      _mm_stream_si128(target + 2, c);
      _mm_stream_si128(target + 3, d);
    }
    std::memcpy(to, from, size);
    _mm_sfence();
    return;
  }
#endif
  static_cast<void>(streaming);
  if (size != 0) std::memmove(to, from, size);
}

constexpr std::uint64_t kPieceCost = 64;  // fixed cost of a piece, in bytes

std::uint64_t cost_of(std::uint64_t length) {
  return length + kPieceCost;
}

}  // namespace

void Lane::move_queued(std::uint64_t small, std::uint64_t large) {
  if (!batches_.empty()) collect_copies();
  if (broken_ || (urgent_.empty() && bulk_.empty())) return;
  more_ = false;
  const Touch touch(*pair_);
  if (!touch.allowed()) return fail({ErrorCode::link_failed, "the peer closed the link"});
  const std::uint64_t before = small;
  if (!drain(urgent_, small)) return;
  large -= std::min(large, before - small);
  drain(bulk_, large);
}

// False: the head of the queue waits.
bool Lane::drain(std::deque<std::uint32_t>& queue, std::uint64_t& budget) {
  while (!queue.empty() && !broken_) {
    Flight& flight = flights_[queue.front()];
    const bool stops = flight.queued > 0 && flight.code != ErrorCode::ok;  // failed, but a device still copies for it
    if (!flight.ended && !stops && advance(flight, budget) == Outcome::waits) return false;
    queue.pop_front();
    const Op op = flight.command.slice.op;
    if (&queue == &bulk_ && (op == Op::write_immediate || op == Op::message)) --ordered_in_bulk_;
    if (flight.ended && flight.asked == 0)
      release(flight);
    else
      flight.place = Place::asked;
  }
  return true;
}

Lane::Outcome Lane::advance(Flight& flight, std::uint64_t& budget) {
  const Slice& slice = flight.command.slice;
  if (slice.op == Op::message) {
    const auto bytes = flight.bytes.empty() ? std::span<const std::byte>(slice.local, slice.length)
                                            : std::span<const std::byte>(flight.bytes);
    if (!send_message(bytes)) return Outcome::waits;
    end(flight, ErrorCode::ok);
    return Outcome::ended;
  }
  auto* import = imports_.find(slice.remote_handle, peer_);
  if (import == nullptr) return refuse(flight, ErrorCode::not_found);
  Remote& remote = import->extra;
  if (remote.method == Method::pending) return Outcome::waits;
  if (remote.method == Method::cma && !pair_->no_cma.empty()) {
    remote.method = Method::bounced;
    remote.why += "; " + pair_->no_cma;
  }
  if (slice.op == Op::fetch_add || slice.op == Op::compare_swap) return atomic(flight, remote);
  const bool by_device =
      remote.method == Method::device || !reached_by_cpu(flight.command.local_kind) || slice.start_after != nullptr;
  while (!flight.cursor.done(slice)) {
    if (by_device) {
      const std::uint32_t before = flight.queued;
      const ErrorCode code = queue_copies(flight, remote, slice.length * slice.count <= kSmall);
      if (broken_) return Outcome::waits;
      if (code != ErrorCode::ok) return refuse(flight, code);
      if (flight.queued == before && !flight.cursor.done(slice)) return Outcome::waits;
      continue;
    }
    if (budget == 0) {
      more_ = true;
      return Outcome::waits;
    }
    const std::uint64_t before = budget;
    ErrorCode code = ErrorCode::ok;
    switch (remote.method) {
      case Method::mapped: code = copy_mapped(flight, remote, budget); break;
      case Method::cma: code = move_by_cma(flight, remote, budget); break;
      default: code = ask_pieces(flight, budget); break;
    }
    if (broken_) return Outcome::waits;
    if (code != ErrorCode::ok) return refuse(flight, code);
    if (budget == before && remote.method == Method::bounced && !flight.cursor.done(slice)) return Outcome::waits;
  }
  return finish(flight);
}

// A missing immediate is a gap: no later one may arrive, so the link breaks.
Lane::Outcome Lane::refuse(Flight& flight, ErrorCode code) {
  end(flight, code);
  if (flight.command.slice.op == Op::write_immediate)
    fail({ErrorCode::link_failed, "a write with immediate was refused"});
  return Outcome::ended;
}

Lane::Outcome Lane::finish(Flight& flight) {
  const Slice& slice = flight.command.slice;
  const bool tells = slice.op == Op::write_immediate;
  if (flight.asked > 0) return tells ? Outcome::waits : Outcome::asked;
  if (flight.code != ErrorCode::ok) return refuse(flight, flight.code);
  if (tells) {
    Record record;
    record.type = RecordType::immediate;
    record.immediate = slice.immediate;
    if (!send(record)) return Outcome::waits;
  }
  end(flight, ErrorCode::ok);
  return Outcome::ended;
}

// The next piece and its address in the peer's address space, resolved right before it is accessed.
ErrorCode Lane::next(Flight& flight, std::uint64_t most, Piece& piece, std::byte*& there) {
  const ErrorCode code = flight.cursor.next(flight.command, most, piece);
  if (code != ErrorCode::ok) return code;
  RegionView::Resolved at;
  const Slice& slice = flight.command.slice;
  const ErrorCode allowed =
      pair_->regions.resolve(flight.command.region, piece.remote_block, slice.length, needed_access(slice.op), at);
  there = at.address == nullptr ? nullptr : at.address + piece.offset;
  return allowed;
}

ErrorCode Lane::copy_mapped(Flight& flight, const Remote& remote, std::uint64_t& budget) {
  const Slice& slice = flight.command.slice;
  const bool streaming = slice.length >= kStreamFrom;
  while (budget > 0 && !flight.cursor.done(slice)) {
    Piece piece;
    std::byte* elsewhere = nullptr;
    const ErrorCode code = next(flight, budget, piece, elsewhere);
    if (code != ErrorCode::ok) return code;
    std::byte* there = remote.place(remote.file->map->address(), remote.file->map->size_bytes(),
                                    piece.remote_block + piece.offset, piece.length);
    if (there == nullptr) return ErrorCode::out_of_range;
    if (slice.op == Op::read)
      copy(piece.local, there, piece.length, streaming);
    else
      copy(there, piece.local, piece.length, streaming);
    flight.touched |= piece.length != 0;
    budget -= std::min(budget, cost_of(piece.length));
  }
  return ErrorCode::ok;
}

Status Lane::reach_into(std::span<const sys::Process::Span> spans, bool read) {
  sys::Process& process = pair_->process;
  const std::uint64_t before = process.system_calls();
  Status moved = read ? process.read(spans) : process.write(spans);
  add(counters_.system_calls, process.system_calls() - before);
  return moved;
}

ErrorCode Lane::move_by_cma(Flight& flight, Remote& remote, std::uint64_t& budget) {
  const Slice& slice = flight.command.slice;
  const BlockCursor before = flight.cursor;
  std::array<sys::Process::Span, sys::Process::kMaxSpans> spans;
  std::size_t count = 0;
  while (budget > 0 && count < spans.size() && !flight.cursor.done(slice)) {
    Piece piece;
    std::byte* there = nullptr;
    const ErrorCode code = next(flight, budget, piece, there);
    if (code != ErrorCode::ok) return code;
    if (piece.length != 0) spans[count++] = {piece.local, there, static_cast<std::size_t>(piece.length)};
    budget -= std::min(budget, cost_of(piece.length));
  }
  if (count == 0) return ErrorCode::ok;
  const std::span<const sys::Process::Span> all(spans.data(), count);
  const Status moved = reach_into(all, slice.op == Op::read);
  if (moved) {
    flight.touched = true;
    return ErrorCode::ok;
  }
  if (moved.code() == ErrorCode::link_failed) {
    pair_->gone = true;
    fail(moved);
    return ErrorCode::ok;
  }
  remote.method = Method::bounced;  // cross-memory attach no longer works: start again through the ring
  remote.why += "; " + moved.message();
  flight.cursor = before;
  return ErrorCode::ok;
}

ErrorCode Lane::ask_pieces(Flight& flight, std::uint64_t& budget) {
  const Slice& slice = flight.command.slice;
  while (budget > 0 && requests_.size() < kMaxRequests && !flight.cursor.done(slice)) {
    const BlockCursor before = flight.cursor;
    Piece piece;
    std::byte* there = nullptr;
    const ErrorCode code = next(flight, std::min<std::uint64_t>(budget, kMaxPiece), piece, there);
    if (code != ErrorCode::ok) return code;
    budget -= std::min(budget, cost_of(piece.length));
    if (piece.length == 0) continue;
    Record record;
    record.type = slice.op == Op::read ? RecordType::get : RecordType::put;
    record.region = flight.command.region;
    record.offset = piece.remote_block + piece.offset;
    record.length = static_cast<std::uint32_t>(piece.length);
    const bool sent = slice.op == Op::read ? send(record) : send(record, {piece.local, record.length});
    if (!sent) {
      flight.cursor = before;
      budget = 0;  // continues when there is room
      return ErrorCode::ok;
    }
    requests_.push_back({static_cast<std::uint32_t>(&flight - flights_.data()),
                         slice.op == Op::read ? piece.local : nullptr, record.length});
    ++flight.asked;
  }
  return ErrorCode::ok;
}

Lane::Outcome Lane::atomic(Flight& flight, const Remote& remote) {
  const Slice& slice = flight.command.slice;
  RegionView::Resolved at;
  const ErrorCode code = pair_->regions.resolve(flight.command.region, slice.remote_offset, 8, Access::atomic, at);
  if (code != ErrorCode::ok) return refuse(flight, code);
  if (reinterpret_cast<std::uintptr_t>(at.address) % 8 != 0) return refuse(flight, ErrorCode::invalid_argument);
  if (remote.method == Method::mapped) {
    std::byte* there =
        remote.place(remote.file->map->address(), remote.file->map->size_bytes(), slice.remote_offset, 8);
    if (there == nullptr) return refuse(flight, ErrorCode::out_of_range);
    if (reinterpret_cast<std::uintptr_t>(there) % 8 != 0) return refuse(flight, ErrorCode::invalid_argument);
    flight.value = apply_atomic(slice.op, there, slice.operand, slice.expected);
    end(flight, ErrorCode::ok);
    return Outcome::ended;
  }
  if (requests_.size() == kMaxRequests) return Outcome::waits;
  Record record;
  record.type = slice.op == Op::fetch_add ? RecordType::fetch_add : RecordType::compare_swap;
  record.region = flight.command.region;
  record.offset = slice.remote_offset;
  record.value = slice.operand;
  record.expected = slice.expected;
  if (!send(record)) return Outcome::waits;
  requests_.push_back({static_cast<std::uint32_t>(&flight - flights_.data()), nullptr, 0});
  ++flight.asked;
  return Outcome::asked;
}

bool Lane::send(const Record& record, std::span<const std::byte> payload) {
  if (!payload.empty()) {
    std::byte* to = writer_.payload(static_cast<std::uint32_t>(payload.size()), false);
    if (to == nullptr) return false;
    std::memcpy(to, payload.data(), payload.size());
    add(counters_.copied_bytes, payload.size());
  }
  if (!writer_.push(record)) return false;
  pushed_ = true;
  return true;
}

// One that is short lies in its record: one cache line crosses to the peer.
bool Lane::send_message(std::span<const std::byte> head, std::span<const std::byte> tail) {
  const std::size_t size = head.size() + tail.size();
  if (size <= kInlineBytes) {
    if (!writer_.push_inlined(head, tail)) return false;
  } else {
    Record record;
    record.type = RecordType::message;
    record.length = static_cast<std::uint32_t>(size);
    std::byte* const to = writer_.payload(record.length, false);
    if (to == nullptr) return false;
    if (!head.empty()) std::memcpy(to, head.data(), head.size());
    if (!tail.empty()) std::memcpy(to + head.size(), tail.data(), tail.size());
    if (!writer_.push(record)) return false;
  }
  add(counters_.copied_bytes, size);
  pushed_ = true;
  return true;
}

}  // namespace fairway::transport::host
