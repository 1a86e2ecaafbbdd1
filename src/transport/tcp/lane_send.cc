#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/bytes.h"
#include "core/counters.h"
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
// A payload from this length on begins at a multiple of kAlignment, as the memory on both sides mostly does. Then the
// kernel's copies take half the time (docs/tcp.md).
constexpr std::uint64_t kAligned = 1024;

// Pieces up to this length are copied beside each other, and all pieces where they fit into Inbox::gather(): the kernel
// takes one buffer faster than several.
constexpr std::size_t kScrap = 512;

constexpr auto kPad = [] {
  std::array<std::byte, kAlignment> bytes{};
  bytes.fill(kPadding);
  return bytes;
}();

bool is_ordered(Op op) {
  return op == Op::write_immediate || op == Op::message;
}

std::uint8_t padding_after(std::uint64_t at) {
  return static_cast<std::uint8_t>((kAlignment - at % kAlignment) % kAlignment);
}

}  // namespace

Header& Lane::header_of(const Entry& entry) {
  return entry.is_reply ? replies_[entry.index].header : flights_[entry.index].header;
}

void Lane::encode_head(const Entry& entry) {
  (entry.is_reply ? replies_[entry.index].head : flights_[entry.index].head) = encode(header_of(entry));
}

// Messages and immediates keep their order: none passes an immediate in bulk_.
void Lane::enqueue(Entry entry) {
  entry.bytes = static_cast<std::uint32_t>(kHeaderBytes + header_of(entry).payload_bytes());
  const bool ordered = !entry.is_reply && is_ordered(flights_[entry.index].command.slice.op);
  if (entry.bytes > kSmall || (ordered && ordered_in_bulk_ > 0)) {
    bulk_.push(entry);
    if (ordered) ++ordered_in_bulk_;
  } else {
    urgent_.push(entry);
    coalescible_ += !entry.is_reply && flights_[entry.index].command.slice.may_coalesce;
  }
}

// A place of replies_ beyond those of the peer's requests is for acknowledgements alone.
std::uint16_t Lane::take_reply() {
  if (free_replies_.empty()) {
    free_replies_.push_back(static_cast<std::uint16_t>(replies_.size()));
    replies_.emplace_back();
  }
  const std::uint16_t index = free_replies_.back();
  free_replies_.pop_back();
  replies_[index].table.clear();
  return index;
}

// It may wait for a frame to travel with: the user sees what it acknowledges, and may answer.
void Lane::acknowledge() {
  if (owed_ == kQueueDepth)
    return fail({ErrorCode::protocol_error, "tcp: the peer has more requests in flight than the protocol allows"});
  ++owed_;
  acks_wait_ = true;
}

// Acknowledgements ride on the first frame that has not begun; where there is none they get one of their own. The first
// `encoded` frames have their heads.
void Lane::attach_acks(std::size_t encoded) {
  for (std::size_t i = position_ > 0 ? 1 : 0; owed_ > 0; ++i) {
    if (i == wire_.size()) {
      const std::uint16_t index = take_reply();
      replies_[index].header = {};
      replies_[index].header.type = FrameType::taken;
      commit({.is_reply = true, .index = index, .bytes = kHeaderBytes});
    }
    Header& header = header_of(wire_[i]);
    const std::uint32_t more = std::min(owed_, Header::kMostAcks - header.acks);
    if (more == 0) continue;
    header.acks = static_cast<std::uint8_t>(header.acks + more);
    owed_ -= more;
    if (i < encoded) encode_head(wire_[i]);
  }
}

void Lane::reply(Header header, const Header* asked) {
  if (replies_.size() - free_replies_.size() >= kQueueDepth + kTakenFrames)
    return fail({ErrorCode::protocol_error, "tcp: the peer has more requests in flight than the protocol allows"});
  const std::uint16_t index = take_reply();
  Reply& reply = replies_[index];
  reply.header = header;
  if (asked != nullptr) {
    reply.asked = *asked;
    served_blocks_ += static_cast<std::uint32_t>(frame_table_.size());
    if (served_blocks_ > kMaxAskedBlocks)
      return fail({ErrorCode::protocol_error, "tcp: the peer's reads have more blocks than the protocol allows"});
    reply.table = frame_table_;
  }
  enqueue({.is_reply = true, .index = index});
}

// The contiguous bytes at byte `at` of a frame.
std::span<const std::byte> Lane::source(const Entry& entry, std::uint64_t at, ErrorCode& code) {
  code = ErrorCode::ok;
  if (at < entry.before) return std::span(kPad).first(entry.before).subspan(at);
  at -= entry.before;
  if (at >= entry.bytes) return std::span(kPad).first(entry.after).subspan(at - entry.bytes);
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

void Lane::align(Entry& entry) {
  const Header& header = header_of(entry);
  if (header.block_bytes() >= kAligned && header.payload_bytes() > header.table_bytes())
    entry.before = padding_after(planned_ + kHeaderBytes + header.table_bytes());
}

void Lane::commit(Entry entry) {
  align(entry);
  wire_.push(entry);
  planned_ += entry.whole();
}

// The same bytes as by plan(), without its lists. What cannot be sent so, also a frame whose memory is gone, is left to
// it.
bool Lane::send_alone() {
  constexpr std::uint32_t kAlone = Inbox::kGatherBytes - 2 * kAlignment;  // without padding
  const std::span<std::byte> buffer = inbox_.gather();
  if (urgent_.size() != 1 || !wire_.empty() || !bulk_.empty() || owed_ > Header::kMostAcks) return false;
  Entry entry = urgent_[0];
  if (entry.bytes > kAlone) return false;
  Header& header = header_of(entry);
  header.acks = static_cast<std::uint8_t>(owed_);
  encode_head(entry);
  align(entry);
  entry.after = padding_after(planned_ + entry.whole());
  for (std::size_t at = 0; at < entry.whole();) {
    ErrorCode code = ErrorCode::ok;
    const auto piece = source(entry, at, code);
    if (code != ErrorCode::ok) {
      header.acks = 0;
      return false;
    }
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), entry.whole() - at));
    std::memcpy(buffer.data() + at, piece.data(), size);
    if (size > kScrap) add(inbox_.copied_bytes, size);
    at += size;
  }
  urgent_.pop();
  owed_ = 0;
  if (!entry.is_reply) {
    Flight& flight = flights_[entry.index];
    flight.place = Place::sending;
    if (is_ordered(flight.command.slice.op)) unanswered_.push(entry);
  }
  wire_.push(entry);
  planned_ += entry.whole();
  const auto taken = channel_->send(buffer.first(entry.whole()));
  if (taken)
    sent(*taken);
  else
    fail(taken.status());
  return true;
}

bool Lane::plan() {
  std::uint64_t committed = 0;
  for (std::size_t i = 0; i < wire_.size(); ++i) committed += wire_[i].whole();
  const std::size_t encoded = wire_.size();
  while (committed < kPlanned && (!urgent_.empty() || !bulk_.empty())) {
    const bool from_bulk = urgent_.empty();
    const Entry entry = from_bulk ? bulk_.pop() : urgent_.pop();
    if (!entry.is_reply) {
      Flight& flight = flights_[entry.index];
      const Op op = flight.command.slice.op;
      if (from_bulk && is_ordered(op)) --ordered_in_bulk_;
      ErrorCode code = ErrorCode::ok;
      if (flight.header.type == FrameType::write && flight.header.block_bytes() > 0) (void)local_piece(flight, 0, code);
      if (code != ErrorCode::ok) {
        end(flight, code, Effect::not_applied);
        release(flight);
        continue;
      }
      flight.place = Place::sending;
      if (is_ordered(op)) unanswered_.push(entry);
    }
    commit(entry);
    committed += wire_.back().whole();
  }
  if (owed_ > 0) attach_acks(encoded);
  for (std::size_t i = encoded; i < wire_.size(); ++i) encode_head(wire_[i]);
  if (!wire_.empty()) {
    wire_.back().after = static_cast<std::uint8_t>(wire_.back().after + padding_after(planned_));
    planned_ += padding_after(planned_);
  }
  pieces_.clear();
  std::uint64_t at = position_, left = kBytesPerWrite;
  for (std::size_t i = 0; i < wire_.size() && left > 0 && pieces_.size() < kPiecesPerWrite; ++i, at = 0) {
    const std::uint64_t whole = wire_[i].whole();
    while (at < whole && left > 0 && pieces_.size() < kPiecesPerWrite) {
      ErrorCode code = ErrorCode::ok;
      const auto piece = source(wire_[i], at, code);
      if (code != ErrorCode::ok) {  // its header is sent already
        fail({ErrorCode::link_failed, "tcp: memory was deregistered while a frame of it was being sent"});
        return false;
      }
      pieces_.push_back(piece.first(static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), left))));
      at += pieces_.back().size();
      left -= pieces_.back().size();
    }
  }
  return true;
}

// Gathers what the kernel takes faster in one buffer.
Result<std::size_t> Lane::send_planned(std::uint64_t size) {
  const std::span<std::byte> buffer = inbox_.gather();
  const std::size_t most = size <= buffer.size() ? buffer.size() : kScrap;
  std::size_t at = 0, count = 0;
  for (const auto piece : pieces_) {
    if (piece.size() > std::min(most, buffer.size() - at)) {
      pieces_[count++] = piece;
      continue;
    }
    std::byte* const to = buffer.data() + at;
    std::memcpy(to, piece.data(), piece.size());
    if (piece.size() > kScrap) add(inbox_.copied_bytes, piece.size());
    at += piece.size();
    if (count > 0 && pieces_[count - 1].data() + pieces_[count - 1].size() == to)
      pieces_[count - 1] = {pieces_[count - 1].data(), pieces_[count - 1].size() + piece.size()};
    else
      pieces_[count++] = {to, piece.size()};
  }
  pieces_.resize(count);
  return count == 1 ? channel_->send(pieces_.front()) : channel_->send_pieces(pieces_);
}

void Lane::flush() {
  coalescible_ = held_ = 0;
  acks_wait_ = false;
  if (!first_.empty() && !broken_ && !closed_) {
    const auto taken = channel_->send(first_);
    if (!taken) return fail(taken.status());
    sent_ += *taken;
    first_.erase(first_.begin(), first_.begin() + static_cast<std::ptrdiff_t>(*taken));
    if (!first_.empty()) return;
  }
  if (!broken_ && !closed_ && send_alone()) return count_calls();
  while (!broken_ && !closed_ && (owed_ > 0 || !wire_.empty() || !urgent_.empty() || !bulk_.empty())) {
    if (!plan()) break;
    std::uint64_t offered = 0;
    for (const auto& piece : pieces_) offered += piece.size();
    const auto taken = send_planned(offered);
    if (!taken) {
      fail(taken.status());
      break;
    }
    sent(*taken);
    if (*taken < offered) break;  // full: the task wakes when the socket is writable
  }
  count_calls();
}

void Lane::sent(std::uint64_t bytes) {
  position_ += bytes;
  sent_ += bytes;
  while (!wire_.empty()) {
    Entry& first = wire_.front();
    if (!first.out && position_ >= std::uint64_t{first.before} + first.bytes) {
      first.out = true;
      frame_is_out(first);
    }
    if (position_ < first.whole()) return;
    position_ -= first.whole();
    (void)wire_.pop();
  }
}

// The peer may answer from now on, whatever padding is still to go.
void Lane::frame_is_out(const Entry& entry) {
  if (!entry.is_reply) {
    flights_[entry.index].place = Place::sent;
    return;
  }
  Reply& reply = replies_[entry.index];
  served_blocks_ -= static_cast<std::uint32_t>(reply.table.size());
  if (reply.table.size() > kKeptBlocks) reply.table = {};
  free_replies_.push_back(entry.index);
}

}  // namespace fairway::transport::tcp
