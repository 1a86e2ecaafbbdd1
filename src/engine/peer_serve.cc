#include <atomic>
#include <cstring>

#include "core/crc32c.h"
#include "engine/peer.h"
#include "engine/worker.h"

// Records as they come in: each is checked against its own length, the region table and the limits this side announced.
namespace fairway::engine {
namespace {

struct RequestHead {
  std::uint32_t token = 0;
  std::uint32_t serial = 0;
  RegionId region;
};

RequestHead read_head(ByteReader& reader) {
  RequestHead head;
  head.token = reader.get<std::uint32_t>();
  head.serial = reader.get<std::uint32_t>();
  head.region.slot = reader.get<std::uint32_t>();
  head.region.generation = reader.get<std::uint32_t>();
  return head;
}

constexpr std::uint64_t kMaxSum = 1024 * 1024;

}  // namespace

void Peer::on_record(std::uint8_t link, std::span<const std::byte> bytes) {
  if (down_) return;
  ByteReader reader(bytes);
  const auto sequence = reader.get<std::uint32_t>();
  const auto type = reader.get<std::uint8_t>();
  const auto body = reader.rest();
  if (!reader.ok() || type < static_cast<std::uint8_t>(RecordType::event) ||
      type > static_cast<std::uint8_t>(RecordType::stage_done))
    return violation("a record of no known type");
  if (type == static_cast<std::uint8_t>(RecordType::echo)) return on_echo(link, body);
  if (type == static_cast<std::uint8_t>(RecordType::echo_reply)) return on_echo_reply(link, body);
  switch (records_.accept(sequence)) {
    case RecordStream::Verdict::duplicate: return;
    case RecordStream::Verdict::violation: return violation("a record beyond the window");
    case RecordStream::Verdict::take: break;
  }
  serve(sequence, static_cast<RecordType>(type), body);
  worker_.again();
}

void Peer::serve(std::uint32_t sequence, RecordType type, std::span<const std::byte> body) {
  ByteReader reader(body);
  switch (type) {
    case RecordType::event: return on_event(body);
    case RecordType::counter: {
      const auto immediate = reader.get<std::uint32_t>();
      return reader.done() ? on_count(immediate) : violation("a malformed counter");
    }
    case RecordType::credit: {
      const auto consumed = reader.get<std::uint32_t>();
      if (!reader.done()) return violation("a malformed credit");
      if (static_cast<std::int32_t>(consumed - events_consumed_there_) <= 0) return;  // overtaken by a later one
      if (consumed - events_consumed_there_ > events_sent_ - events_consumed_there_)
        return violation("a credit for notifications that were never sent");
      events_consumed_there_ = consumed;
      return;
    }
    case RecordType::send_eager: return on_send_eager(body);
    case RecordType::send_announce: return on_send_announce(body);
    case RecordType::send_clear: return on_send_clear(body);
    case RecordType::send_written: return on_send_written(body);
    case RecordType::send_abort: return on_send_abort(body);
    case RecordType::send_done: return on_send_done(body);
    case RecordType::put: return serve_put(body);
    case RecordType::get: return serve_get(body);
    case RecordType::atomic: return serve_atomic(body);
    case RecordType::sum: return serve_sum(body);
    case RecordType::flush: return serve_flush(body);
    case RecordType::reply: return on_reply(body);
    case RecordType::event_armed: return on_event_armed(sequence, body);
    case RecordType::event_set_off:
    case RecordType::event_given_up: {
      const auto number = reader.get<std::uint32_t>();
      return reader.done() ? on_event_sign(number, type == RecordType::event_set_off) : violation("a malformed event");
    }
    case RecordType::stage_ask: return on_stage_ask(body);
    case RecordType::stage_grant: return on_stage_grant(body);
    case RecordType::stage_recall: return on_stage_recall(body);
    case RecordType::stage_end: return on_stage_end(body);
    case RecordType::stage_put:
    case RecordType::stage_get: return on_stage_copy(body, type == RecordType::stage_put);
    case RecordType::stage_done: return on_stage_done(body);
    case RecordType::echo:
    case RecordType::echo_reply: return;
  }
}

void Peer::send_record(std::uint32_t record, const ByteWriter& writer, std::uint32_t owner) {
  Record& entry = worker_.records()[record];
  entry.size = static_cast<std::uint32_t>(writer.size());
  entry.owner = owner;
  records_.enqueue(record);
  worker_.again();
}

// kNoSlot: the peer takes none of those before.
std::uint32_t Peer::begin_answer() {
  if (replies_out_ >= kMaxReplies) {
    violation("more requests than it may have outstanding");
    return kNoSlot;
  }
  ++replies_out_;
  return worker_.records().acquire();
}

void Peer::reply(std::uint32_t token, std::uint32_t serial, ErrorCode code, std::uint64_t value,
                 std::span<const std::byte> data) {
  const std::uint32_t record = begin_answer();
  if (record == kNoSlot) return;
  ByteWriter writer = compose(worker_.records()[record], RecordType::reply);
  writer.put(token).put(serial).put(static_cast<std::uint8_t>(code)).put(value).put_bytes(data);
  send_record(record, writer);
}

void Peer::serve_put(std::span<const std::byte> body) {
  ByteReader reader(body);
  const RequestHead head = read_head(reader);
  const auto offset = reader.get<std::uint64_t>();
  const auto data = reader.rest();
  if (!reader.ok()) return violation("a malformed put");
  transport::RegionTable::Resolved target;
  const ErrorCode code =
      worker_.services().regions.resolve_for_cpu(head.region, offset, data.size(), Access::write, target);
  if (code == ErrorCode::ok && !data.empty()) std::memcpy(target.address, data.data(), data.size());
  reply(head.token, head.serial, code, 0);
}

void Peer::serve_get(std::span<const std::byte> body) {
  ByteReader reader(body);
  const RequestHead head = read_head(reader);
  const auto offset = reader.get<std::uint64_t>();
  const auto length = reader.get<std::uint32_t>();
  if (!reader.done() || length > record_limit()) return violation("a malformed get");
  transport::RegionTable::Resolved source;
  const ErrorCode code = worker_.services().regions.resolve_for_cpu(head.region, offset, length, Access::read, source);
  if (code != ErrorCode::ok) return reply(head.token, head.serial, code, 0);
  reply(head.token, head.serial, code, 0, std::span<const std::byte>(source.address, length));
}

void Peer::serve_atomic(std::span<const std::byte> body) {
  ByteReader reader(body);
  const RequestHead head = read_head(reader);
  const auto offset = reader.get<std::uint64_t>();
  const auto kind = reader.get<std::uint8_t>();
  const auto operand = reader.get<std::uint64_t>();
  const auto expected = reader.get<std::uint64_t>();
  if (!reader.done() || kind > 2) return violation("a malformed atomic");
  transport::RegionTable::Resolved target;
  ErrorCode code =
      worker_.services().regions.resolve(head.region, offset, sizeof(std::uint64_t), Access::atomic, target);
  if (code == ErrorCode::ok && reinterpret_cast<std::uintptr_t>(target.address) % sizeof(std::uint64_t) != 0)
    code = ErrorCode::invalid_argument;
  if (code != ErrorCode::ok) return reply(head.token, head.serial, code, 0);
  if (!reached_by_cpu(target.kind)) {
    Errand errand;
    errand.kind = Errand::Kind::atomic;
    errand.operation = kind;
    errand.token = head.token;
    errand.serial = head.serial;
    errand.region = head.region;
    errand.offset = offset;
    errand.length = sizeof(std::uint64_t);
    errand.operand = operand;
    errand.expected = expected;
    return begin_errand(errand);
  }
  std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(target.address));
  std::uint64_t old = expected;
  if (kind == 0) old = word.fetch_add(operand);
  if (kind == 1) (void)word.compare_exchange_strong(old, operand);
  if (kind == 2) old = word.exchange(operand);
  worker_.services().notice();
  reply(head.token, head.serial, code, old);
}

void Peer::serve_sum(std::span<const std::byte> body) {
  ByteReader reader(body);
  const RequestHead head = read_head(reader);
  const auto offset = reader.get<std::uint64_t>();
  const auto length = reader.get<std::uint64_t>();
  if (!reader.done() || length > kMaxSum) return violation("a malformed checksum request");
  transport::RegionTable::Resolved memory;
  const transport::RegionTable& regions = worker_.services().regions;
  // Whoever may write or read the region may know its checksum.
  ErrorCode code = regions.resolve(head.region, offset, length, Access::read, memory);
  if (code == ErrorCode::access_denied) code = regions.resolve(head.region, offset, length, Access::write, memory);
  if (code != ErrorCode::ok) return reply(head.token, head.serial, code, 0);
  if (reached_by_cpu(memory.kind) || length == 0)
    return reply(head.token, head.serial, code, crc32c(0, std::span<const std::byte>(memory.address, length)));
  Errand errand;
  errand.token = head.token;
  errand.serial = head.serial;
  errand.region = head.region;
  errand.offset = offset;
  errand.length = length;
  begin_errand(errand);
}

void Peer::serve_flush(std::span<const std::byte> body) {
  ByteReader reader(body);
  const RequestHead head = read_head(reader);
  if (!reader.done()) return violation("a malformed flush");
  ErrorCode code = ErrorCode::ok;
  for (std::uint16_t i = 0; i < worker_.transports().size() && code == ErrorCode::ok; ++i)
    code = worker_.transport_at(i).flush(worker_.local_handle(head.region, i)).code();
  // Last: what was on its way into a region that has ended by now is gone.
  transport::RegionTable::Resolved memory;
  if (code == ErrorCode::ok) code = worker_.services().regions.resolve(head.region, 0, 0, Access::none, memory);
  reply(head.token, head.serial, code, 0);
}

}  // namespace fairway::engine
