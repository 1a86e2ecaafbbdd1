#include "engine/submissions.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/staging_pool.h"
#include "transport/gpu_access.h"

namespace fairway::engine {

Submissions::Submissions(const EngineOptions& options, const transport::RegionTable& regions,
                         const transport::RegionTable& remotes, const PeerTable& peers, const Workers& workers,
                         Waiting& waiting)
    : peers_(peers),
      workers_(workers),
      waiting_(waiting),
      transfers_(options.max_transfers, options.workers * kAllChunks),
      completions_(options.max_transfers),
      check_(regions, remotes, peers, transfers_) {}

Result<TransferId> Submissions::submit(const Request& request) {
  if (Status status = check(request); !status) return status;
  const std::uint32_t slot = transfers_.acquire();
  if (slot == kNoSlot) {
    back_pressure_.fetch_add(1, std::memory_order_relaxed);
    return TransferId{};
  }
  transfers_[slot].begin(request, waiting_.now());
  const TransferId id = transfers_.id(slot);
  workers_.owner_of(request.peer.slot).submit(slot);
  return id;
}

void Submissions::collect(Metrics& out) const {
  out.transfers_in_use = transfers_.used();
  out.back_pressure = back_pressure_.load(std::memory_order_relaxed);
}

Result<Completion> Submissions::wait(TransferId id, Timeout timeout) {
  const Time until = waiting_.deadline(timeout);
  for (;;) {
    const Stage stage = transfers_.stage(id);
    if (stage == Stage::done && transfers_[id.slot].request.options.deliver != Deliver::to_poll &&
        transfers_.claim(id)) {
      Completion completion = std::move(transfers_[id.slot].completion);
      transfers_.release(id.slot);
      return completion;
    }
    if (stage != Stage::active)
      return Status(ErrorCode::not_found, "no such transfer, or its completion was collected before");
    if (waiting_.now() >= until)
      return Status(ErrorCode::timed_out, "the transfer is still in flight; wait again, or cancel it");
    waiting_.wait(transfers_[id.slot].word, TransferTable::pack(id.generation, Stage::active), until);
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
    if (id.slot >= transfers_.capacity()) return {};  // none such: the gate opens as it goes
    workers_.owner_of(transfers_[id.slot].peer.load(std::memory_order_relaxed)).post([id, held = *gate](Worker& owner) {
      owner.when_ended(id, [held](bool) { held->open(); });
    });
    return {};
  }
  return {ErrorCode::unsupported, "no transport in use here has streams: a CUDA stream needs the transport cuda"};
}

std::size_t Submissions::poll(std::span<Completion> completions) {
  waiting_.drive();
  std::size_t count = 0;
  std::uint32_t slot = 0;
  while (count < completions.size() && completions_.pop(slot)) {
    if (!transfers_.claim(transfers_.id(slot))) continue;
    completions[count++] = std::move(transfers_[slot].completion);
    transfers_.release(slot);
  }
  if (count == 0) waiting_.settle();
  return count;
}

Result<Cancelled> Submissions::cancel(TransferId id, Timeout timeout) {
  if (transfers_.stage(id) == Stage::free)
    return Status(ErrorCode::not_found, "no such transfer, or its completion was collected before");
  const Time now = waiting_.now();
  const Time until = waiting_.deadline(timeout);
  const std::uint32_t slot = transfers_[id.slot].peer.load(std::memory_order_relaxed);
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
  // First the gentle way; in the second half of the time the links that still hold slices are closed.
  const Time half = until == kNever ? after(now, kSecond) : now + (until - std::min(now, until)) / 2;
  if (wait_for(half)) return ticket->result;
  worker.post([id](Worker& owner) { owner.force_stop(id); });
  if (wait_for(until)) return ticket->result;
  return Cancelled{false, peers_.name_at(slot), Cancelled::Far::unknown};
}

}  // namespace fairway::engine
