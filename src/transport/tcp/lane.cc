#include "transport/tcp/lane.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/bytes.h"
#include "core/counters.h"
#include "core/crc32c.h"

// Slices: post() makes each a flight, which gets one event once the peer has answered.
namespace fairway::transport::tcp {
namespace {

static_assert(std::endian::native == std::endian::little, "block tables travel as they lie in memory");

bool is_atomic(Op op) {
  return op == Op::fetch_add || op == Op::compare_swap;
}

FrameType type_of(Op op) {
  switch (op) {
    case Op::write:
    case Op::write_immediate: return FrameType::write;
    case Op::read: return FrameType::read;
    case Op::message: return FrameType::message;
    case Op::fetch_add: return FrameType::fetch_add;
    case Op::compare_swap: break;
  }
  return FrameType::compare_swap;
}

}  // namespace

Lane::Lane(std::unique_ptr<Channel> channel, LinkId link, RegionTable& regions, Inbox& inbox,
           std::span<const std::byte> first)
    : link_(link), regions_(regions), inbox_(inbox), channel_(std::move(channel)), first_(first.begin(), first.end()) {
  pieces_.reserve(128);
}

bool Lane::post(const Command& command) {
  if (broken_ || closed_) return false;
  const bool lists = command.slice.op == Op::read && command.slice.shape != Shape::contiguous;
  if (lists && asked_blocks_ + command.slice.count > kMaxAskedBlocks) return false;
  std::uint16_t index = 0;
  if (!free_flights_.empty()) {
    index = free_flights_.back();
    free_flights_.pop_back();
  } else if (flights_.size() < kQueueDepth) {
    index = static_cast<std::uint16_t>(flights_.size());
    flights_.emplace_back();
  } else {
    return false;
  }
  Flight& flight = flights_[index];
  flight.command = command;
  flight.place = Place::waiting;
  flight.ended = false;
  ++flight.generation;
  build(flight, index);
  asked_blocks_ += lists ? command.slice.count : 0;
  enqueue({.index = index});
  return true;
}

// Builds the frame of a slice: everything but the payload, which stays in the caller's memory until it is sent.
void Lane::build(Flight& flight, std::uint16_t index) {
  const Slice& slice = flight.command.slice;
  Header& header = flight.header;
  header = {};
  header.type = type_of(slice.op);
  header.token = static_cast<std::uint32_t>(flight.generation) << 16 | index;
  header.region = flight.command.region;
  header.offset = slice.remote_offset;
  header.length = slice.length;
  header.count = slice.count;
  flight.table.clear();
  flight.bytes.clear();
  if (slice.op == Op::write_immediate) {
    header.flags |= Header::kImmediate;
    header.immediate = slice.immediate;
  }
  if (slice.shape != Shape::contiguous) {
    header.flags |= Header::kTable;
    flight.table.resize(slice.count);
    for (std::uint32_t i = 0; i < slice.count; ++i)
      flight.table[i] =
          slice.remote_offset +
          (slice.shape == Shape::indexed ? slice.remote_index[i] : std::uint64_t{i}) * slice.remote_stride;
  } else {
    header.count = 1;
  }
  if (slice.op == Op::message) flight.bytes.assign(slice.local, slice.local + slice.length);
  if (is_atomic(slice.op)) {
    header.length = 8;
    flight.bytes.resize(16);
    ByteWriter(flight.bytes).put(slice.operand).put(slice.expected);
  }
  // Block tables, messages and operands have a checksum.
  if (header.has(Header::kTable)) header.offset = crc32c(0, std::as_bytes(std::span(flight.table)));
  if (!flight.bytes.empty()) header.immediate = crc32c(0, flight.bytes);
}

// The local memory at byte `at` of a slice, to the end of its block. Resolved each time, since it may be revoked.
std::span<std::byte> Lane::local_piece(const Flight& flight, std::uint64_t at, ErrorCode& code) {
  const Slice& slice = flight.command.slice;
  const bool one = slice.shape == Shape::contiguous || slice.length == 0;
  const std::uint64_t block = one ? 0 : at / slice.length;
  const std::uint64_t within = one ? at : at % slice.length;
  std::uint64_t offset = static_cast<std::uint64_t>(slice.local - flight.command.local_begin);
  std::uint64_t distance = 0;
  if (slice.shape != Shape::contiguous) {
    const std::uint64_t units = slice.shape == Shape::indexed ? slice.local_index[block] : block;
    if (__builtin_mul_overflow(units, slice.local_stride, &distance) ||
        __builtin_add_overflow(offset, distance, &offset)) {
      code = ErrorCode::out_of_range;
      return {};
    }
  }
  RegionTable::Resolved found;
  code = regions_.resolve(region_of(slice.local_handle), offset, slice.length, Access::none, found);
  if (code != ErrorCode::ok) return {};
  return {found.address + within, slice.length - within};
}

void Lane::end(Flight& flight, ErrorCode code, Effect effect, std::uint64_t value) {
  if (flight.ended) return;
  flight.ended = true;
  Event& event = inbox_.add(code == ErrorCode::ok ? EventKind::done : EventKind::failed);
  event.token = flight.command.slice.token;
  event.link = link_;
  event.value = value;
  if (code != ErrorCode::ok)
    event.status = Status(code, code == ErrorCode::link_failed ? "the connection broke before the peer answered"
                                                               : describe_failure(code))
                       .with_effect(effect);
}

void Lane::release(Flight& flight) {
  flight.place = Place::free;
  if (flight.header.type == FrameType::read && flight.header.has(Header::kTable)) asked_blocks_ -= flight.header.count;
  free_flights_.push_back(static_cast<std::uint16_t>(&flight - flights_.data()));
}

Lane::Flight* Lane::find(std::uint32_t token) {
  const std::uint32_t index = token & 0xffff;
  if (index >= flights_.size()) return nullptr;
  Flight& flight = flights_[index];
  return flight.place == Place::sent && flight.generation == token >> 16 ? &flight : nullptr;
}

void Lane::cancel(SliceToken token) {
  for (std::uint16_t i = 0; i < flights_.size(); ++i) {
    Flight& flight = flights_[i];
    if (flight.place == Place::free || flight.ended || flight.command.slice.token != token) continue;
    const bool bulk = bulk_.remove({.index = i});
    const Op op = flight.command.slice.op;
    if (bulk && (op == Op::write_immediate || op == Op::message)) --ordered_in_bulk_;
    const bool urgent = !bulk && urgent_.remove({.index = i});
    if (urgent) coalescible_ -= flight.command.slice.may_coalesce && coalescible_ > 0;
    if (bulk || urgent) {
      end(flight, ErrorCode::cancelled, Effect::not_applied);
      release(flight);
    } else if (flight.command.slice.op == Op::read && flight.place == Place::sent) {
      end(flight, ErrorCode::cancelled, Effect::not_applied);  // its data will be discarded
    }
    return;
  }
}

void Lane::stop_memory(RegionId local) {
  for (std::uint16_t i = 0; i < flights_.size(); ++i) {
    Flight& flight = flights_[i];
    if (flight.place == Place::free || flight.ended || region_of(flight.command.slice.local_handle) != local) continue;
    if (flight.place == Place::sending && flight.command.slice.op != Op::read)
      return fail({ErrorCode::link_failed, "tcp: memory was deregistered while a frame of it was being sent"});
    cancel(flight.command.slice.token);
  }
}

void Lane::fail(Status why) {
  if (broken_ || closed_) return;
  broken_ = true;
  inbox_.add(EventKind::link_down, link_, std::move(why));
}

void Lane::close() {
  if (closed_) return;
  closed_ = true;
  count_calls();
  channel_.reset();
  for (Flight& flight : flights_) {
    if (flight.place == Place::free) continue;
    const bool begun = flight.place != Place::waiting;
    const bool harmless = flight.command.slice.op == Op::read;
    end(flight, ErrorCode::link_failed, begun && !harmless ? Effect::unknown : Effect::not_applied);
    flight.place = Place::free;
  }
}

std::uint64_t Lane::moved() const {
  const std::uint64_t waiting = channel_ ? channel_->unacknowledged() : 0;
  return received_ + sent_ - std::min(waiting, sent_);
}

void Lane::count_calls() {
  if (!channel_) return;
  const std::uint64_t made = channel_->system_calls();
  add(inbox_.system_calls, made - std::exchange(calls_counted_, made));
}

Lane::Entry Lane::Fifo::pop() {
  const Entry entry = entries_[head_];
  head_ = (head_ + 1) % entries_.size();
  --count_;
  return entry;
}

bool Lane::Fifo::remove(Entry entry) {
  for (std::size_t i = 0; i < count_; ++i) {
    if ((*this)[i].is_reply != entry.is_reply || (*this)[i].index != entry.index) continue;
    for (; i + 1 < count_; ++i) entries_[(head_ + i) % entries_.size()] = (*this)[i + 1];
    --count_;
    return true;
  }
  return false;
}

}  // namespace fairway::transport::tcp
