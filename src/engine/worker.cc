#include "engine/worker.h"

#include <algorithm>
#include <cstdlib>

#include "engine/workers.h"

namespace fairway::engine {
namespace {

constexpr std::size_t kEventsPerPoll = 64;
constexpr std::size_t kSubmissionsPerStep = 256;
constexpr std::uint32_t kMaxSlices = 4096;
constexpr Time kAway = 50 * kMillisecond;         // a caller that steps later than this was computing
constexpr Time kTimerSlack = 250 * kMillisecond;  // timers due within it run together: fewer wake-ups
constexpr Time kLastEnds = 50 * kMillisecond;     // for what a peer acknowledged before its goodbye
constexpr Time kVisit = 20 * kMicrosecond;        // until the next attempt, if the visitor was preempted
constexpr Time kFullRetry = 20 * kMicrosecond;    // when a link took less than its depth and has nothing in flight

transport::Copier* copier_of(std::span<const std::unique_ptr<transport::Transport>> transports) {
  for (const auto& transport : transports)
    if (transport->gpu() != nullptr && transport->gpu()->copier() != nullptr) return transport->gpu()->copier();
  return nullptr;
}

}  // namespace

Worker::Worker(std::uint16_t index, EngineTables& engine, const Workers& all, Waiting& waiting,
               SessionControl& sessions, MachineDiscovery& machine, WorkerTables::Transports transports)
    : index_(index),
      engine_(engine),
      all_(all),
      waiting_(waiting),
      sessions_(sessions),
      machine_(machine),
      tables_(index, *this, std::move(transports), engine.transfers, engine.regions, engine.remotes,
              std::clamp(engine.options.max_transfers, 64u, kMaxSlices), engine.peers.capacity()),
      visited_(engine.options.progress == Progress::threads),
      submissions_(engine.options.max_transfers + AnyReceives::kMost),
      any_(engine.any, index),
      events_(kEventsPerPoll),
      peers_(engine.peers.capacity()),
      ready_(engine.peers.capacity()),
      timers_(engine.peers.capacity()),
      links_(tables_.transports.size()),
      removals_(tables_),
      scratch_(tables_.locals, engine.peers.capacity(), kMaxLinks * kScratchBytes),
      gpus_(machine),
      staging_(*this, tables_, copier_of(tables_.transports), engine.transfers.capacity() + index * kAllChunks,
               engine.device_atomics),
      at_once_(engine.transfers.at_once(index)) {
  history_.reserve(History::kSize);
  signals_.make(tables_.locals, engine_.transfers.capacity() * sizeof(std::uint64_t), Access::none);
}

Worker& Worker::owner_of(std::uint32_t peer_slot) const {
  return all_.owner_of(peer_slot);
}

Worker::~Worker() = default;

// ---- any thread ----

// A push while the worker closes: either its last step has seen it, or this sees that there is no step any more and has
// it taken here. Dekker, as in SleepGate: each side writes, then has a full fence, then reads what the other wrote.
void Worker::submit(std::uint32_t slot) {
  (void)submissions_.push(std::move(slot));  // never full: it holds each at most once
  queued_.store(true, std::memory_order_relaxed);
  wake();
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!closed_.load(std::memory_order_relaxed)) return;
  post([](Worker& worker) {
    worker.take_all_submissions();
    worker.deliver();
  });
}

control::Progress Worker::progress() const {
  return {queued_.load(std::memory_order_relaxed), steps_.load(std::memory_order_relaxed)};
}

// ---- the owner: one turn ----

Time Worker::step(Time now) {
  if (closed_.load(std::memory_order_relaxed)) return kNever;
  kept_out_ = visited_ && !word_.take();
  if (kept_out_) return after(now, kVisit);
  stepping_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  steps_.store(steps_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (engine_.options.progress == Progress::caller && now_ != 0 && now > after(now_, kAway))
    for (const std::uint32_t slot : live_) peers_[slot]->was_away(now_, now);
  now_ = now;
  for (std::uint16_t i = 0; i < tables_.transports.size() && !tables_.outbox.empty(); ++i)
    tables_.outbox.flush(i);  // of start_now()
  busy_ = has_commands_.load(std::memory_order_acquire) && take_commands();
  // Post before poll: a slice that completes at once is also delivered in this step.
  if (!submissions_.empty() && take_submissions()) busy_ |= pump_peers();
  if (poll_transports()) {
    busy_ = true;
    if (engine_.probes.load(std::memory_order_relaxed) != 0) notice();
  }
  if (ready_.size() > 0 || !tables_.outbox.empty()) busy_ |= pump_peers();
  if (staging_.has_work()) (void)staging_.proceed(now_);
  if (timers_.next() <= now_ && run_timers()) busy_ |= pump_peers();
  if (any_deadline_ <= now_) end_late_any();
  deliver();
  // After deliver(): when a region is reported fenced, its transfers have completed.
  if (!removals_.empty() && removals_.proceed(now_, [this](RegionId id) { return staging_.copies(id); })) again();
  if (!departures_.empty()) let_go();
  if (!leaving_.empty()) reap_peers();
  deliver();
  Time next = std::min({timers_.next(), any_deadline_, removals_.next()});
  for (const auto& transport : tables_.transports) {
    const Time at = transport->next_timer();
    busy_ |= at == transport::kPollAgain;
    next = std::min(next, at);
  }
  busy_ |= !finished_.empty() || has_commands_.load(std::memory_order_relaxed);
  if (!busy_) queued_.store(false, std::memory_order_relaxed);
  next = busy_ ? now : next;
  const bool last = shut_;
  if (last)
    stay_closed();
  else
    stepping_.store({}, std::memory_order_relaxed);
  if (last) next = kNever;
  if (visited_) word_.leave();
  return next;
}

// While another thread acts in this worker's place, sleep briefly without arming the wake-up: that thread needs the
// core.
bool Worker::prepare_sleep() {
  if (closed_.load(std::memory_order_relaxed) || (visited_ && kept_out_)) return true;
  if (visited_ && !word_.take()) return false;
  bool quiet = submissions_.empty() && tables_.outbox.empty() && !has_commands_.load(std::memory_order_acquire);
  for (const auto& transport : tables_.transports) quiet = transport->prepare_sleep() && quiet;
  if (visited_) word_.leave();
  return quiet;
}

bool Worker::take_commands() {
  std::vector<std::function<void(Worker&)>> batch;
  {
    std::lock_guard lock(commands_mutex_);
    batch.swap(commands_);
    has_commands_.store(false, std::memory_order_relaxed);
  }
  for (const auto& command : batch) command(*this);
  return !batch.empty();
}

bool Worker::take_submissions() {
  std::uint32_t slot = 0;
  std::size_t taken = 0;
  while (taken < kSubmissionsPerStep && submissions_.pop(slot)) {
    ++taken;
    if ((slot & AnyReceives::kMark) != 0) {
      take_any(slot & ~AnyReceives::kMark);
      continue;
    }
    Transfer& transfer = engine_.transfers[slot];
    Peer* owner = peers_[transfer.peer].get();
    if (!shut_ && owner != nullptr && owner->id() == transfer.request.peer) {
      const Status stopped = std::exchange(transfer.status, {});
      owner->transfers().start(slot);
      if (!stopped && owner->transfers().stop(slot, stopped))
        answer_cancels(std::move(transfer.ticket), Cancelled::Far::all);
      continue;
    }
    transfer.completion = {engine_.transfers.id(slot), engine_.peers.why_ended(transfer.request.peer), 0, 0,
                           transfer.request.options.user_data};
    if (transfer.completion.status.is_ok()) transfer.completion.status = {ErrorCode::closed, "the engine is closed"};
    ended(slot);
  }
  return taken > 0;
}

bool Worker::poll_transports() {
  bool any = false;
  for (std::uint16_t i = 0; i < tables_.transports.size(); ++i) {
    const std::size_t count = tables_.transports[i]->poll(events_, now_);
    for (std::size_t e = 0; e < count; ++e) handle(i, events_[e]);
    any |= count > 0;
  }
  return any;
}

bool Worker::pump_peers() {
  bool any = false;
  for (std::size_t i = 0; i < ready_.size(); ++i)
    any |= peers_[ready_[i]]->transfers().pump();  // one may make another ready
  if (ready_.size() > 0)
    ready_.remove_if(
        [&](std::uint32_t slot) { return !peers_[slot]->transfers().has_work() || peers_[slot]->is_down(); });
  for (std::uint16_t i = 0; i < tables_.transports.size() && !tables_.outbox.empty(); ++i) tables_.outbox.flush(i);
  return any;
}

// False: none was due. One that is set meanwhile, also to now, runs in the next step.
bool Worker::run_timers() {
  if (timers_.next() > now_) return false;
  due_.clear();
  for (std::uint32_t slot = 0; timers_.pop(after(now_, kTimerSlack), slot);) due_.push_back(slot);
  for (const std::uint32_t slot : due_) wake_at(slot, peers_[slot]->run_timers(now_));
  return true;
}

void Worker::on_untaken(std::uint32_t token) {
  const std::uint32_t peer = tables_.slices[token].peer;
  peers_[peer]->transfers().on_untaken(token);
  wake_at(peer, after(now_, kFullRetry));
}

void Worker::handle(std::uint16_t transport, const transport::Event& event) {
  using transport::EventKind;
  if (event.kind == EventKind::done || event.kind == EventKind::failed)
    return peers_[tables_.slices[event.token].peer]->transfers().on_slice(event.token, event);
  if (event.kind != EventKind::message && event.kind != EventKind::immediate) return handle_rare(transport, event);
  const LinkRef ref = link_of(transport, event.link);
  if (ref.peer == kNoSlot) return;
  if (event.kind == EventKind::message) return peers_[ref.peer]->on_record(ref.link, event.bytes);
  peers_[ref.peer]->on_immediate(static_cast<std::uint32_t>(event.value));
}

void Worker::handle_rare(std::uint16_t transport, const transport::Event& event) {
  using transport::EventKind;
  switch (event.kind) {
    case EventKind::exchange:
      if (Peer* peer = peer_by_index(event.peer))
        sessions_.tell(peer->session(),
                       format(Exchange{std::string(tables_.transports[transport]->name()), event.bytes}));
      return;
    case EventKind::link_up:
      if (Peer* peer = peer_by_index(event.peer)) peer->links().on_link_up(transport, event);
      return;
    case EventKind::deregistered: removals_.deregistered(transport, event.value, event.status); return;
    case EventKind::fenced:
      if (!event.status) unfenced_ = event.status;
      break;
    case EventKind::invalidated: mapping_ended(transport, event); return;
    case EventKind::link_down:
      if (event.link.epoch == 0) {
        if (Peer* peer = peer_by_index(event.peer)) peer->links().on_connect_failed(transport, event.status);
        return;
      }
      break;
    default: break;
  }
  // All other events are of a link's current epoch.
  const LinkRef ref = link_of(transport, event.link);
  if (ref.peer == kNoSlot) return;
  LinkSet& links = peers_[ref.peer]->links();
  if (event.kind == EventKind::link_down) links.on_link_down(ref.link, event.status);
  if (event.kind == EventKind::retry_failed) links.on_retry_failed(ref.link, event.status);
  if (event.kind == EventKind::fenced) links.on_fenced(ref.link, event);
}

// ---- peers ----

void Worker::add_peer(PeerId id, control::SessionId session, const control::PeerInfo& info) {
  if (shut_) return;
  const transport::PeerIndex index = next_peer_index_++;
  auto peer = std::make_unique<Peer>(*this, id, index, session, info);
  {
    const std::lock_guard lock(shape_);
    peers_[id.slot] = std::move(peer);
    live_.push_back(id.slot);
  }
  peer_by_index_[index] = id.slot;
  peers_[id.slot]->open();
}

Peer* Worker::peer_by_index(transport::PeerIndex index) {
  const auto found = peer_by_index_.find(index);
  return found == peer_by_index_.end() ? nullptr : peers_[found->second].get();
}

void Worker::reap_peers() {
  for (std::size_t i = 0; i < leaving_.size();) {
    const std::uint32_t slot = leaving_[i];
    Peer& peer = *peers_[slot];
    const bool leaves = std::any_of(tables_.transports.begin(), tables_.transports.end(),
                                    [&](const auto& transport) { return transport->leaves(peer.index()); });
    if (leaves || !peer.gone()) {
      ++i;
      continue;
    }
    const std::uint64_t polled = engine_.polled.close(peer.id());
    engine_.notifications.give_back(
        static_cast<std::uint32_t>(peer.notifier().granted() - (peer.notifier().delivered() - polled)));
    for (auto& of_transport : links_)
      for (LinkRef& ref : of_transport)
        if (ref.peer == slot) ref = {};
    tables_.remotes.release_all(peer.id());
    peer_by_index_.erase(peer.index());
    const PeerId id = peer.id();
    scratch_.give_back(peer.scratch());
    if (gone_.size() == GoneLinks::kPeers) gone_.pop_front();
    GoneLinks& links = gone_.emplace_back(GoneLinks{id, {}});
    for (const Link& link : peer.links()) links.names.push_back(link.text);
    ready_.remove(slot);
    timers_.clear(slot);
    {
      const std::lock_guard lock(shape_);
      std::erase(live_, slot);
    }
    peers_[slot].reset();
    leaving_[i] = leaving_.back();
    leaving_.pop_back();
    engine_.peers.free(id);
  }
}

std::uint16_t Worker::transport_index(std::string_view name) const {
  for (std::uint16_t i = 0; i < tables_.transports.size(); ++i)
    if (tables_.transports[i]->name() == name) return i;
  return kNoTransport;
}

std::uint32_t Worker::record_bytes() const {
  std::uint32_t smallest = kRecordBytes;
  for (const auto& transport : tables_.transports)
    for (const transport::Device& device : transport->devices()) {
      const transport::Capabilities& c = device.capabilities;
      if ((c.operations & static_cast<std::uint8_t>(transport::Op::message)) != 0 &&
          c.max_message_bytes >= kSmallestMessage)
        smallest = std::min(smallest, c.max_message_bytes);
    }
  return smallest;
}

void Worker::link_at(std::uint16_t transport, transport::LinkId id, Peer& peer, std::uint8_t link) {
  auto& links = links_[transport];
  if (id.slot >= links.size()) links.resize(id.slot + 1);
  links[id.slot] = {peer.id().slot, link, id.epoch};
}

void Worker::peer_down(PeerId id, const Status& reason, std::function<void()> told) {
  drain_transports();
  const bool said_goodbye = reason.code() == ErrorCode::closed;
  departures_.push_back({id, reason, std::move(told), said_goodbye ? after(now_, kLastEnds) : now_});
  let_go();
}

// The acknowledgements that a peer sent before its goodbye come by another connection, so perhaps after it: its end
// waits until no link can bring one any more, or `kLastEnds` is over.
void Worker::let_go() {
  std::erase_if(departures_, [this](const Departure& one) {
    Peer* const peer = peer_of(one.peer);
    const bool awaits = peer != nullptr && !peer->is_down() && peer->links().awaits_ends();
    if (awaits && now_ < one.until) {
      wake_at(one.peer.slot, after(now_, kMillisecond));
      return false;
    }
    if (peer != nullptr) end(*peer, one.reason);
    deliver();
    one.told();
    return true;
  });
}

void Worker::end(Peer& peer, const Status& reason) {
  if (peer.is_down()) return;
  peer.on_down(reason);
  leaving_.push_back(peer.id().slot);
}

}  // namespace fairway::engine
