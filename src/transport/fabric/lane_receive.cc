#include <array>
#include <string>
#include <utility>

#include "core/bytes.h"
#include "transport/fabric/lane.h"

// Handles completions: of operations, messages, immediates, credit updates, and errors.
namespace fairway::transport::fabric {
namespace {

constexpr int kMostTurns = 16;  // of one receive()

}  // namespace

void Lane::receive() {
  std::array<fi_cq_data_entry, 16> some;
  quiet_ = true;
  for (int turn = 0; turn < kMostTurns && !closed_ && inbox_.has_space(); ++turn) {
    const ssize_t count = end_->poll(some);
    if (count == -FI_EAGAIN || count == 0) return;
    quiet_ = false;
    if (count == -FI_EAVAIL && take_error()) continue;
    if (count < 0)
      return fail(
          {ErrorCode::link_failed, "fabric: " + domain_.device().name + ": fi_cq_read: " + domain_.text(count)});
    for (ssize_t i = 0; i < count; ++i) take(some[static_cast<std::size_t>(i)]);
    if (static_cast<std::size_t>(count) < some.size()) return;
  }
}

bool Lane::prepare_sleep() {
  if (may_hold() || (ack_held_ && owes_ack())) return false;
  return broken_ || closed_ || end_->may_sleep();
}

void Lane::take(const fi_cq_data_entry& completion) {
  if ((completion.flags & FI_RECV) != 0) {
    auto* context = static_cast<Context*>(completion.op_context);
    return take_frame(context->index, completion.len);
  }
  if ((completion.flags & FI_REMOTE_CQ_DATA) != 0 && (completion.flags & FI_REMOTE_WRITE) != 0)
    return take_immediate(static_cast<std::uint32_t>(completion.data));
  if (completion.op_context != nullptr) operation_ended(*static_cast<Context*>(completion.op_context));
}

void Lane::operation_ended(Context& context) {
  free_operations_.push_back(static_cast<std::uint16_t>(&context - operations_.data()));
  --out_;
  for (std::uint16_t index = context.index; index != kNone;) {
    Flight& flight = flights_[index];
    index = std::exchange(flight.joined, kNone);
    --flight.out;
    settle(flight);
  }
}

void Lane::take_frame(std::size_t buffer, std::size_t size) {
  ByteReader reader({memory_.in(buffer), size});
  const auto granted = reader.get<std::uint32_t>();
  const auto kind = reader.get<std::uint32_t>();
  const auto value = reader.get<std::uint32_t>();
  const auto before = reader.get<std::uint32_t>();
  using Kind = FrameHeader::Kind;
  if (domain_.loses_messages() && reader.ok() && before != taken_)
    return fail({ErrorCode::link_failed,
                 "fabric: " + domain_.device().name +
                     ": the provider lost messages, as it does when one of its connections breaks; use the transport "
                     "tcp if that happens often"});
  bool known = reader.ok() && kind <= static_cast<std::uint32_t>(Kind::immediate) && credits_.update(granted);
  if (known && static_cast<Kind>(kind) == Kind::messages)
    known = take_messages(reader.rest(), value, [&](std::span<const std::byte> message) {
      inbox_.add(EventKind::message, link_, message);
      inbox_.copied_bytes.fetch_add(message.size(), std::memory_order_relaxed);
    });
  else
    known = known && reader.done();
  if (!known && domain_.loses_messages())
    return fail({ErrorCode::link_failed,
                 "fabric: " + domain_.device().name + ": malformed frame: the provider corrupted a message"});
  if (!known) return fail({ErrorCode::protocol_error, "fabric: malformed frame from the peer"});
  settle_acked();
  taken_ += static_cast<Kind>(kind) == Kind::credits ? 0 : 1;
  if (static_cast<Kind>(kind) == Kind::messages) credits_.add_freed();
  if (static_cast<Kind>(kind) == Kind::immediate) take_immediate(value);
  if (static_cast<Kind>(kind) == Kind::credits && value != 0) asked_ = true;
  give_receive(buffer);
}

void Lane::settle_acked() {
  while (unacked_count_ != 0) {
    Flight& flight = flights_[unacked_[unacked_head_]];
    if (static_cast<std::int32_t>(credits_.peer_total() - flight.number) < 0) return;
    unacked_head_ = (unacked_head_ + 1) % kQueueDepth;
    --unacked_count_;
    ask_at_ = kNever;  // starts again for the next one
    flight.unacked = false;
    settle(flight);
  }
}

void Lane::take_immediate(std::uint32_t value) {
  ++immediates_;
  credits_.add_freed();
  Event& event = inbox_.add(EventKind::immediate);
  event.link = link_;
  event.value = value;
}

// An error of one operation breaks the link: its effect is unknown, and the engine decides about another attempt.
bool Lane::take_error() {
  const Endpoint::Error error = end_->take_error();
  auto* context = static_cast<Context*>(error.context);
  fail({ErrorCode::link_failed, "fabric: " + domain_.device().name + ": " + error.text});
  if (context != nullptr && !context->receive) operation_ended(*context);
  return error.taken;
}

Status Lane::post_receive(std::size_t buffer) {
  const ssize_t result = domain_.calls().receive(end_->get(), memory_.in(buffer), kFrameBytes,
                                                 memory_region_.descriptor(), &receives_[buffer].space);
  if (result == -FI_EAGAIN) owed_receives_[owed_receive_count_++] = static_cast<std::uint16_t>(buffer);
  if (result == 0 || result == -FI_EAGAIN) return {};
  return {ErrorCode::link_failed, "fabric: " + domain_.device().name + ": fi_recv: " + domain_.text(result)};
}

void Lane::give_receive(std::size_t buffer) {
  if (closed_) return;
  if (Status status = post_receive(buffer); !status) fail(std::move(status));
}

}  // namespace fairway::transport::fabric
