#include <algorithm>
#include <cstring>

#include "transport/command.h"
#include "transport/host/lane.h"

// Incoming records. They were copied out of shared memory first; every field may come from a hostile peer.
namespace fairway::transport::host {

[[gnu::flatten]] void Lane::receive(std::uint64_t budget) {
  if (broken_ || state_ != State::open) return;
  Record record;
  std::span<const std::byte> payload;
  while (budget > 0 && !broken_ && events_.has_space() && reader_.pop(record, payload)) {
    apply(record, payload, false);
    budget -= std::min<std::uint64_t>(budget, sizeof record + payload.size());
  }
  if (reader_.malformed()) fail({ErrorCode::protocol_error, "malformed record in the peer's ring"});
  if (reader_.free()) pushed_ = true;
  if (pair_->peer_end().closed.load(std::memory_order_seq_cst) != 0 && reader_.empty())
    fail({ErrorCode::link_failed, "the peer closed the link"});
}

// `closing`: still delivers messages, immediates and answers, but serves no requests.
void Lane::apply(const Record& record, std::span<const std::byte> payload, bool closing) {
  switch (record.type) {
    case RecordType::immediate: {
      Event& event = events_.add(EventKind::immediate);
      event.link = link_;
      event.peer = peer_;
      event.value = record.immediate;
      ++immediates_;
      return;
    }
    case RecordType::message:
      events_.add(EventKind::message, link_, payload).peer = peer_;
      add(counters_.copied_bytes, payload.size());
      return;
    case RecordType::answer: return on_answer(record, payload);
    case RecordType::nudge: nudged_ = true; return;
    case RecordType::put:
    case RecordType::get:
    case RecordType::fetch_add:
    case RecordType::compare_swap:
      if (!closing) serve(record, payload);
      return;
  }
  fail({ErrorCode::protocol_error, "malformed record in the peer's ring: unknown type"});
}

ErrorCode Lane::reach(const Record& record, std::uint64_t length, Access needed, RegionTable::Resolved& out) const {
  const ErrorCode code = regions_.resolve(record.region, record.offset, length, needed, out);
  return code == ErrorCode::ok && !reached_by_cpu(out.kind) ? ErrorCode::unsupported : code;
}

[[gnu::noinline]] void Lane::serve(const Record& record, std::span<const std::byte> payload) {
  Record answer;
  answer.type = RecordType::answer;
  RegionTable::Resolved at;
  ErrorCode code = ErrorCode::ok;
  if (record.type == RecordType::put) {
    code = reach(record, payload.size(), Access::write, at);
    if (code == ErrorCode::ok && !payload.empty()) std::memcpy(at.address, payload.data(), payload.size());
  } else if (record.type == RecordType::get) {
    if (record.length > kMaxPiece) return fail({ErrorCode::protocol_error, "the peer's read request is too long"});
    code = reach(record, record.length, Access::read, at);
    if (code == ErrorCode::ok && record.length != 0) {
      std::byte* to = writer_.payload(record.length, true);
      if (to == nullptr) return fail({ErrorCode::protocol_error, "the peer sends requests but reads no answers"});
      std::memcpy(to, at.address, record.length);
      answer.length = record.length;
    }
  } else {
    code = reach(record, 8, Access::atomic, at);
    if (code == ErrorCode::ok && reinterpret_cast<std::uintptr_t>(at.address) % 8 != 0)
      code = ErrorCode::invalid_argument;
    const Op op = record.type == RecordType::fetch_add ? Op::fetch_add : Op::compare_swap;
    if (code == ErrorCode::ok) answer.value = apply_atomic(op, at.address, record.value, record.expected);
  }
  add(counters_.copied_bytes, payload.size() + answer.length);
  answer.code = static_cast<std::uint8_t>(code);
  if (!writer_.push(answer, true))
    return fail({ErrorCode::protocol_error, "the peer sends requests but reads no answers"});
  pushed_ = true;
}

[[gnu::noinline]] void Lane::on_answer(const Record& record, std::span<const std::byte> payload) {
  if (requests_.empty() || record.code > static_cast<std::uint8_t>(ErrorCode::system_error))
    return fail({ErrorCode::protocol_error, "the peer sent an answer without a request"});
  const Request request = requests_.front();
  const auto code = static_cast<ErrorCode>(record.code);
  if (code == ErrorCode::ok && request.local != nullptr && payload.size() != request.length)
    return fail({ErrorCode::protocol_error, "the peer's answer has the wrong length"});
  requests_.pop_front();
  Flight& flight = flights_[request.flight];
  if (code == ErrorCode::ok) {
    if (request.local != nullptr && !flight.ended) std::memcpy(request.local, payload.data(), payload.size());
    flight.touched = true;
    flight.value = record.value;
  } else if (flight.code == ErrorCode::ok) {
    flight.code = code;
  }
  --flight.asked;
  answered(flight);
}

// The last answer ends a flight that has left its queue.
void Lane::answered(Flight& flight) {
  if (flight.asked > 0 || flight.place == Place::queued) return;
  if (flight.ended)
    release(flight);
  else
    end(flight, flight.code);
}

}  // namespace fairway::transport::host
