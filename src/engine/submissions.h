#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fairway/engine.h"

#include "engine/polled_queue.h"
#include "engine/request_check.h"
#include "engine/transfer.h"
#include "engine/waiting.h"
#include "engine/workers.h"

namespace fairway::engine {

// Transfers as the callers of the API see them: submitted, waited for or polled, and cancelled. Any thread.
class Submissions {
 public:
  // Everything given outlives it.
  Submissions(const EngineOptions& options, const transport::RegionTable& regions,
              const transport::RegionTable& remotes, const PeerTable& peers, const Workers& workers, Waiting& waiting);

  [[nodiscard]] Status check(const Request& request) const {  // whether it would be accepted
    return waiting_.closed() ? Status(ErrorCode::closed, "the engine is closed") : check_.check(request);
  }
  // ok with an empty id: no slot is free.
  Result<TransferId> submit(const Request& request);
  [[nodiscard]] bool writable() const { return transfers_.used() < transfers_.capacity(); }
  void collect(Metrics& out) const;

  // As the calls of Engine with these names.
  Result<Completion> wait(TransferId id, Timeout timeout);
  Status stream_wait(TransferId id, void* stream);
  std::size_t poll(std::span<Completion> completions);
  Result<Cancelled> cancel(TransferId id, Timeout timeout);

  // For workers.
  TransferTable& transfers() { return transfers_; }
  CompletionQueue& completions() { return completions_; }

 private:
  const PeerTable& peers_;
  const Workers& workers_;
  Waiting& waiting_;
  TransferTable transfers_;
  CompletionQueue completions_;
  const RequestCheck check_;
  std::atomic<std::uint64_t> back_pressure_{0};  // requests that found no slot
};

}  // namespace fairway::engine
