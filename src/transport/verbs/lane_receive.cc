#include <bit>
#include <string>
#include <utility>

#include "core/bytes.h"
#include "transport/verbs/lane.h"

// Handles completions: of slices, messages, immediates, credit updates, and errors of the queue pair.
namespace fairway::transport::verbs {
namespace {

constexpr int kMostTurns = 16;  // of one receive()

constexpr std::uint32_t from_big_endian(std::uint32_t value) {
  return std::endian::native == std::endian::little ? __builtin_bswap32(value) : value;
}

}  // namespace

void Lane::receive() {
  std::array<abi::WorkCompletion, 16> some;
  for (int turn = 0; turn < kMostTurns && !closed_ && inbox_.has_space(); ++turn) {
    const int count = pair_->poll(some);
    if (count < 0) return fail({ErrorCode::link_failed, "verbs: polling the completion queue failed"});
    if (count > 0) port_.works();
    for (int i = 0; i < count; ++i) take(some[static_cast<std::size_t>(i)]);
    if (count < static_cast<int>(some.size())) break;
  }
  if (!ring_receives()) fail({ErrorCode::link_failed, "verbs: ibv_post_recv failed"});
}

bool Lane::prepare_sleep() {
  if (broken_ || closed_) return true;
  if (!pair_->arm()) return false;
  receive();  // completions from before arming cause no notification
  flush();
  return true;
}

void Lane::take(const abi::WorkCompletion& completion) {
  if (completion.status != abi::kSuccess) return take_failed(completion);
  if ((completion.id & kReceiveId) != 0) return take_received(completion);
  returned_ = completion.id;
  completed(completion.id);
}

// Ends and frees the flights that it covers, in order.
[[gnu::flatten]] void Lane::completed(std::uint64_t number) {
  if (!window_.complete(number)) return fail({ErrorCode::link_failed, "verbs: the NIC completed an unknown request"});
  while (oldest_ != building_ && at(oldest_).last <= number) {
    Flight& flight = at(oldest_++);
    ErrorCode code = ErrorCode::ok;
    Effect effect = Effect::not_applied;
    const char* why = nullptr;
    if (flight.cancelled) {
      code = ErrorCode::cancelled, effect = Effect::partial, why = "cancelled before all of it was sent";
    } else if (flight.wrong != ErrorCode::ok) {
      code = flight.wrong, effect = Effect::partial, why = "a block leaves the local memory";
    } else if (!arrived(flight)) {
      code = ErrorCode::system_error, effect = Effect::unknown;
      why = "the GPU driver failed to flush the bytes that were read";
    }
    end(flight, code, effect, why);
    if (flight.out != kNoBuffer) free_out_[free_outs_++] = flight.out;
  }
}

// Makes bytes that were read into GPU memory visible to work that starts there later. Recent GPUs need no flush.
bool Lane::arrived(const Flight& flight) {
  const bool waits = flight.gpu != nullptr && flight.command.slice.op == Op::read && flight.gpu->bus().needs_flush();
  return !waits || flight.gpu->bus().flush().is_ok();
}

void Lane::take_received(const abi::WorkCompletion& completion) {
  const auto buffer = static_cast<std::size_t>(completion.id & ~kReceiveId);
  --receives_out_;
  awaits_first_ = false;
  if (completion.opcode == abi::kReceivedImmediate) {
    take_immediate(from_big_endian(completion.immediate));
    return give_receive(buffer);
  }
  using Kind = MessageHeader::Kind;
  MessageHeader header;
  if (!read_header(completion, buffer, header) || !credits_.update(header.credits))
    return fail({ErrorCode::protocol_error, "verbs: malformed message from the peer"});
  if (header.kind == Kind::message) {
    const std::size_t size = completion.length - header_bytes();
    inbox_.add(EventKind::message, link_, {memory_.in(buffer) + header_bytes(), size});
    add(inbox_.copied_bytes, size);
    credits_.add_freed();
  } else if (header.kind == Kind::immediate) {
    take_immediate(header.value);
  }
  give_receive(buffer);
}

// From the immediate data or, on links without immediates, from the first bytes.
bool Lane::read_header(const abi::WorkCompletion& completion, std::size_t buffer, MessageHeader& header) const {
  using Kind = MessageHeader::Kind;
  if (!no_immediates_) {
    const std::uint32_t immediate = from_big_endian(completion.immediate);
    header = {immediate & Credits::kMask, (immediate & ~Credits::kMask) != 0 ? Kind::credits : Kind::message, 0};
    return (completion.flags & abi::kWithImmediate) != 0;
  }
  ByteReader reader({memory_.in(buffer), completion.length});
  header.credits = reader.get<std::uint32_t>();
  header.kind = static_cast<Kind>(reader.get<std::uint32_t>());
  header.value = reader.get<std::uint32_t>();
  const auto rest = reader.get<std::uint32_t>();
  const bool right = header.kind == Kind::message || (header.kind <= Kind::immediate && reader.done());
  return reader.ok() && right && rest == 0 && header.credits <= Credits::kMask;
}

void Lane::take_immediate(std::uint32_t value) {
  ++immediates_;
  credits_.add_freed();
  Event& event = inbox_.add(EventKind::immediate);
  event.link = link_;
  event.value = value;
}

void Lane::take_failed(const abi::WorkCompletion& completion) {
  const int status = completion.status;
  const std::string text = port_.library().status_text(status);
  if ((completion.id & kReceiveId) != 0) {
    --receives_out_;
    return fail({ErrorCode::link_failed, "verbs: the queue pair failed: " + text});
  }
  if (completion.id > returned_) returned_ = completion.id;
  if (status == abi::kRemoteAccess && completion.id < refused_) on_refused(completion.id);
  fail({ErrorCode::link_failed, "verbs: " + text + (status == abi::kRetriesExceeded ? remedy() : std::string())});
}

std::string Lane::remedy() const {
  return ": the peer acknowledged no retransmit; if small transfers pass and large ones do not, the network drops "
         "packets of " +
         std::to_string(mtu_bytes()) + " bytes: raise its MTU or lower EngineOptions::rdma.mtu";
}

// The peer's NIC refused a request, which also ends the queue pair: earlier requests are done, later ones were not
// executed. Bounds and permissions were checked on this side, so the memory was deregistered: all slices to it fail
// with `revoked`. The other slices are undecided until the fence.
void Lane::on_refused(std::uint64_t number) {
  if (!port_.read_back() && number - 1 > window_.completed()) completed(number - 1);
  refused_ = number;
  const Flight* about = nullptr;
  for (std::uint64_t i = oldest_; i != newest_ && about == nullptr; ++i)
    if (at(i).first != 0 && at(i).first <= number && number <= at(i).last) about = &at(i);
  if (about == nullptr) return;
  const std::uint32_t rkey = about->remote.rkey;
  const std::uint64_t address = about->remote.address;
  for (std::uint64_t i = oldest_; i != newest_; ++i) {
    Flight& flight = at(i);
    const bool before = flight.first != 0 && flight.last < number;
    if (before || flight.command.slice.op == Op::message) continue;
    if (flight.remote.rkey != rkey || flight.remote.address != address) continue;
    const bool begun = flight.first != 0 && flight.first < number && flight.command.slice.op != Op::read;
    end(flight, ErrorCode::revoked, begun ? Effect::partial : Effect::not_applied,
        "the peer has deregistered the memory");
  }
}

void Lane::give_receive(std::size_t buffer) {
  if (closed_) return;
  abi::ReceiveRequest& request = receives_[receives_chained_];
  abi::Gather& place = receive_gathers_[receives_chained_++];
  place = {reinterpret_cast<std::uintptr_t>(memory_.in(buffer)), LaneMemory::kBuffer, memory_region_->lkey};
  request = {kReceiveId | buffer, nullptr, &place, 1};
}

bool Lane::ring_receives() {
  if (receives_chained_ == 0 || closed_) return true;
  const std::size_t count = std::exchange(receives_chained_, 0);
  for (std::size_t i = 0; i + 1 < count; ++i) receives_[i].next = &receives_[i + 1];
  const auto posted = pair_->post(receives_[0]);
  receives_out_ += static_cast<std::uint32_t>(posted.refused == nullptr ? count : posted.refused - receives_.data());
  return posted.all;
}

}  // namespace fairway::transport::verbs
