#include "engine/submissions.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/staging/pool.h"
#include "engine/tables/route.h"
#include "transport/gpu_access.h"

namespace fairway::engine {
namespace {

constexpr std::uint64_t kBytesOfACall = 64 * 1024;  // the most that submit() moves by itself

bool is_one_piece(const Request& request) {
  return std::holds_alternative<Extent>(request.layout) &&
         (request.operation == Operation::write || request.operation == Operation::read);
}

}  // namespace

Result<TransferId> Submissions::submit(const Request& request, bool full_is_error) {
  if (waiting_.closed() || !check_.is_plain_message(request))
    if (Status status = check(request); !status) return status;
  NamedQueue* queue = nullptr;
  if (request.options.queue)
    if (Status status = queues_.take_place(request.options.queue, queue); !status) {
      if (status.code() == ErrorCode::queue_full) back_pressure_.fetch_add(1, std::memory_order_relaxed);
      return status;
    }
  const bool of_any = is_of_any(request);
  const PeerId peer = of_any ? PeerId{kNoSlot, 0} : request.peer;
  const std::uint32_t slot =
      tables_.transfers.acquire(peer, request.operation == Operation::receive, request.options.deliver);
  if (slot == kNoSlot) {
    if (queue != nullptr) queue->give_back();
    back_pressure_.fetch_add(1, std::memory_order_relaxed);
    if (!full_is_error) return TransferId{};
    return Status(ErrorCode::queue_full,
                  "all EngineOptions::max_transfers are in use: collect completions, then try again");
  }
  Transfer& t = tables_.transfers[slot];
  const bool now = !of_any && may_start_now(request);
  t.begin(request, now && request.options.deadline == kForever ? 0 : waiting_.now(), queue);
  const TransferId id = tables_.transfers.id(slot);
  if (of_any) {
    t.request.peer = peer;
    t.peer.store(kNoSlot, std::memory_order_relaxed);
    if (start_any(id, t)) return id;
    if (queue != nullptr) queue->give_back();
    tables_.transfers.collected(slot);
    return Status(ErrorCode::queue_full, "1,024 receives of any peer wait: collect some of them, then try again");
  }
  if (now && start_now(request.peer, slot)) return id;
  if (now) t.submitted = waiting_.now();
  workers_.owner_of(request.peer.slot).submit(slot);
  return id;
}

Submitted Submissions::submit(std::span<const Request> requests, std::span<TransferId> ids) {
  Submitted result;
  for (result.taken = complete_now(requests, ids); result.taken < requests.size(); ++result.taken) {
    auto id = submit(requests[result.taken], false);
    if (!id) {
      result.status = id.status();
      return result;
    }
    if (!*id) return result;
    ids[result.taken] = *id;
  }
  return result;
}

// A message that waits for nothing, or one piece of memory where the caller steps the worker: a worker with a thread
// would have to be woken anyway.
bool Submissions::may_start_now(const Request& request) const {
  const RequestOptions& options = request.options;
  return tables_.short_path && (is_message(request.operation) || (waiting_.by_caller() && is_one_piece(request))) &&
         !options.after && options.start_after == nullptr && options.deadline.count() > 0 && !waiting_.closed();
}

bool Submissions::start_any(TransferId id, const Transfer& t) {
  const std::uint32_t index =
      tables_.any.add({id, t.request.tag, std::get<Extent>(t.request.layout).local, t.submitted, t.deadline});
  if (index == kNoSlot) return false;
  for (const auto& worker : workers_.all()) worker->submit(AnyReceives::kMark | index);
  return true;
}

// By its caller in the worker's place. False: the worker has to.
[[gnu::flatten]] bool Submissions::start_now(PeerId peer, std::uint32_t slot) {
  Worker& owner = workers_.owner_of(peer.slot);
  bool started = false;
  const auto act = [&] { started = tables_.peers.is_usable(peer) && owner.start_now(slot); };
  (void)(waiting_.by_caller() ? waiting_.in_their_place(act) : owner.in_its_place(act));
  return started;
}

[[gnu::flatten]] TransferId Submissions::complete_now(Operation operation, PeerId peer, const Extent& extent,
                                                      const RequestOptions& options) {
  TransferId done;
  if (!tables_.short_path || !tables_.peers.at_once(peer) || waiting_.closed()) return done;
  bool refused = false;
  NamedQueue* const queue = place_in(options, refused);
  if (refused) return done;
  Worker& owner = workers_.owner_of(peer.slot);
  const auto act = [&] {
    if (tables_.peers.is_usable(peer)) done = owner.complete_now(peer, operation, extent, options, queue);
  };
  (void)(waiting_.by_caller() ? waiting_.in_their_place(act) : owner.in_its_place(act));
  if (!done && queue != nullptr) queue->give_back();
  return done;
}

// Takes requests from the front, up to one that must wait or belongs to another worker. Returns how many.
std::size_t Submissions::complete_now(std::span<const Request> requests, std::span<TransferId> ids) {
  const auto may_take = [](const Request& each) {
    return ShortPath::may_take(each.operation, each.layout, each.options);
  };
  std::size_t count = 0;
  if (!tables_.short_path || requests.empty() || !may_take(requests.front()) ||
      !tables_.peers.at_once(requests.front().peer) || waiting_.closed())
    return count;
  Worker& owner = workers_.owner_of(requests.front().peer.slot);
  const auto act = [&] {
    std::uint64_t bytes = 0;
    for (; count < requests.size() && bytes < kBytesOfACall; ++count) {
      const Request& each = requests[count];
      if (!may_take(each) || !tables_.peers.is_usable(each.peer) || &workers_.owner_of(each.peer.slot) != &owner)
        return;
      const Extent& extent = *std::get_if<Extent>(&each.layout);
      bool refused = false;
      NamedQueue* const queue = place_in(each.options, refused);
      if (refused) return;
      ids[count] = owner.complete_now(each.peer, each.operation, extent, each.options, queue);
      if (!ids[count]) {
        if (queue != nullptr) queue->give_back();
        return;
      }
      bytes += extent.local.length;
    }
  };
  (void)(waiting_.by_caller() ? waiting_.in_their_place(act) : owner.in_its_place(act));
  return count;
}

void Submissions::collect(Metrics& out) const {
  out.transfers_in_use = tables_.transfers.used() + tables_.transfers.used_at_once();
  out.back_pressure = back_pressure_.load(std::memory_order_relaxed);
}

Result<Completion> Submissions::wait(TransferId id, Timeout timeout) {
  if (TransferTable::is_at_once(id.slot)) {
    waiting_.drive_if_due();
    Completion at_once;
    if (tables_.transfers.collect_at_once(id, false, at_once)) return at_once;
  }
  const Time until = waiting_.deadline(timeout);
  for (;;) {
    const Stage stage = tables_.transfers.stage(id);
    if (stage == Stage::done && !TransferTable::is_at_once(id.slot) && tables_.transfers.claim(id, Stage::done)) {
      Completion completion = std::move(tables_.transfers[id.slot].completion);
      tables_.transfers.release(id.slot);
      return completion;
    }
    if (stage != Stage::active)
      return Status(ErrorCode::not_found, "no such transfer, or its completion was collected before");
    if (waiting_.now() >= until) {
      waiting_.found_nothing();
      return Status(ErrorCode::timed_out, "the transfer is still in flight; wait again, or cancel it");
    }
    waiting_.wait(tables_.transfers[id.slot].word, TransferTable::pack(id.generation, Stage::active), until);
  }
}

Status Submissions::stream_wait(TransferId id, void* stream) {
  if (waiting_.closed()) return {ErrorCode::closed, "the engine is closed"};
  for (const auto& transport : workers_.transports()) {
    transport::GpuAccess* const gpus = transport->gpu();
    if (gpus == nullptr) continue;
    auto gate = gpus->hold_stream(stream);
    if (!gate) return gate.status();
    if (*gate == nullptr) continue;
    if (id.slot >= tables_.transfers.capacity()) return {};  // no such transfer: the gate opens when it is destroyed
    workers_.owner_of(tables_.transfers[id.slot].peer.load(std::memory_order_relaxed))
        .post([id, held = *gate](Worker& owner) { owner.when_ended(id, [held](bool) { held->open(); }); });
    return {};
  }
  return {ErrorCode::unsupported, "no transport in use here has streams: a CUDA stream needs the transport cuda"};
}

std::size_t Submissions::poll(std::span<Completion> completions) {
  std::size_t count = waiting_.drive_before_poll(!completions.empty() && !tables_.completions.empty(), completions);
  std::uint32_t slot = 0;
  while (count < completions.size() && tables_.completions.pop(slot))
    count += collect_polled(slot, completions[count]) ? 1u : 0u;
  if (count == 0) waiting_.settle();
  return count;
}

bool Submissions::collect_polled(std::uint32_t slot, Completion& out) {
  if (TransferTable::is_at_once(slot)) {
    out = {};
    return tables_.transfers.collect_at_once(tables_.transfers.id(slot), true, out);
  }
  if (!tables_.transfers.claim(tables_.transfers.id(slot), Stage::done_to_poll)) return false;
  out = std::move(tables_.transfers[slot].completion);
  tables_.transfers.release(slot);
  return true;
}

// ---- named queues ----

std::size_t Submissions::poll_queue(QueueId id, std::span<Completion> completions) {
  NamedQueue* const queue = queues_.find(id);
  if (queue == nullptr) return 0;
  (void)waiting_.drive_before_poll(!completions.empty() && !queue->empty());
  std::size_t count = 0;
  std::uint32_t slot = 0;
  while (count < completions.size() && queue->pop(id.generation, slot)) {
    count += collect_polled(slot, completions[count]) ? 1u : 0u;
    queue->give_back();
  }
  if (count == 0) waiting_.settle();
  return count;
}

Status Submissions::wait_queue(QueueId id, Timeout timeout) {
  const Time until = waiting_.deadline(timeout);
  NamedQueue* const queue = queues_.find(id);
  for (;;) {
    if (queue == nullptr || !queue->is(id.generation))
      return {ErrorCode::not_found, "no such completion queue, or it has ended"};
    const std::uint32_t seen = queue->told().load(std::memory_order_acquire);
    const bool ended = waiting_.nothing_comes();  // before that close() completes what is in flight
    if (!queue->empty()) return {};
    if (ended) return {ErrorCode::closed, "the engine is closed"};
    if (waiting_.now() >= until) {
      waiting_.found_nothing();
      return {ErrorCode::timed_out, "no completion came to the queue in time"};
    }
    if (waiting_.closed())
      (void)waiting_.wait_for_end(until);
    else
      waiting_.wait(queue->told(), seen, until);
  }
}

Status Submissions::end_queue(QueueId id) {
  NamedQueue* const queue = queues_.find(id);
  Status status = queues_.end(id);
  if (status) waiting_.wake(queue->told());
  return status;
}

void Submissions::closed() {
  queues_.for_each([this](NamedQueue& queue) {
    queue.told().fetch_add(1, std::memory_order_release);
    waiting_.wake(queue.told());
  });
}

Result<Cancelled> Submissions::cancel(TransferId id, Timeout timeout) {
  if (tables_.transfers.stage(id) == Stage::free)
    return Status(ErrorCode::not_found, "no such transfer, or its completion was collected before");
  if (TransferTable::is_at_once(id.slot)) return Cancelled{true, {}, Cancelled::Far::all};
  const Time now = waiting_.now();
  const Time until = waiting_.deadline(timeout);
  const std::uint32_t slot = tables_.transfers[id.slot].peer.load(std::memory_order_relaxed);
  Worker& worker = workers_.owner_of(slot);
  auto ticket = std::make_shared<CancelTicket>();
  worker.post([id, ticket](Worker& owner) {
    owner.stop(id, {ErrorCode::cancelled, "cancelled by its owner"}, ticket);
  });
  const auto wait_for = [&](Time limit) {
    while (ticket->word.load(std::memory_order_acquire) == 0 && waiting_.now() < limit)
      waiting_.wait(ticket->word, 0, limit);
    return ticket->word.load(std::memory_order_acquire) != 0;
  };
  // First asks the transports to cancel. In the second half of the time, closes the links that still hold slices.
  const Time half = until == kNever ? after(now, kSecond) : now + (until - std::min(now, until)) / 2;
  if (wait_for(half)) return ticket->result;
  worker.post([id](Worker& owner) { owner.force_stop(id); });
  if (wait_for(until)) return ticket->result;
  return Cancelled{false, tables_.peers.name_at(slot), Cancelled::Far::unknown};
}

}  // namespace fairway::engine
