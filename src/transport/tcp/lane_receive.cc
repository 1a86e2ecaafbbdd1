#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "core/bytes.h"
#include "core/counters.h"
#include "core/crc32c.h"
#include "transport/command.h"
#include "transport/tcp/lane.h"

// Incoming frames: parses the header, reads the payload to its place, then executes the frame. The peer may be hostile:
// every access is resolved in the region table.
namespace fairway::transport::tcp {
namespace {

constexpr std::uint64_t kDirect = 2048;  // a payload of which so much is still to come is read to where it belongs
constexpr std::size_t kLittle = 2048;    // read ahead where a large frame may come: what of it is in there is copied
constexpr std::uint64_t kLarge = 32 * 1024;
constexpr std::uint32_t kAfterLarge = 16;  // frames after a large one of which each may be another
constexpr std::size_t kPiecesPerRead = 64;
constexpr std::uint32_t kDryReads = 4;  // reads without bytes in the middle of a payload, before other lanes' turn

// The length of the padding that they begin with, eight bytes at a time.
std::size_t padding_before(std::span<const std::byte> bytes) {
  static_assert(kPadding == std::byte{0xff});
  std::size_t size = 0;
  for (std::uint64_t word = 0; bytes.size() - size >= sizeof word; size += sizeof word) {
    std::memcpy(&word, bytes.data() + size, sizeof word);
    if (~word != 0) break;
  }
  while (size < bytes.size() && bytes[size] == kPadding) ++size;
  return size;
}

bool is_done_code(std::uint32_t code) {
  switch (static_cast<ErrorCode>(code)) {
    case ErrorCode::ok:
    case ErrorCode::revoked:
    case ErrorCode::out_of_range:
    case ErrorCode::access_denied:
    case ErrorCode::invalid_argument: return true;
    default: return false;
  }
}

}  // namespace

void Lane::receive(std::uint64_t& budget) {
  more_ = false;
  dry_ = rest_ = 0;
  ++quiet_;
  std::size_t ahead = kLittle;
  while (!broken_ && !closed_) {
    if (budget == 0 || !inbox_.has_space()) {
      more_ = true;
      break;
    }
    if (in_payload_ && payload_ - payload_at_ >= kDirect) {
      if (!receive_directly(budget)) break;
      continue;
    }
    const auto left = in_payload_ ? static_cast<std::size_t>(payload_ - payload_at_) : 0;
    const auto staging =
        inbox_.staging().first(large_due_ > 0 ? std::max(ahead, left + kLittle) : Inbox::kStagingBytes);
    const auto got = channel_->receive(staging);
    if (!got) {
      fail(got.status());
      break;
    }
    if (*got == 0) break;
    quiet_ = 0;
    received_ += *got;
    budget -= std::min<std::uint64_t>(budget, *got);
    parse(staging.first(*got));
    if (*got < staging.size()) break;                   // a short read: the next bytes announce themselves
    ahead = std::min(4 * ahead, Inbox::kStagingBytes);  // many small frames
  }
  if (quiet_ == 0 && !more_ && !in_payload_ && head_bytes_ == 0) rest_ = kRestPolls;
  if (quiet_ == 0 && wakes_ && ++in_use_ == kReadsInUse && channel_ != nullptr) {
    wakes_ = channel_->wake_for_input(false);
    in_use_ = 0;
  }
  count_calls();
}

void Lane::wake_for_input() {
  wakes_ = channel_ == nullptr || channel_->wake_for_input(true);
  in_use_ = 0;
}

// Reads the rest of a payload to where it belongs, and what comes behind it (a little, if that may be large): the next
// header needs no call of its own, and a stream that ends here no call that finds nothing. False: nothing more for now.
bool Lane::receive_directly(std::uint64_t& budget) {
  std::array<std::span<std::byte>, kPiecesPerRead + 1> pieces;
  std::size_t count = 0;
  std::uint64_t wanted = 0;
  // The places of blocks are known only once the whole table is here.
  const std::uint64_t end = payload_at_ < frame_.table_bytes() ? frame_.table_bytes() : payload_;
  const std::uint64_t left = std::min(end - payload_at_, budget);
  while (wanted < left && count < kPiecesPerRead) {
    auto piece = place(payload_at_ + wanted);
    if (piece.empty()) piece = inbox_.sink();
    piece = piece.first(static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), left - wanted)));
    pieces[count++] = piece;
    wanted += piece.size();
  }
  if (broken_) return false;
  const std::size_t ahead = large_due_ > 0 ? kLittle : Inbox::kStagingBytes;
  const std::size_t behind = payload_at_ + wanted == payload_ ? ahead : 0;
  if (behind > 0) pieces[count++] = inbox_.staging().first(behind);
  const auto got = channel_->receive_pieces(std::span(pieces).first(count));
  if (!got) {
    fail(got.status());
    return false;
  }
  const std::uint64_t here = std::min<std::uint64_t>(*got, wanted);
  payload_at_ += here;
  received_ += *got;
  budget -= std::min<std::uint64_t>(budget, *got);
  if (*got > 0) quiet_ = 0;
  if (payload_at_ == payload_) end_frame();
  if (*got > wanted) parse(inbox_.staging().first(static_cast<std::size_t>(*got - wanted)));
  if (*got == wanted + behind) return true;
  // More of a payload is likely to arrive soon, and a few more reads cost less than a turn of the worker.
  if (!in_payload_) return false;
  dry_ = *got == 0 ? dry_ + 1 : 0;
  return dry_ < kDryReads;
}

void Lane::parse(std::span<const std::byte> bytes) {
  while (!bytes.empty() && !broken_) {
    if (!in_payload_) {
      if (head_bytes_ == 0 && bytes.front() == kPadding) {
        bytes = bytes.subspan(padding_before(bytes));
        continue;
      }
      if (head_bytes_ == 0 && bytes.size() >= kHeaderBytes) {
        const auto head = bytes.first<kHeaderBytes>();
        bytes = bytes.subspan(kHeaderBytes);
        begin_frame(head);
        continue;
      }
      const std::size_t size = std::min(bytes.size(), kHeaderBytes - head_bytes_);
      std::memcpy(head_.data() + head_bytes_, bytes.data(), size);
      head_bytes_ += size;
      bytes = bytes.subspan(size);
      if (head_bytes_ < kHeaderBytes) continue;
      head_bytes_ = 0;
      begin_frame(head_);
      continue;
    }
    if (frame_.type == FrameType::message && payload_at_ == 0 && bytes.size() >= payload_) {
      message_ = bytes.first(static_cast<std::size_t>(payload_));  // all of it is here
      add(inbox_.copied_bytes, payload_);
      bytes = bytes.subspan(message_.size());
      end_frame();
      continue;
    }
    const auto to = place(payload_at_);
    std::size_t size = static_cast<std::size_t>(std::min<std::uint64_t>(bytes.size(), payload_ - payload_at_));
    if (!to.empty()) {
      size = std::min(size, to.size());
      std::memcpy(to.data(), bytes.data(), size);
      add(inbox_.copied_bytes, size);
    }
    payload_at_ += size;
    bytes = bytes.subspan(size);
    if (payload_at_ == payload_) end_frame();
  }
}

void Lane::begin_frame(std::span<const std::byte, kHeaderBytes> head) {
  if (Status malformed = decode(head, frame_); !malformed) return fail(std::move(malformed));
  if (frame_.acks > 0) on_acks();
  if (broken_) return;
  large_due_ = frame_.payload_bytes() >= kLarge ? kAfterLarge : large_due_ - std::min(large_due_, 1u);
  frame_code_ = ErrorCode::ok;
  frame_applied_ = 0;
  payload_ = frame_.payload_bytes();
  payload_at_ = 0;
  in_payload_ = true;
  frame_table_.resize(frame_.has(Header::kTable) ? frame_.count : 0);
  table_checked_ = !frame_.has(Header::kTable);
  const bool atomic = frame_.type == FrameType::fetch_add || frame_.type == FrameType::compare_swap;
  frame_bytes_.resize(atomic ? 16 : 0);
  message_ = {};
  if (frame_.type == FrameType::data) {
    const Flight* flight = find(frame_.token);
    if (flight == nullptr || flight->command.slice.op != Op::read || frame_.length != flight->header.block_bytes())
      return fail({ErrorCode::protocol_error, "tcp: the peer sent data without a read request"});
    frame_flight_ = static_cast<std::uint16_t>(flight - flights_.data());
  }
  if (payload_ == 0) end_frame();
}

bool Lane::check_table() {
  if (table_checked_) return true;
  if (crc32c(0, std::as_bytes(std::span(frame_table_))) != frame_.offset) {
    fail({ErrorCode::link_failed, "tcp: a block table is corrupted (wrong checksum)"});
    return false;
  }
  return table_checked_ = true;
}

std::span<std::byte> Lane::place(std::uint64_t at) {
  switch (frame_.type) {
    case FrameType::write:
    case FrameType::read: {
      if (at < frame_.table_bytes()) return std::as_writable_bytes(std::span(frame_table_)).subspan(at);
      if (frame_code_ != ErrorCode::ok || !check_table()) return {};
      at -= frame_.table_bytes();
      const bool one = frame_.count == 1;
      const std::uint64_t block = one ? 0 : at / frame_.length;
      const std::uint64_t within = one ? at : at % frame_.length;
      RegionTable::Resolved found;
      frame_code_ =
          regions_.resolve_for_cpu(frame_.region, frame_.has(Header::kTable) ? frame_table_[block] : frame_.offset,
                                   frame_.length, Access::write, found);
      if (frame_code_ != ErrorCode::ok) return {};
      frame_applied_ = at + 1;
      return {found.address + within, frame_.length - within};
    }
    case FrameType::data: {
      const Flight& flight = flights_[frame_flight_];
      if (frame_code_ != ErrorCode::ok || flight.ended) return {};
      return local_piece(flight, at, frame_code_);
    }
    case FrameType::message:
      frame_bytes_.resize(payload_);
      message_ = frame_bytes_;
      return std::span(frame_bytes_).subspan(at);
    case FrameType::fetch_add:
    case FrameType::compare_swap: return std::span(frame_bytes_).subspan(at);
    case FrameType::done:
    case FrameType::taken: break;
  }
  return {};
}

void Lane::end_frame() {
  in_payload_ = false;
  if (!check_table()) return;
  const std::span<const std::byte> checked = frame_.type == FrameType::message ? message_ : frame_bytes_;
  if (!checked.empty() && crc32c(0, checked) != frame_.immediate)
    return fail({ErrorCode::link_failed, "tcp: a message is corrupted (wrong checksum)"});
  Header answer;
  answer.type = FrameType::done;
  answer.token = frame_.token;
  switch (frame_.type) {
    case FrameType::write: {
      if (frame_.block_bytes() == 0 && frame_.region) {  // moves no bytes but still needs permission
        RegionTable::Resolved found;
        for (std::uint32_t i = 0; i < frame_.count && frame_code_ == ErrorCode::ok; ++i)
          frame_code_ = regions_.resolve_for_cpu(
              frame_.region, frame_.has(Header::kTable) ? frame_table_[i] : frame_.offset, 0, Access::write, found);
      }
      answer.immediate = static_cast<std::uint32_t>(frame_code_);
      if (frame_code_ != ErrorCode::ok) answer.length = frame_applied_;
      if (!frame_.has(Header::kImmediate) || frame_code_ != ErrorCode::ok) reply(answer);
      if (!frame_.has(Header::kImmediate)) return;
      if (frame_code_ != ErrorCode::ok) {  // no later immediate may arrive
        flush();
        return fail({ErrorCode::link_failed, "tcp: a write with immediate was refused"});
      }
      ++immediates_;
      Event& event = inbox_.add(EventKind::immediate);
      event.link = link_;
      event.value = frame_.immediate;
      return acknowledge();
    }
    case FrameType::read: return serve_read();
    case FrameType::message: inbox_.add(EventKind::message, link_, message_); return acknowledge();
    case FrameType::fetch_add:
    case FrameType::compare_swap: return serve_atomic();
    case FrameType::done: return on_done();
    case FrameType::taken: return;
    case FrameType::data: {
      Flight& flight = flights_[frame_flight_];
      if (frame_code_ == ErrorCode::ok)
        end(flight, ErrorCode::ok, Effect::not_applied);
      else
        end(flight, frame_code_, Effect::partial);
      return release(flight);
    }
  }
}

// Checks the whole read first; memory that is revoked later breaks the lane.
void Lane::serve_read() {
  RegionTable::Resolved found;
  ErrorCode code = ErrorCode::ok;
  for (std::uint32_t i = 0; i < frame_.count && code == ErrorCode::ok; ++i)
    code = regions_.resolve_for_cpu(frame_.region, frame_.has(Header::kTable) ? frame_table_[i] : frame_.offset,
                                    frame_.length, Access::read, found);
  Header answer;
  answer.token = frame_.token;
  if (code != ErrorCode::ok || frame_.block_bytes() == 0) {
    answer.type = FrameType::done;
    answer.immediate = static_cast<std::uint32_t>(code);
    return reply(answer);
  }
  answer.type = FrameType::data;
  answer.length = frame_.block_bytes();
  reply(answer, &frame_);
}

void Lane::serve_atomic() {
  ByteReader reader(frame_bytes_);
  const auto operand = reader.get<std::uint64_t>();
  const auto expected = reader.get<std::uint64_t>();
  std::uint64_t value = 0;
  RegionTable::Resolved found;
  ErrorCode code = regions_.resolve_for_cpu(frame_.region, frame_.offset, 8, Access::atomic, found);
  if (code == ErrorCode::ok && reinterpret_cast<std::uintptr_t>(found.address) % 8 != 0)
    code = ErrorCode::invalid_argument;
  const Op op = frame_.type == FrameType::fetch_add ? Op::fetch_add : Op::compare_swap;
  if (code == ErrorCode::ok) value = apply_atomic(op, found.address, operand, expected);
  Header answer;
  answer.type = FrameType::done;
  answer.token = frame_.token;
  answer.offset = code == ErrorCode::ok ? value : 0;
  answer.immediate = static_cast<std::uint32_t>(code);
  reply(answer);
}

void Lane::on_acks() {
  for (std::uint32_t i = 0; i < frame_.acks; ++i) {
    if (unanswered_.empty() || flights_[unanswered_[0].index].place != Place::sent)
      return fail({ErrorCode::protocol_error, "tcp: the peer sent an acknowledgement without a request"});
    Flight& flight = flights_[unanswered_.pop().index];
    end(flight, ErrorCode::ok, Effect::not_applied);
    release(flight);
  }
}

void Lane::on_done() {
  Flight* flight = find(frame_.token);
  const bool read = flight != nullptr && flight->command.slice.op == Op::read;
  const auto code = static_cast<ErrorCode>(frame_.immediate);
  if (flight == nullptr || !is_done_code(frame_.immediate) ||
      (read && code == ErrorCode::ok && flight->header.block_bytes() > 0))
    return fail({ErrorCode::protocol_error, "tcp: the peer sent an answer without a request"});
  const Op op = flight->command.slice.op;
  if (op == Op::message || (op == Op::write_immediate && code == ErrorCode::ok))
    return fail({ErrorCode::protocol_error, "tcp: the peer sent an answer where an acknowledgement is due"});
  if (op == Op::write_immediate) unanswered_.remove({.index = static_cast<std::uint16_t>(flight - flights_.data())});
  end(*flight, code, frame_.length > 0 ? Effect::partial : Effect::not_applied, frame_.offset);
  release(*flight);
}

}  // namespace fairway::transport::tcp
