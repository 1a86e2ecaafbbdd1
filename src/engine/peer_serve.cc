#include "engine/peer.h"
#include "engine/worker.h"

// Records as they come in: each is checked against its own length, the region table and the limits this side announced.
namespace fairway::engine {
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
    return take<record::Echo>(*header, [&](const record::Echo& echo) { links_.on_echo(link, echo); });
  if (header->type == RecordType::echo_reply) return links_.on_echo_reply(link, header->body);
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
    case RecordType::put: return take<Put>(r, [&](const auto& put) { service_.on_put(put); });
    case RecordType::get: return take<Get>(r, [&](const auto& get) { service_.on_get(get); });
    case RecordType::atomic: return take<Atomic>(r, [&](const auto& atomic) { service_.on_atomic(atomic); });
    case RecordType::sum: return take<Sum>(r, [&](const auto& sum) { service_.on_sum(sum); });
    case RecordType::flush: return take<Flush>(r, [&](const auto& flush) { service_.on_flush(flush); });
    case RecordType::reply: return take<Reply>(r, [&](const auto& reply) { requests_.on_reply(reply); });
    case RecordType::event_armed:
      return take<EventArmed>(r, [&](const auto& event) { notifier_.on_event_armed(r.sequence, event); });
    case RecordType::event_set_off:
      return take<EventSetOff>(r, [&](const auto& event) { notifier_.on_event_sign(event.value, true); });
    case RecordType::event_given_up:
      return take<EventGivenUp>(r, [&](const auto& event) { notifier_.on_event_sign(event.value, false); });
    case RecordType::stage_ask: return take<StageAsk>(r, [&](const auto& ask) { staging_server_.on_ask(ask.value); });
    case RecordType::stage_grant:
      return take<StageGrant>(r, [&](const auto& grant) { staging_client_.lease().on_grant(grant); });
    case RecordType::stage_recall:
      return take<StageRecall>(r, [&](const auto& recall) { staging_client_.lease().on_recall(recall.value); });
    case RecordType::stage_end: return take<StageEnd>(r, [&](const auto& end) { staging_server_.on_end(end.value); });
    case RecordType::stage_put:
      return take<StagePut>(r, [&](const auto& put) { staging_server_.on_copy(put.copy, true); });
    case RecordType::stage_get:
      return take<StageGet>(r, [&](const auto& get) { staging_server_.on_copy(get.copy, false); });
    case RecordType::stage_done: return take<StageDone>(r, [&](const auto& done) { staging_client_.on_done(done); });
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

}  // namespace fairway::engine
