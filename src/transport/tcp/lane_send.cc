#include <algorithm>
#include <array>
#include <utility>

#include "core/bytes.h"
#include "transport/tcp/lane.h"

// Outgoing frames: they wait in two queues, then get their order in the stream, and go out in as few system calls as
// possible.
namespace fairway::transport::tcp {
namespace {

constexpr std::uint64_t kSmall = 16 * 1024;     // frames up to this size pass larger ones
constexpr std::uint64_t kPlanned = 256 * 1024;  // bytes with a fixed order in the stream
// Per system call: while it runs, acknowledgements wait in the socket's backlog, and a fast reader waits for the end of
// the call (docs/GOTCHAS.md).
constexpr std::uint64_t kBytesPerWrite = 512 * 1024;
constexpr std::size_t kPiecesPerWrite = 120;  // of one system call
constexpr std::size_t kKeptBlocks = 4096;     // a larger block table is freed after use

}  // namespace

std::uint64_t Lane::frame_bytes(const Entry& entry) const {
  const Header& header = entry.is_reply ? replies_[entry.index].header : flights_[entry.index].header;
  return kHeaderBytes + header.payload_bytes();
}

// Messages and immediates keep their order: none passes an immediate in bulk_.
void Lane::enqueue(Entry entry) {
  bool ordered = false;
  bool immediate = false;
  if (!entry.is_reply) {
    const Op op = flights_[entry.index].command.slice.op;
    immediate = op == Op::write_immediate;
    ordered = immediate || op == Op::message;
  }
  if (frame_bytes(entry) > kSmall || (ordered && ordered_in_bulk_ > 0)) {
    bulk_.push(entry);
    if (ordered) ++ordered_in_bulk_;
  } else {
    urgent_.push(entry);
    coalescible_ +=
        entry.is_reply ? replies_[entry.index].may_coalesce : flights_[entry.index].command.slice.may_coalesce;
  }
}

void Lane::reply(Header header, const Header* asked) {
  std::uint16_t index = 0;
  if (!free_replies_.empty()) {
    index = free_replies_.back();
    free_replies_.pop_back();
  } else if (replies_.size() < kQueueDepth) {
    index = static_cast<std::uint16_t>(replies_.size());
    replies_.emplace_back();
  } else {
    return fail({ErrorCode::protocol_error, "tcp: the peer has more requests in flight than the protocol allows"});
  }
  Reply& reply = replies_[index];
  reply.used = true;
  reply.header = header;
  // Answers the last frame received. It may wait only if the user sees that frame and may answer it.
  reply.may_coalesce =
      header.type == FrameType::done && (frame_.type == FrameType::message || frame_.has(Header::kImmediate));
  reply.table.clear();
  if (asked != nullptr) {
    reply.asked = *asked;
    served_blocks_ += static_cast<std::uint32_t>(frame_table_.size());
    if (served_blocks_ > kMaxAskedBlocks)
      return fail({ErrorCode::protocol_error, "tcp: the peer's reads have more blocks than the protocol allows"});
    reply.table = frame_table_;
  }
  reply.head = encode(reply.header);
  enqueue({true, index});
}

// The contiguous bytes at byte `at` of a frame.
std::span<const std::byte> Lane::source(const Entry& entry, std::uint64_t at, ErrorCode& code) {
  code = ErrorCode::ok;
  if (entry.is_reply) {
    const Reply& reply = replies_[entry.index];
    if (at < kHeaderBytes) return std::span<const std::byte>(reply.head).subspan(at);
    at -= kHeaderBytes;  // data: the blocks of the read
    const std::uint64_t block = at / reply.asked.length;
    const std::uint64_t within = at % reply.asked.length;
    RegionTable::Resolved found;
    code = regions_.resolve_for_cpu(reply.asked.region,
                                    reply.asked.has(Header::kTable) ? reply.table[block] : reply.asked.offset,
                                    reply.asked.length, Access::read, found);
    if (code != ErrorCode::ok) return {};
    return {found.address + within, reply.asked.length - within};
  }
  const Flight& flight = flights_[entry.index];
  if (at < kHeaderBytes) return std::span<const std::byte>(flight.head).subspan(at);
  at -= kHeaderBytes;
  if (at < flight.header.table_bytes()) return std::as_bytes(std::span(flight.table)).subspan(at);
  at -= flight.header.table_bytes();
  if (flight.header.type != FrameType::write) return std::span(flight.bytes).subspan(at);
  return local_piece(flight, at, code);
}

bool Lane::plan() {
  std::uint64_t committed = 0;
  for (std::size_t i = 0; i < wire_.size(); ++i) committed += frame_bytes(wire_[i]);
  while (committed < kPlanned && (!urgent_.empty() || !bulk_.empty())) {
    const bool from_bulk = urgent_.empty();
    const Entry entry = from_bulk ? bulk_.pop() : urgent_.pop();
    if (!entry.is_reply) {
      Flight& flight = flights_[entry.index];
      const Op op = flight.command.slice.op;
      if (from_bulk && (op == Op::write_immediate || op == Op::message)) --ordered_in_bulk_;
      ErrorCode code = ErrorCode::ok;
      if (flight.header.type == FrameType::write && flight.header.block_bytes() > 0) (void)local_piece(flight, 0, code);
      if (code != ErrorCode::ok) {
        end(flight, code, Effect::not_applied);
        release(flight);
        continue;
      }
      flight.place = Place::sending;
    }
    wire_.push(entry);
    committed += frame_bytes(entry);
  }
  pieces_.clear();
  std::uint64_t at = position_, room = kBytesPerWrite;
  for (std::size_t i = 0; i < wire_.size() && room > 0 && pieces_.size() < kPiecesPerWrite; ++i, at = 0) {
    const std::uint64_t whole = frame_bytes(wire_[i]);
    while (at < whole && room > 0 && pieces_.size() < kPiecesPerWrite) {
      ErrorCode code = ErrorCode::ok;
      const auto piece = source(wire_[i], at, code);
      if (code != ErrorCode::ok) {  // its header is sent already
        fail({ErrorCode::link_failed, "tcp: memory was deregistered while a frame of it was being sent"});
        return false;
      }
      pieces_.push_back(piece.first(static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), room))));
      at += pieces_.back().size();
      room -= pieces_.back().size();
    }
  }
  return true;
}

void Lane::flush() {
  coalescible_ = held_ = 0;
  if (!first_.empty() && !broken_ && !closed_) {
    const auto taken = channel_->send(first_);
    if (!taken) return fail(taken.status());
    first_.erase(first_.begin(), first_.begin() + static_cast<std::ptrdiff_t>(*taken));
    if (!first_.empty()) return;
  }
  while (!broken_ && !closed_ && (!wire_.empty() || !urgent_.empty() || !bulk_.empty())) {
    if (!plan()) break;
    std::uint64_t offered = 0;
    for (const auto& piece : pieces_) offered += piece.size();
    const auto taken = channel_->send_pieces(pieces_);
    if (!taken) {
      fail(taken.status());
      break;
    }
    sent(*taken);
    if (*taken < offered) break;  // full: the task wakes when there is room
  }
  count_calls();
}

void Lane::sent(std::uint64_t bytes) {
  position_ += bytes;
  while (!wire_.empty()) {
    const std::uint64_t whole = frame_bytes(wire_[0]);
    if (position_ < whole) return;
    position_ -= whole;
    const Entry entry = wire_.pop();
    if (entry.is_reply) {
      Reply& reply = replies_[entry.index];
      reply.used = false;
      served_blocks_ -= static_cast<std::uint32_t>(reply.table.size());
      if (reply.table.size() > kKeptBlocks) reply.table = {};
      free_replies_.push_back(entry.index);
    } else {
      flights_[entry.index].place = Place::sent;
    }
  }
}

}  // namespace fairway::transport::tcp
