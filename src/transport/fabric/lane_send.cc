#include <algorithm>
#include <cstring>

#include "core/bytes.h"
#include "transport/fabric/lane.h"

// Posts operations: walks slices block by block. Operations that the provider refuses (EAGAIN) are posted again after
// the next completions.
namespace fairway::transport::fabric {
namespace {

constexpr Time kAskEvery = 50 * kMillisecond;

}  // namespace

void Lane::flush() {
  held_ = 0;
  while (!broken_ && !closed_ && waiting_count_ != 0) {
    Flight& flight = waiting(0);
    if (!flight.ended && !build(flight)) break;
    pop_waiting();
    for (std::uint16_t joined = flight.joined; joined != kNone; joined = flights_[joined].joined) pop_waiting();
    settle(flight);
  }
  if (broken_ || closed_) return;
  while (owed_receive_count_ != 0) {
    const std::size_t before = owed_receive_count_;
    give_receive(owed_receives_[--owed_receive_count_]);
    if (broken_ || owed_receive_count_ >= before) break;
  }
  // A pending acknowledgement is sent alone if no frame has carried it since the last flush.
  const bool now = credits_.update_due() || asked_ || (ack_held_ && credits_.has_update());
  if (now) send_credits();
  ack_held_ = !now && owes_ack();
}

Time Lane::request_ack(Time now) {
  if (unacked_count_ == 0 || broken_ || closed_) return ask_at_ = kNever;
  if (ask_at_ == kNever) ask_at_ = after(now, kAskEvery);
  if (ask_at_ > now) return ask_at_;
  send_credits(true);
  return ask_at_ = after(now, kAskEvery);
}

void Lane::pop_waiting() {
  Flight& flight = waiting(0);
  waiting_head_ = (waiting_head_ + 1) % kQueueDepth;
  --waiting_count_;
  coalescible_ -= flight.command.slice.may_coalesce ? 1 : 0;
  flight.waiting = false;
}

bool Lane::build(Flight& flight) {
  const Slice& slice = flight.command.slice;
  if (moves(slice) && slice.length != 0)
    while (!flight.cursor.done(slice) && !flight.cancelled && flight.wrong == ErrorCode::ok)
      if (!build_move(flight)) return false;
  if (flight.buffer == kNone || flight.cancelled || flight.wrong != ErrorCode::ok) return true;
  // Sends the message only after the bytes are there, unless the provider keeps the order.
  if (free_operations_.empty() || (flight.out != 0 && !domain_.loses_messages())) return false;
  return slice.op == Op::message ? build_messages(flight) : build_immediate(flight);
}

// One operation: as many blocks as the provider takes, from several local to several remote segments.
bool Lane::build_move(Flight& flight) {
  const Slice& slice = flight.command.slice;
  if (free_operations_.empty()) return false;
  std::array<iovec, kPieces> local{};
  std::array<void*, kPieces> descriptors{};
  std::array<fi_rma_iov, kPieces> remote{};
  std::size_t locals = 0, remotes = 0;
  std::uint64_t bytes = 0;
  BlockCursor ahead = flight.cursor;
  while (!ahead.done(slice) && bytes < domain_.most_bytes()) {
    BlockCursor next = ahead;
    Piece piece;
    const ErrorCode code = next.next(flight.command, domain_.most_bytes() - bytes, piece);
    if (code != ErrorCode::ok) {
      if (locals == 0) {
        flight.wrong = code;
        return true;
      }
      break;
    }
    const std::uint64_t to = flight.remote.address + piece.remote_block + piece.offset;
    const bool joins_here =
        locals != 0 && static_cast<std::byte*>(local[locals - 1].iov_base) + local[locals - 1].iov_len == piece.local;
    const bool joins_there = remotes != 0 && remote[remotes - 1].addr + remote[remotes - 1].len == to;
    if ((!joins_here && locals == domain_.most_gathers()) || (!joins_there && remotes == domain_.most_places())) break;
    if (joins_here)
      local[locals - 1].iov_len += piece.length;
    else
      local[locals++] = {piece.local, piece.length};
    if (joins_there)
      remote[remotes - 1].len += piece.length;
    else
      remote[remotes++] = {to, piece.length, flight.remote.key};
    bytes += piece.length;
    ahead = next;
  }
  std::uint64_t flags = FI_COMPLETION | domain_.operation_flags();
  const bool told = slice.op == Op::write_immediate && !by_message(slice) && ahead.done(slice);
  if (told && flight.out != 0) return false;  // waits: earlier writes may arrive later than this one
  if (told) flags |= FI_REMOTE_CQ_DATA;
  descriptors.fill(flight.descriptor);
  Context& context = operations_[free_operations_.back()];
  context.index = static_cast<std::uint16_t>(&flight - flights_.data());
  fi_msg_rma message{};
  message.msg_iov = local.data();
  message.desc = descriptors.data();
  message.iov_count = locals;
  message.addr = end_->peer();
  message.rma_iov = remote.data();
  message.rma_iov_count = remotes;
  message.context = &context.space;
  message.data = slice.immediate;
  const Calls& calls = domain_.calls();
  const ssize_t result =
      slice.op == Op::read ? calls.read(end_->get(), &message, flags) : calls.write(end_->get(), &message, flags);
  if (!posted(flight, result, slice.op == Op::read ? "fi_readmsg: " : "fi_writemsg: ")) return false;
  flight.cursor = ahead;
  return true;
}

// Sends a message, with as many of the next ones as fit in one frame, which uses one credit.
bool Lane::build_messages(Flight& flight) {
  std::byte* const frame = memory_.out(flight.buffer);
  std::size_t size = FrameHeader::kBytes + kLengthBytes + flight.command.slice.length;
  std::uint32_t count = 1;
  for (; count < std::min<std::size_t>(waiting_count_, kMostJoined); ++count) {
    const Flight& next = waiting(count);
    const std::size_t more = kLengthBytes + next.command.slice.length;
    if (next.command.slice.op != Op::message || next.ended || size + more > kFrameBytes) break;
    std::memcpy(frame + size, memory_.out(next.buffer) + FrameHeader::kBytes, more);
    size += more;
  }
  if (!send(flight, {frame, size}, FrameHeader::Kind::messages, count)) return false;
  await_ack(waiting_[waiting_head_]);
  Flight* last = &flight;
  for (std::uint32_t i = 1; i < count; ++i) {
    last->joined = waiting_[(waiting_head_ + i) % kQueueDepth];
    last = &flights_[last->joined];
    ++last->out;
    last->begun = true;
    await_ack(static_cast<std::uint16_t>(last - flights_.data()));
    credits_.give_back();
  }
  return true;
}

// The immediate of a slice whose bytes arrive before it.
bool Lane::build_immediate(Flight& flight) {
  std::byte* const frame = memory_.out(flight.buffer);
  const std::span bytes(frame, FrameHeader::kBytes);
  if (!send(flight, bytes, FrameHeader::Kind::immediate, flight.command.slice.immediate)) return false;
  await_ack(static_cast<std::uint16_t>(&flight - flights_.data()));
  return true;
}

void Lane::await_ack(std::uint16_t index) {
  if (!domain_.loses_messages()) return;
  flights_[index].unacked = true;
  flights_[index].number = sent_;
  unacked_[(unacked_head_ + unacked_count_++) % kQueueDepth] = index;
}

// Its header carries the credit update, if the provider accepts the frame.
bool Lane::send(Flight& flight, std::span<std::byte> frame, FrameHeader::Kind kind, std::uint32_t value) {
  const Credits before = credits_;
  write_header(frame.data(), kind, value);
  Context& context = operations_[free_operations_.back()];
  context.index = static_cast<std::uint16_t>(&flight - flights_.data());
  iovec place{frame.data(), frame.size()};
  void* descriptor = memory_region_.descriptor();
  fi_msg sent{};
  sent.msg_iov = &place;
  sent.desc = &descriptor;
  sent.iov_count = 1;
  sent.addr = end_->peer();
  sent.context = &context.space;
  // If the peer acknowledges frames itself, delivery completion is not needed.
  const std::uint64_t flags = FI_COMPLETION | (domain_.loses_messages() ? 0 : domain_.operation_flags());
  const ssize_t result = domain_.calls().send(end_->get(), &sent, flags);
  sent_ += result == 0 ? 1 : 0;
  if (result != 0) credits_ = before;
  return posted(flight, result, "fi_sendmsg: ");
}

// Handles the result of posting an operation with the next free context. False: the provider did not accept it.
bool Lane::posted(Flight& flight, ssize_t result, const char* call) {
  if (result == 0) {
    free_operations_.pop_back();
    ++flight.out;
    ++out_;
    flight.begun = true;
    return true;
  }
  if (result != -FI_EAGAIN)
    fail({ErrorCode::link_failed, "fabric: " + domain_.device().name + ": " + call + domain_.text(result)});
  return false;
}

// Uses no credit, and has no completion.
void Lane::send_credits(bool ask) {
  std::array<std::byte, FrameHeader::kBytes> bytes{};
  const Credits before = credits_;
  write_header(bytes.data(), FrameHeader::Kind::credits, ask ? 1 : 0);
  const ssize_t result = domain_.calls().inject(end_->get(), bytes.data(), bytes.size(), end_->peer());
  if (result == 0) {
    asked_ = false;
    return;
  }
  credits_ = before;
  if (result != -FI_EAGAIN)
    fail({ErrorCode::link_failed, "fabric: " + domain_.device().name + ": fi_inject: " + domain_.text(result)});
}

void Lane::write_header(std::byte* at, FrameHeader::Kind kind, std::uint32_t value) {
  ByteWriter(std::span(at, FrameHeader::kBytes))
      .put(credits_.take_update())
      .put(static_cast<std::uint32_t>(kind))
      .put(value)
      .put(sent_);
}

}  // namespace fairway::transport::fabric
