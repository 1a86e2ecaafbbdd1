#include <algorithm>
#include <utility>

#include "engine/tables/route.h"
#include "engine/worker.h"

// Worker: cancelling transfers, dependents of transfers, and delivery of completions.
namespace fairway::engine {
namespace {

Cancelled::Far far_side_of(Effect failed) {
  switch (failed) {
    case Effect::not_applied: return Cancelled::Far::nothing;
    case Effect::partial: return Cancelled::Far::partial;
    case Effect::unknown: break;
  }
  return Cancelled::Far::unknown;
}

}  // namespace

// Earlier submissions, commands of other threads and region removals go first. So does what another thread is still
// putting before a submission of this one.
TransferId Worker::complete_now(PeerId id, Operation operation, const Extent& extent, const RequestOptions& options,
                                NamedQueue* queue) {
  if (closed_.load(std::memory_order_relaxed) || has_commands_.load(std::memory_order_acquire) ||
      !submissions_.none_claimed() || !tables_.outbox.empty() || !finished_.empty() || !removals_.empty())
    return {};
  Peer* const peer = peer_of(id);
  if (peer == nullptr) return {};
  AtOnceTable<>::Past* const past = at_once_.space();
  if (past == nullptr || !peer->transfers().move_at_once(operation, extent, options, *past)) return {};
  const bool to_poll = options.deliver == Deliver::to_poll;
  const TransferId done = TransferTable::at_once_id(index_, at_once_.add(options.user_data, to_poll));
  if (queue != nullptr) {
    deliver_to(*queue, done.slot);
  } else if (to_poll) {
    (void)engine_.completions.push(std::uint32_t{done.slot});
    waiting_.completed();
  }
  return done;
}

// Nothing that was submitted before waits; a receive takes its place behind those before it.
bool Worker::start_now(std::uint32_t slot) {
  if (closed_.load(std::memory_order_relaxed) || has_commands_.load(std::memory_order_acquire) ||
      !submissions_.none_claimed() || !removals_.empty())
    return false;
  Transfer& t = engine_.transfers[slot];
  Peer* const peer = peer_of(t.request.peer);
  if (peer == nullptr || (is_message(t.request.operation) && !tables_.outbox.empty()) ||
      !peer->transfers().may_start_now(t))
    return false;
  t.timed = started_now_++ % kTimed == 0;
  t.submitted = t.timed ? engine_.runtime.clock.now() : now_;
  const bool alone = finished_.empty();
  peer->transfers().start_now(slot);
  // It may be over: then its caller finds it so, unless its record waits for a step. A callback runs in a step.
  if (alone && finished_.size() == 1 && finished_.front() == slot && !peer->transfers().has_work() &&
      t.request.options.deliver != Deliver::to_callback) {
    finished_.clear();
    bool completed = false;
    deliver(slot, completed);
    if (completed) waiting_.completed();
    note_ends();
    tell();
    slot = kNoSlot;
  }
  if (!finished_.empty() || !tables_.outbox.empty() || peer->transfers().has_work() ||
      (slot != kNoSlot && t.deadline != kNever)) {
    queued_.store(true, std::memory_order_relaxed);
    wake();
  }
  return true;
}

void Worker::stop(TransferId id, const Status& why, std::shared_ptr<CancelTicket> ticket) {
  take_all_submissions();  // the one to stop may be among them, or behind one that another thread is still putting
                           // there
  if (stop_any(id, why, ticket)) return;
  Peer* owner = engine_.transfers.is_active(id) ? peer(engine_.transfers[id.slot].peer) : nullptr;
  if (owner == nullptr) {
    if (ticket != nullptr) {
      ticket->result = {true, {}, far_side_of_ended(id)};
      ticket->word.store(1, std::memory_order_release);
      engine_.runtime.executor.wake_all(ticket->word);
    }
    return;
  }
  if (ticket != nullptr) {
    ticket->next = std::move(engine_.transfers[id.slot].ticket);
    engine_.transfers[id.slot].ticket = std::move(ticket);
  }
  if (engine_.transfers[id.slot].phase == Phase::submitted) {
    engine_.transfers[id.slot].status = why;  // take_submissions() stops it
    return;
  }
  if (owner->transfers().stop(id.slot, why))
    answer_cancels(std::move(engine_.transfers[id.slot].ticket), Cancelled::Far::all);
}

// What its completion says, which another thread may be collecting: then nothing.
Cancelled::Far Worker::far_side_of_ended(TransferId id) const {
  const auto waits = [&] {
    const Stage stage = engine_.transfers.stage(id);
    return stage == Stage::done || stage == Stage::done_to_poll;
  };
  if (!waits()) return Cancelled::Far::unknown;
  const Transfer& transfer = engine_.transfers[id.slot];
  if (!transfer.failures.has(id.generation)) return Cancelled::Far::all;
  const Effect effect = transfer.effect.load(std::memory_order_acquire);
  return waits() ? far_side_of(effect) : Cancelled::Far::unknown;  // it may be a later one's
}

// Nothing accesses the transfer's memory any more.
[[gnu::noinline]] void Worker::answer_cancels(std::shared_ptr<CancelTicket> ticket, Cancelled::Far far_side) {
  while (ticket != nullptr) {
    auto next = std::move(ticket->next);
    ticket->result.fenced = true;
    ticket->result.far_side = far_side;
    ticket->word.store(1, std::memory_order_release);
    engine_.runtime.executor.wake_all(ticket->word);
    ticket = std::move(next);
  }
}

void Worker::force_stop(TransferId id) {
  if (!engine_.transfers.is_active(id)) return;
  if (Worker* const other = elsewhere(id)) return other->post([id](Worker& there) { there.force_stop(id); });
  if (Peer* owner = peer(engine_.transfers[id.slot].peer)) owner->transfers().force_stop(id.slot);
}

void Worker::when_ended(TransferId id, std::function<void(bool ok)> answer) {
  if (id.slot >= engine_.transfers.capacity()) return answer(true);  // it completed with ok within its call
  if (Worker* const other = engine_.transfers.is_active(id) ? elsewhere(id) : nullptr)
    return other->post([id, answer = std::move(answer)](Worker& there) { there.when_ended(id, answer); });
  if (any_.has(id)) return void(foreign_.emplace_back(id, std::move(answer)));
  if (engine_.transfers.is_active(id) && engine_.transfers[id.slot].phase != Phase::done)
    foreign_.emplace_back(id, std::move(answer));
  else
    answer(!engine_.transfers[id.slot].failures.has(id.generation));
}

bool Worker::wait_for(TransferId after, std::uint32_t slot, bool& failed) {
  if (after.slot >= engine_.transfers.capacity()) return false;
  Transfer& first = engine_.transfers[after.slot];
  if (engine_.transfers.is_active(after)) {
    Worker& owner = owner_of(first.peer);
    if (&owner != this || any_.has(after)) {  // ask the other worker, which always answers
      const TransferId id = engine_.transfers.id(slot);
      owner.post([this, after, slot, id](Worker& other) {
        const auto answer = [this, slot, id](bool ok) {
          post([slot, id, ok](Worker& self) {
            if (!self.engine_.transfers.is_active(id)) return;
            if (Peer* peer = self.peer(self.engine_.transfers[slot].peer)) peer->transfers().dependency_ended(slot, ok);
          });
        };
        other.when_ended(after, answer);
      });
      return true;
    }
    if (first.phase != Phase::done) {
      engine_.transfers[slot].next_dependent = first.first_dependent;
      first.first_dependent = slot;
      return true;
    }
  }
  failed = first.failures.has(after.generation);
  return false;
}

void Worker::ended(std::uint32_t slot) {
  note_end(engine_.transfers[slot]);
  engine_.transfers[slot].phase = Phase::done;
  finished_.push_back(slot);
}

// Keeps its history for explain() and starts or fails its dependents.
void Worker::note_end(Transfer& transfer) {
  const bool ok = transfer.completion.status.is_ok();
  if (!ok) {
    transfer.failures.add(transfer.completion.id.generation);
    transfer.effect.store(transfer.completion.status.effect(), std::memory_order_release);
  }
  if (history_.size() < History::kSize) history_.emplace_back();
  History& past = history_[history_next_];
  past.id = transfer.completion.id;
  past.operation = transfer.request.operation;
  past.peer = transfer.request.peer;
  past.bytes = transfer.total;
  past.bytes_done = transfer.bytes_done;
  past.links_used = transfer.links_used;
  past.retried = transfer.retried;
  past.method = transfer.route.method;
  past.submitted = transfer.submitted;
  past.ended = std::max(now_, transfer.submitted);
  past.status = transfer.completion.status;
  past.place = transfer.place;
  past.far_place = transfer.far_place;
  history_next_ = (history_next_ + 1) % History::kSize;
  for (std::uint32_t slot = transfer.first_dependent; slot != kNoSlot; slot = engine_.transfers[slot].next_dependent)
    released_.emplace_back(slot, ok);
  transfer.first_dependent = kNoSlot;
  for (std::size_t i = 0; i < foreign_.size();) {
    if (foreign_[i].first != transfer.completion.id) {
      ++i;
      continue;
    }
    foreign_[i].second(ok);
    foreign_.erase(foreign_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  // In a loop, not recursively: each failed dependent fails its own dependents, however long the chain is.
  if (releasing_) return;
  releasing_ = true;
  for (std::size_t i = 0; i < released_.size(); ++i) {
    const auto [slot, first_ok] = released_[i];
    if (Peer* owner = peer(engine_.transfers[slot].peer)) owner->transfers().dependency_ended(slot, first_ok);
  }
  released_.clear();
  releasing_ = false;
}

void Worker::no_longer_waits(std::uint32_t slot) {
  const TransferId first = engine_.transfers[slot].request.options.after;
  if (!engine_.transfers.is_active(first) || any_.has(first)) return;
  if (&owner_of(engine_.transfers[first.slot].peer) != this) return;  // its answer will be ignored
  std::uint32_t* link = &engine_.transfers[first.slot].first_dependent;
  while (*link != kNoSlot && *link != slot) link = &engine_.transfers[*link].next_dependent;
  if (*link == slot) *link = engine_.transfers[slot].next_dependent;
}

// Last in a step, when no loop over engine state is active, since callbacks may call the engine.
[[gnu::flatten]] void Worker::deliver_all() {
  delivering_.swap(finished_);
  bool completed = false;
  for (const std::uint32_t slot : delivering_) deliver(slot, completed);
  delivering_.clear();
  if (completed) waiting_.completed();
  note_ends();
}

// Who cancels finds the completion when cancel() returns. Only a callback comes after that: it may wait for them.
[[gnu::noinline]] void Worker::deliver_cancelled(std::uint32_t slot, bool& completed) {
  Transfer& transfer = engine_.transfers[slot];
  auto ticket = std::move(transfer.ticket);
  const Status& status = transfer.completion.status;
  const auto far_side = status.is_ok() ? Cancelled::Far::all : far_side_of(status.effect());
  if (transfer.request.options.deliver == Deliver::to_callback) answer_cancels(std::move(ticket), far_side);
  deliver(slot, completed);
  answer_cancels(std::move(ticket), far_side);
}

void Worker::deliver(std::uint32_t slot, bool& completed) {
  Transfer& transfer = engine_.transfers[slot];
  if (transfer.ticket != nullptr) return deliver_cancelled(slot, completed);
  const RequestOptions& options = transfer.request.options;
  if (options.deliver == Deliver::to_callback) {
    const Completion completion = std::move(transfer.completion);
    const CompletionCallback callback = options.callback;
    void* user_data = options.user_data;
    engine_.transfers.publish(slot, Stage::done);
    (void)engine_.transfers.claim(completion.id, Stage::done);
    engine_.transfers.release(slot);
    if (std::exchange(completed, false)) waiting_.completed();
    tell();
    callback(completion, user_data);
    return;
  }
  if (transfer.queue != nullptr) {
    engine_.transfers.publish(slot, Stage::done_to_poll);
    return deliver_to(*transfer.queue, slot);
  }
  const bool to_poll = options.deliver == Deliver::to_poll;
  if (Completion* const place = to_poll ? engine_.completions.place() : nullptr) {
    *place = std::move(transfer.completion);
    return engine_.transfers.collected(slot);
  }
  if (to_poll) {
    engine_.transfers.publish(slot, Stage::done_to_poll);
    (void)engine_.completions.push(std::uint32_t{slot});
    completed = true;
  } else {
    engine_.transfers.publish(slot, Stage::done, std::memory_order_seq_cst);
    engine_.runtime.executor.wake_all(transfer.word);
  }
}

std::optional<History> Worker::in_flight(TransferId id) {
  if (!engine_.transfers.is_active(id) || elsewhere(id) != nullptr) return std::nullopt;
  if (const auto waiting = any_.look(id)) {  // another worker may take it just now: nothing of the transfer is read
    History history;
    history.id = id;
    history.operation = Operation::receive;
    history.bytes = waiting->into.length;
    history.submitted = waiting->submitted;
    history.ended = std::max(now_, waiting->submitted);
    return history;
  }
  Transfer& t = engine_.transfers[id.slot];
  if (peer_of(t.request.peer) == nullptr) return std::nullopt;
  return History{id,
                 t.request.operation,
                 t.request.peer,
                 t.total,
                 t.bytes_done,
                 t.links_used,
                 t.retried,
                 t.route.method,
                 t.submitted,
                 std::max(now_, t.submitted),
                 {},
                 t.place,
                 t.far_place};
}

std::optional<Probed> Worker::first_message(std::uint64_t tag) const {
  for (const std::uint32_t slot : live_)
    if (const auto found = peers_[slot]->first_message(tag)) return found;
  return std::nullopt;
}

void Worker::collect(Metrics& out) const {
  {
    const std::lock_guard lock(shape_);
    for (const std::uint32_t slot : live_) peers_[slot]->collect(out);
  }
  for (const auto& transport : tables_.transports) {
    const auto same = std::find_if(out.transports.begin(), out.transports.end(),
                                   [&](const TransportMetrics& known) { return known.name == transport->name(); });
    TransportMetrics& all = same != out.transports.end()
                                ? *same
                                : out.transports.emplace_back(TransportMetrics{std::string(transport->name()), 0, 0});
    const CostCounters& counters = transport->counters();
    all.system_calls += counters.system_calls.load(std::memory_order_relaxed);
    all.copied_bytes += counters.copied_bytes.load(std::memory_order_relaxed);
  }
}

const GoneLinks* Worker::links_of_gone(PeerId id) const {
  const auto found = std::find_if(gone_.begin(), gone_.end(), [id](const GoneLinks& each) { return each.peer == id; });
  return found == gone_.end() ? nullptr : &*found;
}

std::optional<History> Worker::history(TransferId id) const {
  if (const auto* past = engine_.transfers.past_at_once(id, index_))
    return History{id,
                   past->operation,
                   past->peer,
                   past->bytes,
                   past->bytes,
                   std::uint64_t{1} << past->link,
                   0,
                   Method::native,
                   past->at,
                   after(past->at, past->took),
                   {},
                   past->place,
                   past->far_place};
  for (const History& entry : history_)
    if (entry.id == id) return entry;
  return std::nullopt;
}

}  // namespace fairway::engine
