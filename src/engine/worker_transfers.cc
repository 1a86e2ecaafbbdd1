#include <algorithm>

#include "engine/worker.h"

// The worker's part of transfers: stopping them, what waits for them, and the delivery of completions.
namespace fairway::engine {

void Worker::stop(TransferId id, const Status& why, std::shared_ptr<CancelTicket> ticket) {
  while (take_submissions()) {
  }  // the one to stop may still be among them
  Peer* owner = services_.transfers.is_active(id) ? peer(services_.transfers[id.slot].peer) : nullptr;
  if (owner == nullptr) {
    if (ticket != nullptr) {
      ticket->result = {true, {}, Cancelled::Far::unknown};
      ticket->word.store(1, std::memory_order_release);
      services_.runtime.executor.wake_all(ticket->word);
    }
    return;
  }
  if (ticket != nullptr) {
    ticket->next = std::move(services_.transfers[id.slot].ticket);
    services_.transfers[id.slot].ticket = std::move(ticket);
  }
  if (owner->stop(id.slot, why)) answer_cancels(services_.transfers[id.slot], Cancelled::Far::all);
}

// Nothing touches the transfer's memory any more.
void Worker::answer_cancels(Transfer& transfer, Cancelled::Far far_side) {
  while (const std::shared_ptr<CancelTicket> ticket = std::move(transfer.ticket)) {
    transfer.ticket = std::move(ticket->next);
    ticket->result.fenced = true;
    ticket->result.far_side = far_side;
    ticket->word.store(1, std::memory_order_release);
    services_.runtime.executor.wake_all(ticket->word);
  }
}

void Worker::force_stop(TransferId id) {
  if (!services_.transfers.is_active(id)) return;
  if (Peer* owner = peer(services_.transfers[id.slot].peer)) owner->force_stop(id.slot);
}

void Worker::when_ended(TransferId id, std::function<void(bool ok)> answer) {
  if (services_.transfers.is_active(id) && services_.transfers[id.slot].phase != Phase::done)
    foreign_.emplace_back(id, std::move(answer));
  else
    answer(services_.transfers[id.slot].last_failed.load(std::memory_order_relaxed) != id.generation);
}

bool Worker::wait_for(TransferId after, std::uint32_t slot, bool& failed) {
  if (after.slot >= services_.transfers.capacity()) return false;
  Transfer& first = services_.transfers[after.slot];
  if (services_.transfers.is_active(after)) {
    Worker& owner = services_.worker_of(first.peer);
    if (&owner != this) {  // ask the other worker; it answers in any case
      const TransferId id = services_.transfers.id(slot);
      owner.post([this, after, slot, id](Worker& other) {
        const auto answer = [this, slot, id](bool ok) {
          post([slot, id, ok](Worker& self) {
            if (!self.services_.transfers.is_active(id)) return;
            if (Peer* peer = self.peer(self.services_.transfers[slot].peer)) peer->dependency_ended(slot, ok);
          });
        };
        other.when_ended(after, answer);
      });
      return true;
    }
    if (first.phase != Phase::done) {
      services_.transfers[slot].next_dependent = first.first_dependent;
      first.first_dependent = slot;
      return true;
    }
  }
  failed = first.last_failed.load(std::memory_order_relaxed) == after.generation;
  return false;
}

void Worker::ended(Transfer& transfer) {
  const bool ok = transfer.completion.status.is_ok();
  if (!ok) transfer.last_failed.store(transfer.completion.id.generation, std::memory_order_relaxed);
  if (history_.size() < History::kSize) history_.emplace_back();
  history_[history_next_] = {transfer.completion.id,     transfer.request.operation,
                             transfer.request.peer,      transfer.total,
                             transfer.bytes_done,        transfer.links_used,
                             transfer.retried,           transfer.route.method,
                             transfer.submitted,         now_,
                             transfer.completion.status, transfer.place,
                             transfer.far_place};
  history_next_ = (history_next_ + 1) % History::kSize;
  for (std::uint32_t slot = transfer.first_dependent; slot != kNoSlot; slot = services_.transfers[slot].next_dependent)
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
  // One after the other, not one inside the other: those that fail now end others in turn, however long the chain is.
  if (releasing_) return;
  releasing_ = true;
  for (std::size_t i = 0; i < released_.size(); ++i) {
    const auto [slot, first_ok] = released_[i];
    if (Peer* owner = peer(services_.transfers[slot].peer)) owner->dependency_ended(slot, first_ok);
  }
  released_.clear();
  releasing_ = false;
}

void Worker::no_longer_waits(std::uint32_t slot) {
  const TransferId first = services_.transfers[slot].request.options.after;
  if (!services_.transfers.is_active(first)) return;
  if (&services_.worker_of(services_.transfers[first.slot].peer) != this) return;  // its answer will find nobody
  std::uint32_t* link = &services_.transfers[first.slot].first_dependent;
  while (*link != kNoSlot && *link != slot) link = &services_.transfers[*link].next_dependent;
  if (*link == slot) *link = services_.transfers[slot].next_dependent;
}

void Worker::completed(std::uint32_t slot) {
  services_.transfers[slot].phase = Phase::done;
  finished_.push_back(slot);
}

// Last in a step, when nothing of the engine is being walked over: callbacks may call the engine.
void Worker::deliver() {
  delivering_.swap(finished_);
  for (const std::uint32_t slot : delivering_) deliver(slot);
  delivering_.clear();
}

void Worker::deliver(std::uint32_t slot) {
  Transfer& transfer = services_.transfers[slot];
  answer_cancels(transfer, transfer.completion.status.is_ok() ? Cancelled::Far::all
                           : transfer.bytes_posted == 0       ? Cancelled::Far::nothing
                           : transfer.in_doubt                ? Cancelled::Far::unknown
                                                              : Cancelled::Far::partial);
  const RequestOptions& options = transfer.request.options;
  if (options.deliver == Deliver::to_callback) {
    const Completion completion = std::move(transfer.completion);
    const CompletionCallback callback = options.callback;
    void* user_data = options.user_data;
    services_.transfers.publish(slot);
    (void)services_.transfers.claim(completion.id);
    services_.transfers.release(slot);
    callback(completion, user_data);
    return;
  }
  const bool to_poll = options.deliver == Deliver::to_poll;
  services_.transfers.publish(slot);
  if (to_poll) {
    (void)services_.completions.push(std::uint32_t{slot});
    services_.notice();
  } else {
    services_.runtime.executor.wake_all(transfer.word);
  }
}

std::optional<History> Worker::in_flight(TransferId id) {
  if (!services_.transfers.is_active(id)) return std::nullopt;
  Transfer& t = services_.transfers[id.slot];
  if (peer_of(t.request.peer) == nullptr) return std::nullopt;
  return History{id,         t.request.operation, t.request.peer, t.total, t.bytes_done, t.links_used,
                 t.retried,  t.route.method,      t.submitted,    now_,    {},           t.place,
                 t.far_place};
}

void Worker::collect(Metrics& out) const {
  for (const std::uint32_t slot : live_) peers_[slot]->collect(out);
  for (const auto& transport : transports_) {
    const auto same = std::find_if(out.transports.begin(), out.transports.end(),
                                   [&](const TransportMetrics& known) { return known.name == transport->name(); });
    TransportMetrics& all = same != out.transports.end()
                                ? *same
                                : out.transports.emplace_back(TransportMetrics{std::string(transport->name()), 0, 0});
    const transport::Counters& counters = transport->counters();
    all.system_calls += counters.system_calls.load(std::memory_order_relaxed);
    all.copied_bytes += counters.copied_bytes.load(std::memory_order_relaxed);
  }
}

std::optional<History> Worker::history(TransferId id) const {
  for (const History& entry : history_)
    if (entry.id == id) return entry;
  return std::nullopt;
}

}  // namespace fairway::engine
