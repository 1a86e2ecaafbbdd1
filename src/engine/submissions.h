#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "fairway/engine.h"

#include "engine/tables/engine_tables.h"
#include "engine/tables/request_check.h"
#include "engine/transfers/short_path.h"
#include "engine/waiting.h"
#include "engine/workers.h"

namespace fairway::engine {

// Transfers as the callers of the API see them: submitted, waited for or polled, and cancelled. Any thread.
class Submissions {
 public:
  // Everything given outlives it.
  Submissions(EngineTables& tables, const Workers& workers, Waiting& waiting)
      : tables_(tables),
        workers_(workers),
        waiting_(waiting),
        check_(tables.regions, tables.remotes, tables.peers, tables.transfers) {}

  [[nodiscard]] Status check(const Request& request) const {  // whether it would be accepted
    return waiting_.closed() ? Status(ErrorCode::closed, "the engine is closed") : check_.check(request);
  }
  // In order, as many as there is room for.
  Submitted submit(std::span<const Request> requests, std::span<TransferId> ids);
  // Where no slot is free: queue_full, or ok with an empty id.
  Result<TransferId> submit(const Request& request, bool full_is_error = true);
  // As the calls of Engine with these names; poll_queue: of poll(queue, ...).
  Result<QueueId> make_queue(std::uint32_t capacity) {
    if (waiting_.closed()) return Status(ErrorCode::closed, "the engine is closed");
    return queues_.make(capacity);
  }
  Status end_queue(QueueId id);
  std::size_t poll_queue(QueueId id, std::span<Completion> completions);
  Status wait_queue(QueueId id, Timeout timeout);
  void closed();  // who waits for a queue looks again
  // A write or read that its caller does itself, so that it is complete on return. Empty: not now, and nothing was
  // done.
  TransferId complete_now(Operation operation, PeerId peer, const Layout& layout, const RequestOptions& options) {
    if (!ShortPath::may_take(operation, layout, options)) return {};
    return complete_now(operation, peer, *std::get_if<Extent>(&layout), options);
  }
  [[nodiscard]] bool writable() const { return tables_.transfers.any_free(); }
  void collect(Metrics& out) const;

  // As the calls of Engine with these names.
  Result<Completion> wait(TransferId id, Timeout timeout);
  Status stream_wait(TransferId id, void* stream);
  std::size_t poll(std::span<Completion> completions);
  Result<Cancelled> cancel(TransferId id, Timeout timeout);

 private:
  NamedQueue* place_in(const RequestOptions& options, bool& refused) const {  // null: it names none, or is refused
    NamedQueue* queue = nullptr;
    refused = options.queue && !queues_.take_place(options.queue, queue);
    return refused ? nullptr : queue;
  }
  bool collect_polled(std::uint32_t slot, Completion& out);
  TransferId complete_now(Operation operation, PeerId peer, const Extent& extent, const RequestOptions& options);
  std::size_t complete_now(std::span<const Request> requests, std::span<TransferId> ids);
  [[nodiscard]] bool may_start_now(const Request& request) const;
  bool start_now(PeerId peer, std::uint32_t slot);
  bool start_any(TransferId id, const Transfer& t);  // false: too many wait

  EngineTables& tables_;
  const Workers& workers_;
  Waiting& waiting_;
  CompletionQueues queues_;
  const RequestCheck check_;
  std::atomic<std::uint64_t> back_pressure_{0};  // requests that found no slot
};

// Calls that wait for several transfers: those that are named, or all that were accepted before. Any thread.
class TransferWaits {
 public:
  // Everything given outlives it.
  TransferWaits(EngineTables& tables, const Workers& workers, Waiting& waiting)
      : tables_(tables), workers_(workers), waiting_(waiting) {}

  // As the calls of Engine with these names.
  Result<Completion> wait_any(std::span<const TransferId> ids, Timeout timeout);
  Status wait_all(std::span<const TransferId> ids, std::span<Completion> completions, Timeout timeout);
  Status flush(PeerId peer, Timeout timeout);
  Status drain(Timeout timeout) { return settle(std::nullopt, timeout); }

 private:
  Status settle(std::optional<std::uint32_t> peer, Timeout timeout);
  [[nodiscard]] std::vector<TransferId> in_flight(std::optional<std::uint32_t> peer) const;
  Status late(const char* what);

  EngineTables& tables_;
  const Workers& workers_;
  Waiting& waiting_;
};

}  // namespace fairway::engine
