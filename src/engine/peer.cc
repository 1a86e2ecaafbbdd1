#include "engine/peer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "engine/worker.h"
#include "transport/optional_calls.h"

namespace fairway::engine {
namespace {

constexpr std::size_t kRecordOverhead = 32;  // headers of put and reply

}  // namespace

Peer::Peer(Worker& worker, PeerId id, transport::PeerIndex index, control::SessionId session,
           const control::PeerInfo& info)
    : PeerContext({id, index, 0}, worker.tables()),
      worker_(worker),
      engine_(worker.engine()),
      session_(session),
      info_(info),
      links_(*this, *this, worker.scratch(), engine_.runtime.rng, PeerClock(info.by_caller, worker.now()),
             static_cast<Time>(engine_.options.peer_timeout.count()) * kMillisecond, engine_.options.prove_paths),
      routes_(*this, links_),
      rates_(*this, *this, links_, worker.machine(), worker.gpus()),
      short_path_(*this, links_, routes_, engine_.runtime.clock),
      records_(*this, links_, routes_, engine_.short_path),
      notifier_(*this, records_.stream(), engine_.notifications, engine_.counters,
                engine_.notifications.grant(engine_.options.notifications_per_peer)),
      windows_(*this, links_),
      matcher_(*this, windows_, worker.any(), engine_.options.unexpected_bytes_per_peer),
      staging_client_(*this, worker.staging()),
      staging_server_(*this, worker.staging()),
      requests_(*this, staging_client_),
      service_(*this, staging_server_),
      transfers_(*this, worker, links_, routes_, rates_, short_path_, records_, notifier_, requests_, matcher_,
                 staging_client_),
      region_users_(*this, transfers_),
      explainer_(*this, links_, routes_, rates_, worker.staging().pool, staging_client_) {}

std::string Peer::text() const {
  return info_.name.empty() || info_.name == info_.address ? info_.address : info_.name + " (" + info_.address + ")";
}

// ---- PeerContext ----

void Peer::has_more() {
  worker_.ready(id().slot);
}

void Peer::again() {
  has_more();
  worker_.again();
}

void Peer::notice() {
  worker_.notice();
}

Time Peer::now() const {
  return worker_.now();
}

void Peer::wake_at(Time time) {
  worker_.wake_at(id().slot, time);
}

void Peer::end_session(const Status& reason) {
  worker_.sessions().drop(session_, reason);
}

void Peer::violation(const std::string& what) {
  if (down_) return;
  end_session(Status(ErrorCode::protocol_error, "the peer sent " + what).with_peer(text()));
}

void Peer::adopt(std::uint32_t slot) {
  Transfer& t = transfer(slot);
  t.request.peer = id();
  t.peer.store(id().slot, std::memory_order_release);
  transfers_.adopt(slot);
  worker_.took_any();
}

void Peer::enqueue_record(std::uint32_t record, std::uint32_t owner) {
  records_.enqueue(record, owner);
  again();
}

// ---- control's words ----

void Peer::open() {
  Hello hello;
  hello.worker = worker_.index();
  hello.cores = static_cast<std::uint16_t>(std::min(engine_.runtime.executor.cores(), 0xffffu));
  hello.event_credits = notifier_.granted();
  hello.record_bytes = worker_.record_bytes();
  hello.unexpected_bytes = engine_.options.unexpected_bytes_per_peer;
  hello.scratch_offset = worker_.scratch().offset(links_.scratch_place());
  for (const auto& transport : transports()) hello.transports.emplace_back(transport->name());
  hello.scratch = format_description(locals().describe(worker_.scratch().of(links_.scratch_place()).region));
  worker_.sessions().tell(session_, format(hello));
}

void Peer::on_message(std::span<const std::byte> bytes) {
  if (down_) return;
  const auto type = message_type(bytes);
  if (!type) return violation("a control message of no known type");
  if (!greeted_ && *type != MessageType::hello) return violation("a control message before hello");
  switch (*type) {
    case MessageType::hello:
      if (const auto hello = parse_hello(bytes); hello && !greeted_) return on_hello(*hello);
      break;
    case MessageType::exchange:
      if (const auto exchange = parse_exchange(bytes)) {
        const std::uint16_t index = worker_.transport_index(exchange->transport);
        if (index == Worker::kNoTransport) break;
        return transports()[index]->exchange(owner_.index, exchange->bytes);
      }
      break;
    case MessageType::link_closed:
      if (const auto closed = parse_link_closed(bytes)) return links_.on_link_closed(*closed);
      break;
    case MessageType::lookup:
    case MessageType::lookup_reply: break;  // handled by the engine
  }
  violation("a malformed control message");
}

void Peer::on_hello(const Hello& hello) {
  auto scratch = parse_description(hello.scratch);
  if (!scratch) return violation("a hello without a scratch region");
  greeted_ = true;
  owner_.worker = hello.worker;
  notifier_.greeted(hello.event_credits);
  if (hello.record_bytes < kSmallestMessage) return violation("a hello with records that are too small");
  const std::uint32_t record_bytes = std::min(hello.record_bytes, worker_.record_bytes());
  const std::size_t payload = record_bytes - kRecordOverhead;  // of a put, a get or a send
  service_.greeted(payload);
  matcher_.greeted(hello.unexpected_bytes, payload);
  staging_client_.greeted(record_bytes);
  staging_server_.greeted(payload);
  transfers_.greeted(payload);
  Status error;
  const RemoteRegionId scratch_there = remotes().import(owner_, *scratch, error);
  if (!error) links_.refused(error.message());
  links_.share_cores(engine_.runtime.executor.cores(), hello.cores);
  links_.connect(hello.transports, info_.initiated_here ? transport::Role::initiator : transport::Role::acceptor,
                 scratch_there, hello.scratch_offset);
}

void Peer::on_down(const Status& reason) {
  if (down_) return;
  down_ = true;
  down_reason_ = reason.peer().empty() ? reason.with_peer(text()) : reason;
  for (const auto& transport : transports()) transport->disconnect(owner_.index);
  transfers_.peer_gone();
  requests_.clear();
  records_.clear();
  transfers_.fail_all(down_reason_);
  staging_client_.peer_gone();
  staging_server_.peer_gone();
  worker_.again();
}

Status Peer::why_ended() const {
  if (down_) return down_reason_;
  const auto info = engine_.peers.find(id());
  return info && !info->reason.is_ok() ? info->reason : Status(ErrorCode::unsupported, "no link to the peer");
}

Time Peer::run_timers(Time now) {
  Time next = kNever;
  const auto links = down_ ? std::nullopt : links_.run_timers(now);  // none while the session ends
  if (links) next = std::min({*links, records_.run_timer(), transfers_.give_up_without_link()});
  next = std::min(next, transfers_.run_timers(now));
  return std::min({next, staging_client_.lease().run_timer(now), region_users_.run_timers(now)});
}

// ---- LinkOwner ----

void Peer::no_link(const std::string& reasons) {
  const Status status = Status(ErrorCode::unsupported, "no transport reaches this peer: " + reasons).with_peer(text());
  engine_.peers.set_settled(id(), status);
  worker_.notice();
  transfers_.fail_all(status);
}

void Peer::link_up(std::uint8_t index) {
  rates_.learn(links_[index]);
  worker_.link_at(links_[index].transport, links_[index].id, *this, index);
}

void Peer::link_ready(Link& link) {
  routes_.link_changed(true);
  if (dynamic_cast<transport::MovesAtOnce*>(transports()[link.transport].get()) != nullptr)
    engine_.peers.set_at_once(id());
  engine_.peers.set_ready(id());
  tell_user(PeerEvent::Kind::link_up, link, {});
}

void Peer::link_lost(Link& link, bool was_ready) {
  routes_.link_changed(was_ready);
  if (!was_ready) return;
  tell_user(PeerEvent::Kind::link_down, link, link.down_reason.with_link(link.text));
}

void Peer::link_slow(const Link& link, std::string detail) {
  tell_user(PeerEvent::Kind::link_slow, link, {}, std::move(detail));
}

void Peer::learn_rates() {
  rates_.learn();
  routes_.rates_changed();
}

void Peer::tell_user(PeerEvent::Kind kind, const Link& link, const Status& reason, std::string detail) {
  engine_.peer_events.push({kind, id(), text(), link.text, info_.incarnation, reason, std::move(detail)});
  worker_.notice();
}

void Peer::tell(const LinkClosed& message) {
  if (!down_) worker_.sessions().tell(session_, format(message));
}

// ---- records ----

// The receive goes on until nothing can write there any more. The peer may be gone by then.
void Peer::remove_window(RegionId window, std::uint32_t slot, std::shared_ptr<void> kept) {
  const TransferId waits = slot == kNoSlot ? TransferId{} : table().id(slot);
  worker_.remove_region(window, Worker::RegionOf::window,
                        [worker = &worker_, window, waits, kept = std::move(kept), id = id()](const Status&) {
                          worker->engine().regions.remove(window);
                          if (!waits || !worker->engine().transfers.is_active(waits)) return;
                          if (Peer* owner = worker->peer_of(id)) owner->matcher_.window_closed(waits.slot);
                        });
}

void Peer::end_lease(RegionId region, std::function<void(Status)> done) {
  worker_.remove_region(region, Worker::RegionOf::lease, std::move(done));
}

template <class Body, class Handle>
void Peer::take(const RecordHeader& record, const Handle& handle) {
  if (const auto body = decode<Body>(record.body)) return handle(*body);
  violation("a malformed record: " + std::string(to_string(record.type)));
}

// What a transport still had when the session ended: the sender of a notification was told that it is here.
namespace {
bool is_notification(RecordType type) {
  return type == RecordType::event || type == RecordType::counter || type == RecordType::event_armed ||
         type == RecordType::event_set_off;
}
}  // namespace

void Peer::on_record(std::uint8_t link, std::span<const std::byte> bytes) {
  const auto header = decode_header(bytes);
  if (!header) return violation("a record of no known type");
  if (down_ && !is_notification(header->type)) return;
  if (header->type == RecordType::echo)
    return take<record::Echo>(*header, [&](const record::Echo& echo) { links_.on_echo(link, echo); });
  if (header->type == RecordType::echo_reply) return links_.on_echo_reply(link, header->body);
  switch (records_.stream().accept(header->sequence)) {
    case RecordStream::Verdict::duplicate: return;
    case RecordStream::Verdict::violation: return violation("a record beyond the window");
    case RecordStream::Verdict::take: break;
  }
  serve(*header);
  worker_.again();
}

void Peer::on_immediate(std::uint32_t immediate) {
  const bool names_record = (immediate & (kEventBit | kBareEventBit)) == kEventBit;
  if (names_record && !down_ && matcher_.on_bytes(records_.stream().nearest(immediate & kEventValue))) return;
  notifier_.on_immediate(immediate);
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
    case RecordType::send_armed:
      return take<SendArmed>(
          r, [&](const auto& send) { matcher_.on_send_armed(r.sequence, send, notifier_.take_early(r.sequence)); });
    case RecordType::send_direct:
      return take<SendDirect>(
          r, [&](const auto& send) { matcher_.on_send_direct(r.sequence, send, notifier_.take_early(r.sequence)); });
    case RecordType::receive_posted:
      return take<ReceivePosted>(r, [&](const auto& posted) { matcher_.on_receive_posted(r.sequence, posted); });
    case RecordType::receive_withdrawn:
      return take<ReceiveWithdrawn>(r, [&](const auto& withdrawn) {
        const bool to_come = records_.stream().past(withdrawn.value) == RecordStream::Past::to_come;
        matcher_.on_receive_withdrawn(withdrawn.value, to_come);
      });
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

void Peer::collect(Metrics& out) const {
  PeerMetrics peer;
  peer.peer = id();
  peer.name = text();
  peer.notifications = notifier_.delivered();
  transfers_.collect(peer);
  out.peers.push_back(std::move(peer));
  links_.collect(id(), out.links);
}

}  // namespace fairway::engine
