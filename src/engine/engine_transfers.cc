#include <algorithm>
#include <cstring>

#include "engine/operation.h"
#include "engine/state.h"
#include "engine/values.h"

namespace fairway {
namespace {

std::string refusal(ErrorCode code, const char* side) {
  switch (code) {
    case ErrorCode::out_of_range: return std::string("the request reaches beyond the end of its ") + side + " region";
    case ErrorCode::access_denied:
      return std::string("the ") + side + " region was not registered with the permission this needs";
    default: return std::string("the ") + side + " region is not registered any more, or never was";
  }
}

}  // namespace

// Everything that can be said without reading the caller's arrays; those are checked block by block when they move.
Status Engine::State::check(const Request& request) const {
  if (closed()) return {ErrorCode::closed, "the engine is closed"};
  if (Status status = engine::check_values(request); !status) return status;
  if (!peers.is_usable(request.peer)) return peers.why_not(request.peer);
  const RequestOptions& wanted = request.options;
  const auto local_ok = [&](const Slice& slice) {
    transport::RegionTable::Resolved out;
    const ErrorCode code = regions.resolve(slice.region, slice.offset, slice.length, Access::none, out);
    return code == ErrorCode::ok ? Status() : Status(code, refusal(code, "local"));
  };
  const auto remote_ok = [&](const RemoteAddress& place, std::uint64_t length, Access needed) {
    transport::RegionTable::Resolved out;
    const ErrorCode code =
        remotes.resolve({place.region.slot, place.region.generation}, place.offset, length, needed, out);
    return code == ErrorCode::ok ? Status() : Status(code, refusal(code, "remote"));
  };
  const auto in_device = [&](const RemoteAddress& place) {
    transport::RegionTable::Resolved out;
    return remotes.resolve({place.region.slot, place.region.generation}, 0, 0, Access::none, out) == ErrorCode::ok &&
           !reached_by_cpu(out.kind);
  };
  if (wanted.after != TransferId{} && !transfers.was_given(wanted.after))
    return {ErrorCode::invalid_argument,
            "RequestOptions::after names no transfer of this engine: give an id that it gave, or none"};
  if (wanted.notify.kind == NotifyKind::signal) {
    if (wanted.notify.signal.offset % sizeof(std::uint64_t) != 0)
      return {ErrorCode::invalid_argument, "a signal's offset is a multiple of 8 bytes"};
    if (Status status = remote_ok(wanted.notify.signal, sizeof(std::uint64_t), Access::atomic); !status) return status;
    if (in_device(wanted.notify.signal) && !wanted.notify.signal_add &&
        !remote_ok(wanted.notify.signal, sizeof(std::uint64_t), Access::write))
      return {ErrorCode::unsupported, "to set a signal in a device's memory, its region grants Access::write too"};
  }
  if (wanted.start_after != nullptr && request.operation != Operation::write && request.operation != Operation::read)
    return {ErrorCode::invalid_argument, "start_after goes with write and read alone"};
  if (engine::is_atomic(request.operation)) {
    if (request.target.offset % sizeof(std::uint64_t) != 0)
      return {ErrorCode::invalid_argument, "an atomic's offset is a multiple of 8 bytes"};
    return remote_ok(request.target, sizeof(std::uint64_t), Access::atomic);
  }
  if (Status status = engine::check_layout(request.layout); !status) return status;
  const bool message = request.operation == Operation::send || request.operation == Operation::receive;
  const auto* extent = std::get_if<Extent>(&request.layout);
  if (message) {
    if (extent == nullptr) return {ErrorCode::invalid_argument, "send and receive take one extent"};
    if (wanted.notify.kind != NotifyKind::none)
      return {ErrorCode::invalid_argument, "a send notifies by its receive: no other notification"};
    return local_ok(extent->local);
  }
  const Access needed = request.operation == Operation::read ? Access::read : Access::write;
  if (extent != nullptr) {
    if (Status status = local_ok(extent->local); !status) return status;
    return remote_ok(extent->remote, extent->local.length, needed);
  }
  if (const auto* strided = std::get_if<Strided>(&request.layout)) {
    const engine::Block last = engine::block_at(request.layout, strided->count - 1);
    if (Status status = local_ok(strided->first.local); !status) return status;
    if (Status status = local_ok({last.local, last.local_offset, last.length}); !status) return status;
    if (Status status = remote_ok(strided->first.remote, last.length, needed); !status) return status;
    return remote_ok({last.remote, last.remote_offset}, last.length, needed);
  }
  return {};
}

// ok with an empty id: no slot is free.
Result<TransferId> Engine::State::submit_one(const Request& request) {
  if (Status status = check(request); !status) return status;
  const std::uint32_t slot = transfers.acquire();
  if (slot == engine::kNoSlot) {
    back_pressure.fetch_add(1, std::memory_order_relaxed);
    return TransferId{};
  }
  engine::Transfer& t = transfers[slot];
  t.begin(request, runtime.clock.now());
  const TransferId id = transfers.id(slot);
  worker_of(request.peer.slot).submit(slot);
  return id;
}

Submitted Engine::submit(std::span<const Request> requests, std::span<TransferId> ids) {
  Submitted result;
  if (ids.size() < requests.size()) {
    result.status = {ErrorCode::invalid_argument, "submit() needs room for one id per request"};
    return result;
  }
  for (; result.taken < requests.size(); ++result.taken) {
    auto id = state_->submit_one(requests[result.taken]);
    if (!id) {
      result.status = id.status();
      return result;
    }
    if (!*id) return result;
    ids[result.taken] = *id;
  }
  return result;
}

bool Engine::writable() const {
  return state_->transfers.used() < state_->transfers.capacity();
}

namespace {

Result<TransferId> full_is_error(Result<TransferId> id) {
  if (id && !*id)
    return Status(ErrorCode::queue_full,
                  "all EngineOptions::max_transfers are in use: collect completions, then try again");
  return id;
}

}  // namespace

Result<TransferId> Engine::write(PeerId peer, const Layout& layout, const RequestOptions& options) {
  return full_is_error(state_->submit_one({Operation::write, peer, layout, {}, 0, 0, 0, options}));
}
Result<TransferId> Engine::read(PeerId peer, const Layout& layout, const RequestOptions& options) {
  return full_is_error(state_->submit_one({Operation::read, peer, layout, {}, 0, 0, 0, options}));
}
Result<TransferId> Engine::send(PeerId peer, std::uint64_t tag, const Slice& from, const RequestOptions& options) {
  return full_is_error(state_->submit_one({Operation::send, peer, Extent{from, {}}, {}, 0, 0, tag, options}));
}
Result<TransferId> Engine::receive(PeerId peer, std::uint64_t tag, const Slice& into, const RequestOptions& options) {
  return full_is_error(state_->submit_one({Operation::receive, peer, Extent{into, {}}, {}, 0, 0, tag, options}));
}
Result<TransferId> Engine::fetch_add(PeerId peer, RemoteAddress target, std::uint64_t addend,
                                     const RequestOptions& options) {
  return full_is_error(state_->submit_one({Operation::fetch_add, peer, {}, target, addend, 0, 0, options}));
}
Result<TransferId> Engine::compare_swap(PeerId peer, RemoteAddress target, std::uint64_t expected,
                                        std::uint64_t desired, const RequestOptions& options) {
  return full_is_error(state_->submit_one({Operation::compare_swap, peer, {}, target, desired, expected, 0, options}));
}

// ---- completion ----

Result<Completion> Engine::wait(TransferId id, Timeout timeout) {
  State& state = *state_;
  const Time until = state.deadline(timeout);
  for (;;) {
    const engine::Stage stage = state.transfers.stage(id);
    if (stage == engine::Stage::done && state.transfers[id.slot].request.options.deliver != Deliver::to_poll &&
        state.transfers.claim(id)) {
      Completion completion = std::move(state.transfers[id.slot].completion);
      state.transfers.release(id.slot);
      return completion;
    }
    if (stage != engine::Stage::active)
      return Status(ErrorCode::not_found, "no such transfer, or its completion was collected before");
    if (state.runtime.clock.now() >= until)
      return Status(ErrorCode::timed_out, "the transfer is still in flight; wait again, or cancel it");
    const std::uint32_t seen = engine::TransferTable::pack(id.generation, engine::Stage::active);
    state.wait(state.transfers[id.slot].word, seen, until);
  }
}

Status Engine::stream_wait(TransferId id, void* stream) {
  State& state = *state_;
  if (state.closed()) return {ErrorCode::closed, "the engine is closed"};
  Status refused(ErrorCode::unsupported,
                 "no transport in use here has streams: a CUDA stream needs the transport cuda");
  for (const auto& transport : state.workers.front()->transports()) {
    transport::GpuAccess* const gpus = transport->gpu();
    if (gpus == nullptr) continue;
    auto gate = gpus->hold_stream(stream);
    if (!gate) return gate.status();
    if (*gate == nullptr) continue;
    if (id.slot >= state.transfers.capacity()) return {};  // none such: the gate opens as it goes
    state.worker_of(state.transfers[id.slot].peer.load(std::memory_order_relaxed))
        .post([id, held = *gate](engine::Worker& owner) { owner.when_ended(id, [held](bool) { held->open(); }); });
    return {};
  }
  return refused;
}

std::size_t Engine::poll(std::span<Completion> completions) {
  State& state = *state_;
  if (state.options.progress == Progress::caller) state.drive();
  std::size_t count = 0;
  std::uint32_t slot = 0;
  while (count < completions.size() && state.completions.pop(slot)) {
    if (!state.transfers.claim(state.transfers.id(slot))) continue;
    completions[count++] = std::move(state.transfers[slot].completion);
    state.transfers.release(slot);
  }
  if (count == 0) state.settle_signal();
  return count;
}

int Engine::fd() const {
  const int fd = state_->signal->fd();
  // The first time it is readable: what was polled before was not yet told to wake anybody.
  if (!state_->fd_given.exchange(true, std::memory_order_relaxed)) state_->signal->set();
  return fd;
}

Result<Cancelled> Engine::cancel(TransferId id, Timeout timeout) {
  State& state = *state_;
  if (state.transfers.stage(id) == engine::Stage::free)
    return Status(ErrorCode::not_found, "no such transfer, or its completion was collected before");
  const Time now = state.runtime.clock.now();
  const Time until = state.deadline(timeout);
  const std::uint32_t slot = state.transfers[id.slot].peer.load(std::memory_order_relaxed);
  engine::Worker& worker = state.worker_of(slot);
  auto ticket = std::make_shared<engine::CancelTicket>();
  worker.post([id, ticket](engine::Worker& owner) {
    owner.stop(id, {ErrorCode::cancelled, "cancelled by its owner"}, ticket);
  });
  const auto wait_for = [&](Time limit) {
    while (ticket->word.load(std::memory_order_acquire) == 0 && state.runtime.clock.now() < limit)
      state.wait(ticket->word, 0, limit);
    return ticket->word.load(std::memory_order_acquire) != 0;
  };
  // First the gentle way; in the second half of the time the links that still hold slices are closed.
  const Time half = until == kNever ? after(now, kSecond) : now + (until - std::min(now, until)) / 2;
  if (wait_for(half)) return ticket->result;
  worker.post([id](engine::Worker& owner) { owner.force_stop(id); });
  if (wait_for(until)) return ticket->result;
  return Cancelled{false, state.peers.name_at(slot), Cancelled::Far::unknown};
}

// ---- at the target ----

std::size_t Engine::poll_notifications(std::span<Notification> notifications) {
  State& state = *state_;
  if (state.options.progress == Progress::caller) state.drive();
  std::size_t count = 0;
  PeerId last;
  const auto return_credits = [&](PeerId peer) {
    const std::uint64_t word = state.consumed[peer.slot].load(std::memory_order_relaxed);
    if (word >> 32 != peer.generation) return;
    const auto total = static_cast<std::uint32_t>(word);
    state.worker_of(peer.slot).post([peer, total](engine::Worker& worker) {
      if (engine::Peer* owner = worker.peer_of(peer)) owner->notifier().consumed(total);
    });
  };
  while (count < notifications.size() && state.notifications.pop(notifications[count])) {
    const PeerId peer = notifications[count++].peer;
    std::uint64_t word = state.consumed[peer.slot].load(std::memory_order_relaxed);
    bool counted = false;
    while (word >> 32 == peer.generation && !counted)
      counted = state.consumed[peer.slot].compare_exchange_weak(word, word + 1, std::memory_order_relaxed);
    if (!counted) state.notifications.give_back(1);  // the peer is gone: its place is free for others
    if (last && last != peer) return_credits(last);
    last = peer;
  }
  if (last) return_credits(last);
  if (count == 0) state.settle_signal();
  return count;
}

Status Engine::wait_notification(Timeout timeout) {
  State& state = *state_;
  const bool came =
      state.wait_until(state.deadline(timeout), [&] { return !state.notifications.empty() || state.closed(); });
  if (!came) return {ErrorCode::timed_out, "no notification came in time"};
  return state.notifications.empty() ? Status(ErrorCode::closed, "the engine is closed") : Status();
}

std::uint64_t Engine::counter(std::uint32_t immediate) const {
  return state_->counters.read(immediate);
}

Status Engine::wait_counter(std::uint32_t immediate, std::uint64_t at_least, Timeout timeout) {
  State& state = *state_;
  const bool came = state.wait_until(state.deadline(timeout),
                                     [&] { return state.counters.read(immediate) >= at_least || state.closed(); });
  if (state.counters.read(immediate) >= at_least) return {};
  if (came) return {ErrorCode::closed, "the engine is closed"};
  return {ErrorCode::timed_out, "counter " + std::to_string(immediate) + " stands at " +
                                    std::to_string(state.counters.read(immediate)) + " of " + std::to_string(at_least)};
}

}  // namespace fairway
