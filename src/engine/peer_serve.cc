#include <atomic>
#include <cstring>

#include "core/crc32c.h"
#include "engine/peer.h"
#include "engine/worker.h"

// Records as they come in: each is checked against its own length, the region table and the limits this side announced.
namespace fairway::engine {
namespace {

constexpr std::uint64_t kMaxSum = 1024 * 1024;

}  // namespace

template <class Body, class Handle>
void Peer::take(const RecordHeader& record, const Handle& handle) {
  if (const auto body = decode<Body>(record.body)) return handle(*body);
  violation("a malformed record: " + std::string(to_string(record.type)));
}

void Peer::on_record(std::uint8_t link, std::span<const std::byte> bytes) {
  if (down_) return;
  const auto header = decode_header(bytes);
  if (!header) return violation("a record of no known type");
  if (header->type == RecordType::echo)
    return take<record::Echo>(*header, [&](const record::Echo& echo) { on_echo(link, echo); });
  if (header->type == RecordType::echo_reply) return on_echo_reply(link, header->body);
  switch (records_.accept(header->sequence)) {
    case RecordStream::Verdict::duplicate: return;
    case RecordStream::Verdict::violation: return violation("a record beyond the window");
    case RecordStream::Verdict::take: break;
  }
  serve(*header);
  worker_.again();
}

void Peer::serve(const RecordHeader& r) {
  using namespace record;
  switch (r.type) {
    case RecordType::event: return take<Event>(r, [&](const auto& event) { notifier_.on_event(event); });
    case RecordType::counter: return take<Counter>(r, [&](const auto& counter) { notifier_.on_count(counter.value); });
    case RecordType::credit: return take<Credit>(r, [&](const auto& credit) { notifier_.on_credit(credit.value); });
    case RecordType::send_eager: return take<SendEager>(r, [&](const auto& send) { matcher_.on_send_eager(send); });
    case RecordType::send_announce:
      return take<SendAnnounce>(r, [&](const auto& send) { matcher_.on_send_announce(send); });
    case RecordType::send_clear: return take<SendClear>(r, [&](const auto& clear) { matcher_.on_send_clear(clear); });
    case RecordType::send_written:
      return take<SendWritten>(r, [&](const auto& written) { matcher_.on_send_written(written); });
    case RecordType::send_abort: return take<SendAbort>(r, [&](const auto& abort) { matcher_.on_send_abort(abort); });
    case RecordType::send_done: return take<SendDone>(r, [&](const auto& done) { matcher_.on_send_done(done); });
    case RecordType::put: return take<Put>(r, [&](const auto& put) { serve_put(put); });
    case RecordType::get: return take<Get>(r, [&](const auto& get) { serve_get(get); });
    case RecordType::atomic: return take<Atomic>(r, [&](const auto& atomic) { serve_atomic(atomic); });
    case RecordType::sum: return take<Sum>(r, [&](const auto& sum) { serve_sum(sum); });
    case RecordType::flush: return take<Flush>(r, [&](const auto& flush) { serve_flush(flush); });
    case RecordType::reply: return take<Reply>(r, [&](const auto& reply) { on_reply(reply); });
    case RecordType::event_armed:
      return take<EventArmed>(r, [&](const auto& event) { notifier_.on_event_armed(r.sequence, event); });
    case RecordType::event_set_off:
      return take<EventSetOff>(r, [&](const auto& event) { notifier_.on_event_sign(event.value, true); });
    case RecordType::event_given_up:
      return take<EventGivenUp>(r, [&](const auto& event) { notifier_.on_event_sign(event.value, false); });
    case RecordType::stage_ask: return take<StageAsk>(r, [&](const auto& ask) { on_stage_ask(ask.value); });
    case RecordType::stage_grant: return take<StageGrant>(r, [&](const auto& grant) { on_stage_grant(grant); });
    case RecordType::stage_recall:
      return take<StageRecall>(r, [&](const auto& recall) { on_stage_recall(recall.value); });
    case RecordType::stage_end: return take<StageEnd>(r, [&](const auto& end) { on_stage_end(end.value); });
    case RecordType::stage_put: return take<StagePut>(r, [&](const auto& put) { on_stage_copy(put.copy, true); });
    case RecordType::stage_get: return take<StageGet>(r, [&](const auto& get) { on_stage_copy(get.copy, false); });
    case RecordType::stage_done: return take<StageDone>(r, [&](const auto& done) { on_stage_done(done); });
    case RecordType::echo:
    case RecordType::echo_reply: return;
  }
}

// kNoSlot: the peer takes no answers, and has lost its session.
std::uint32_t Peer::acquire_record(RecordType type) {
  if (is_answer(type)) {
    if (replies_out_ >= kMaxReplies) {
      violation("more requests than it may have outstanding");
      return kNoSlot;
    }
    ++replies_out_;
  }
  return worker_.records().acquire();
}

void Peer::enqueue_record(std::uint32_t record, std::uint32_t owner) {
  worker_.records()[record].owner = owner;
  records_.enqueue(record);
  has_more();
  worker_.again();
}

void Peer::reply(std::uint32_t token, std::uint32_t serial, ErrorCode code, std::uint64_t value,
                 std::span<const std::byte> data) {
  send(record::Reply{token, serial, code, value, {data}});
}

void Peer::serve_put(const record::Put& put) {
  const auto data = put.payload.bytes;
  transport::RegionTable::Resolved target;
  const ErrorCode code =
      worker_.services().regions.resolve_for_cpu(put.head.region, put.offset, data.size(), Access::write, target);
  if (code == ErrorCode::ok && !data.empty()) std::memcpy(target.address, data.data(), data.size());
  reply(put.head.token, put.head.serial, code, 0);
}

void Peer::serve_get(const record::Get& get) {
  const auto& [head, offset, length] = get;
  if (length > record_limit()) return violation("a get of more than a record carries");
  transport::RegionTable::Resolved source;
  const ErrorCode code = worker_.services().regions.resolve_for_cpu(head.region, offset, length, Access::read, source);
  if (code != ErrorCode::ok) return reply(head.token, head.serial, code, 0);
  reply(head.token, head.serial, code, 0, std::span<const std::byte>(source.address, length));
}

void Peer::serve_atomic(const record::Atomic& atomic) {
  const auto& [head, offset, operation, operand, expected] = atomic;
  if (operation > record::Atomic::kSet) return violation("an atomic of no known operation");
  transport::RegionTable::Resolved target;
  ErrorCode code =
      worker_.services().regions.resolve(head.region, offset, sizeof(std::uint64_t), Access::atomic, target);
  if (code == ErrorCode::ok && reinterpret_cast<std::uintptr_t>(target.address) % sizeof(std::uint64_t) != 0)
    code = ErrorCode::invalid_argument;
  if (code != ErrorCode::ok) return reply(head.token, head.serial, code, 0);
  if (!reached_by_cpu(target.kind)) {
    Errand errand;
    errand.kind = Errand::Kind::atomic;
    errand.operation = operation;
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
  if (operation == record::Atomic::kAdd) old = word.fetch_add(operand);
  if (operation == record::Atomic::kCompareSwap) (void)word.compare_exchange_strong(old, operand);
  if (operation == record::Atomic::kSet) old = word.exchange(operand);
  worker_.services().notice();
  reply(head.token, head.serial, code, old);
}

void Peer::serve_sum(const record::Sum& sum) {
  const auto& [head, offset, length] = sum;
  if (length > kMaxSum) return violation("a request for the checksum of more than 1 MiB");
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

void Peer::serve_flush(const record::Flush& flush) {
  const RequestHead& head = flush.head;
  ErrorCode code = ErrorCode::ok;
  for (std::uint16_t i = 0; i < worker_.transports().size() && code == ErrorCode::ok; ++i)
    code = worker_.transport_at(i).flush(worker_.locals().handle(head.region, i)).code();
  // Last: what was on its way into a region that has ended by now is gone.
  transport::RegionTable::Resolved memory;
  if (code == ErrorCode::ok) code = worker_.services().regions.resolve(head.region, 0, 0, Access::none, memory);
  reply(head.token, head.serial, code, 0);
}

}  // namespace fairway::engine
