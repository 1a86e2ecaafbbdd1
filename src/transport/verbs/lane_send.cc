#include <algorithm>
#include <bit>

#include "core/bytes.h"
#include "transport/verbs/lane.h"

// Posts work requests: walks slices block by block into chains, each posted with one doorbell. A run of requests has
// one signaled completion, at its end, since the NIC executes them in order.
namespace fairway::transport::verbs {
namespace {

constexpr std::uint64_t kRunBytes = 32 * 1024;  // a run ends after so many bytes, so its slices complete early

constexpr std::uint32_t big_endian(std::uint32_t value) {
  return std::endian::native == std::endian::little ? __builtin_bswap32(value) : value;
}

}  // namespace

// What most slices need becomes one function, so that its registers are saved once for all of them.
[[gnu::flatten]] void Lane::flush() {
  if (probe_due_ && !broken_ && !window_.is_full()) send_probe();
  if (awaits_first_ && !broken_) return;
  while (!broken_ && building_ != newest_) {
    Flight& flight = at(building_);
    if (!flight.ended && !(is_plain(flight) ? build_plain(flight) : build(flight))) break;
    ++building_;
    if (run_bytes_ >= kRunBytes) end_run();
  }
  if (broken_) return;
  if (credits_.update_due() && !window_.is_full()) send_credits();
  if (window_.run_is_open()) end_run();
  ring();
  pop_ended();
}

bool Lane::is_plain(const Flight& flight) const {
  const Op op = flight.command.slice.op;
  const bool whole = op == Op::write || op == Op::read || (op == Op::write_immediate && !no_immediates_);
  return whole && flight.command.slice.shape == Shape::contiguous && !flight.cancelled;
}

// What build() makes of one block, whose bounds post() has checked: one request with one gather entry.
bool Lane::build_plain(Flight& flight) {
  const Slice& slice = flight.command.slice;
  const bool reads = slice.op == Op::read;
  if (!reads && run_writes_ && port_.read_back() && run_word_ != flush_word_of(flight)) end_run();
  if (window_.is_full()) return false;
  abi::SendRequest& request = next_request(&flight, reads ? abi::kRead : abi::kWrite);
  request.remote.rdma = {flight.remote.address + slice.remote_offset, flight.remote.rkey};
  gather(request, slice.local, slice.length, flight.lkey);
  if (!reads) {
    if (slice.length <= pair_->inline_bytes() && flight.gpu == nullptr) request.flags = abi::kInline;
    if (slice.op == Op::write_immediate) {
      request.opcode = abi::kWriteImmediate;
      request.immediate = big_endian(slice.immediate);
    }
    run_writes_ = true;
    if (port_.read_back()) run_word_ = flush_word_of(flight);
  }
  run_bytes_ += slice.length;
  if (window_.run_is_long()) end_run();
  return true;
}

[[gnu::noinline]] bool Lane::build(Flight& flight) {
  const Op op = flight.command.slice.op;
  const bool moves = op == Op::write || op == Op::read || op == Op::write_immediate;
  while (!flight.cancelled && flight.wrong == ErrorCode::ok && !broken_) {
    const bool moved = moves && flight.cursor.done(flight.command.slice);
    if (moved && !by_message(op)) break;
    if (moves && !moved && run_writes_ && op != Op::read && run_word_ != flush_word_of(flight)) end_run();
    if (window_.is_full()) return false;
    if (moves && !moved)
      build_move(flight);
    else if (by_message(op))
      build_message(flight);
    else
      build_atomic(flight);
    if (window_.run_is_long()) end_run();
    if (moved || !moves) break;
  }
  if (flight.wrong != ErrorCode::ok && flight.first == 0)
    end(flight, flight.wrong, Effect::not_applied, "a block leaves the local memory");
  return true;
}

// One request: blocks that are contiguous at the target, from up to kGathers local places.
void Lane::build_move(Flight& flight) {
  const Slice& slice = flight.command.slice;
  Piece piece;
  flight.wrong = flight.cursor.next(flight.command, kMaxSliceBytes, piece);
  if (flight.wrong != ErrorCode::ok) return;
  abi::SendRequest& request = next_request(&flight, slice.op == Op::read ? abi::kRead : abi::kWrite);
  request.remote.rdma.address = flight.remote.address + piece.remote_block;
  request.remote.rdma.rkey = flight.remote.rkey;
  const std::size_t most_gathers = slice.op == Op::read ? most_read_gathers_ : most_gathers_;
  std::uint64_t bytes = 0;
  for (;;) {
    gather(request, piece.local, piece.length, flight.lkey);
    bytes += piece.length;
    if (flight.cursor.done(slice)) break;
    BlockCursor ahead = flight.cursor;
    const std::uint64_t next = piece.remote_block + piece.length;
    if (ahead.next(flight.command, kMaxSliceBytes, piece) != ErrorCode::ok || piece.remote_block != next) break;
    const abi::Gather& last = request.gather[std::max(request.gather_count, 1) - 1];
    const bool joins = last.address + last.length == reinterpret_cast<std::uintptr_t>(piece.local);
    if (!joins && request.gather_count == static_cast<int>(most_gathers)) break;
    flight.cursor = ahead;
  }
  if (slice.op != Op::read && bytes <= pair_->inline_bytes() && flight.gpu == nullptr) request.flags |= abi::kInline;
  if (slice.op == Op::write_immediate && !no_immediates_ && flight.cursor.done(slice)) {
    request.opcode = abi::kWriteImmediate;
    request.immediate = big_endian(slice.immediate);
  }
  if (slice.op != Op::read) {
    run_writes_ = true;
    run_word_ = flush_word_of(flight);
  }
  run_bytes_ += bytes;
}

// Carries a credit update too.
void Lane::build_message(Flight& flight) {
  const Slice& slice = flight.command.slice;
  const bool message = slice.op == Op::message;
  const std::uint64_t length = header_bytes() + (message ? slice.length : 0);
  abi::SendRequest& request = next_request(&flight, no_immediates_ ? abi::kSend : abi::kSendImmediate);
  const std::uint32_t granted = credits_.take_update();
  using Kind = MessageHeader::Kind;
  if (no_immediates_)
    write_header(memory_.out(flight.out), {granted, message ? Kind::message : Kind::immediate, slice.immediate});
  else
    request.immediate = big_endian(granted);
  gather(request, memory_.out(flight.out), length, memory_region_->lkey);
  if (length <= pair_->inline_bytes()) request.flags |= abi::kInline;
  if (port_.iwarp() && !run_writes_) {
    run_writes_ = true;
    run_word_ = {theirs_.word, theirs_.word_key};
  }
}

[[gnu::noinline]] void Lane::send_credits() {
  abi::SendRequest& request = next_request(nullptr, no_immediates_ ? abi::kSend : abi::kSendImmediate);
  const std::uint32_t granted = credits_.take_update();
  if (!no_immediates_) {
    request.immediate = big_endian(granted | ~Credits::kMask);
    return;
  }
  std::byte* const word = memory_.word(next_word_++ % kSpareReceives);
  write_header(word, {granted, MessageHeader::Kind::credits, 0});
  gather(request, word, MessageHeader::kBytes, memory_region_->lkey);
}

// A credit update as large as the path MTU: if such packets do not get through, the link fails before anything uses it.
[[gnu::noinline]] void Lane::send_probe() {
  probe_due_ = false;
  send_credits();
  if (!no_immediates_) gather(chain_[chained_ - 1], memory_.out(0), mtu_bytes(), memory_region_->lkey);
  end_run();
  ring();
}

void Lane::write_header(std::byte* at, const MessageHeader& header) {
  ByteWriter(std::span(at, MessageHeader::kBytes))
      .put(header.credits)
      .put(static_cast<std::uint32_t>(header.kind))
      .put(header.value)
      .put(std::uint32_t{0});
}

void Lane::build_atomic(Flight& flight) {
  const Slice& slice = flight.command.slice;
  const bool add = slice.op == Op::fetch_add;
  abi::SendRequest& request = next_request(&flight, add ? abi::kFetchAdd : abi::kCompareSwap);
  request.remote.atomic.address = flight.remote.address + slice.remote_offset;
  request.remote.atomic.rkey = flight.remote.rkey;
  request.remote.atomic.compare_add = add ? slice.operand : slice.expected;
  request.remote.atomic.swap = slice.operand;
  gather(request, memory_.result(static_cast<std::size_t>(&flight - flights_.data())), 8, memory_region_->lkey);
}

abi::SendRequest& Lane::next_request(Flight* flight, int opcode) {
  if (chained_ == kChain) ring();
  abi::SendRequest& request = chain_[chained_];
  request.id = window_.post();
  request.next = nullptr;
  request.gather = gathers_[chained_++].data();
  request.gather_count = 0;
  request.opcode = opcode;
  request.flags = 0;
  if (flight != nullptr) {
    if (flight->first == 0) flight->first = request.id;
    flight->last = request.id;
  }
  return request;
}

void Lane::gather(abi::SendRequest& request, const std::byte* from, std::uint64_t size, std::uint32_t lkey) {
  if (size == 0) return;
  const auto address = reinterpret_cast<std::uintptr_t>(from);
  if (request.gather_count > 0) {
    abi::Gather& last = request.gather[request.gather_count - 1];
    if (last.address + last.length == address) {
      last.length += static_cast<std::uint32_t>(size);
      return;
    }
  }
  request.gather[request.gather_count++] = {address, static_cast<std::uint32_t>(size), lkey};
}

// The last request of the run is signaled. If the NIC acknowledges writes before the target's CPU can see them, that is
// a read after the writes: its response pushes them over the target's bus into memory.
void Lane::end_run() {
  if (!window_.run_is_open()) return;
  if (run_writes_ && port_.read_back()) {
    abi::SendRequest& request = next_request(nullptr, abi::kRead);
    request.remote.rdma.address = run_word_.address;
    request.remote.rdma.rkey = run_word_.rkey;
    gather(request, memory_.sink(), 8, (sink_region_ ? sink_region_ : memory_region_)->lkey);
  }
  chain_[chained_ - 1].flags |= abi::kSignaled;
  window_.end_run();
  run_bytes_ = 0;
  run_writes_ = false;
}

void Lane::ring() {
  if (chained_ == 0) return;
  const abi::SendRequest& last = chain_[chained_ - 1];
  for (std::size_t i = 0; i + 1 < chained_; ++i) chain_[i].next = &chain_[i + 1];
  chained_ = 0;
  if (broken_) return;
  const auto posted = pair_->post(chain_[0]);
  rung_ = posted.refused == nullptr ? last.id : posted.refused->id - 1;
  if (!posted.all) fail({ErrorCode::link_failed, "verbs: ibv_post_send failed"});
}

}  // namespace fairway::transport::verbs
