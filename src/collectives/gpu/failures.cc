#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "collectives/gpu/calls.h"
#include "collectives/gpu/group.h"
#include "collectives/nccl/calls.h"
#include "collectives/state.h"
#include "sys/cuda_memory.h"

// How operations and groups end badly. GpuCalls: who is to blame for an operation on a stream that failed, and in which
// words.
namespace fairway::collectives {
namespace {

constexpr Timeout kAsking{10'000};  // how long the engine is

std::string call_name(const gpu::Report& report) {
  return std::string(to_string(static_cast<CollectiveKind>(report.kind)));
}

ErrorCode code_of(gpu::Cause cause) {
  switch (cause) {
    case gpu::Cause::mismatch: return ErrorCode::invalid_argument;
    case gpu::Cause::gone: return ErrorCode::peer_dead;
    case gpu::Cause::stopped: return ErrorCode::cancelled;
    case gpu::Cause::none:
    case gpu::Cause::late:
    case gpu::Cause::told: break;
  }
  return ErrorCode::deadline_exceeded;
}

}  // namespace

Status GpuCalls::status() {
  const auto report = on_gpus_ ? on_gpus_->failure() : std::nullopt;
  if (const auto failure = by_nccl_ && !report ? by_nccl_->failure() : std::nullopt; failure) return give_up(*failure);
  if (!report || report->cause == gpu::Cause::stopped) return parts_.group.heard();
  CollectiveFailure why;
  why.rank = static_cast<int>(report->peer);
  why.operation = report->number;
  why.phase = fmt::format("round {}", report->round);
  const auto cause = report->cause == gpu::Cause::told ? static_cast<gpu::Cause>(report->code) : report->cause;
  const std::string peer = name_of(why.rank);
  std::string text;
  switch (report->cause) {
    case gpu::Cause::mismatch:
      text = fmt::format("{} has called something else", peer);
      if (report->sent[report->peer] != report->expected[report->peer])
        text = fmt::format("{} sends {} bytes, and this rank's receive.counts expect {}", peer,
                           report->sent[report->peer], report->expected[report->peer]);
      break;
    case gpu::Cause::gone: text = why_gone(why.rank); break;
    case gpu::Cause::told:
      text = report->by == report->peer
                 ? fmt::format("{} gave up", peer)
                 : fmt::format("{} gave up because of {}", name_of(static_cast<int>(report->by)), peer);
      break;
    default:
      text = report->entered != 0 ? fmt::format("the timeout passed: {} has entered it and come no further", peer)
                                  : fmt::format("the timeout passed: {} never entered it", peer);
  }
  text = fmt::format("{}, {}: {}", what_failed(*report), why.phase, text);
  why.status = Status(code_of(cause), text).with_peer(peer);
  return parts_.group.give_up(std::move(why));
}

// A kernel sees only that the mapping has ended. The engine knows whether the process has died or is stopped.
std::string GpuCalls::why_gone(int member) const {
  const std::string& peer = name_of(member);
  const auto engines =
      parts_.engine.lookup(parts_.lanes.members()[static_cast<std::size_t>(member)].peer, "collectives/why", kAsking);
  const Status why = engines.status();
  return why.code() == ErrorCode::peer_dead ? fmt::format("{}: {}", peer, why.message())
                                            : fmt::format("{} is gone", peer);
}

std::string GpuCalls::what_failed(const gpu::Report& report) const {
  if (const auto ends = gpu::message_ends(report.place))
    return fmt::format("message {} from rank {} to rank {}", report.call, ends->from, ends->to);
  return fmt::format("operation {} ({}, number {} on its stream)", report.number, call_name(report), report.call);
}

// Of an operation that NCCL has, or was to have.
Status GpuCalls::give_up(const NcclFailure& failure) {
  constexpr std::uint64_t kKnown = 0xFFFFFFF;  // bits of its number
  const std::string peer = failure.peer < 0 ? "" : name_of(failure.peer);
  CollectiveFailure why;
  why.rank = failure.peer;
  // Where it is not known: behind all that this rank has started, which others may still be in, and end well.
  why.operation = failure.number == 0 ? parts_.started + 1 : (parts_.started & ~kKnown) | failure.number;
  why.phase = "NCCL";
  ErrorCode code = code_of(failure.cause);
  std::string text;
  switch (failure.cause) {
    case gpu::Cause::none:
      code = ErrorCode::system_error;
      text = failure.text;
      break;
    case gpu::Cause::gone: text = why_gone(failure.peer); break;
    case gpu::Cause::told:
      code = code_of(static_cast<gpu::Cause>(failure.code));
      text = failure.by == failure.peer ? fmt::format("{} gave up", peer)
                                        : fmt::format("{} gave up because of {}", name_of(failure.by), peer);
      break;
    default: text = "the timeout passed: all ranks have entered it, and NCCL has not ended it";
  }
  const std::string call = failure.number == 0
                               ? "operations on streams"
                               : fmt::format("operation {} ({})", why.operation, to_string(failure.kind));
  why.status = Status(code, fmt::format("{}, by NCCL: {}", call, text));
  if (failure.peer >= 0) why.status = why.status.with_peer(peer);
  return parts_.group.give_up(std::move(why));
}

// GpuGroup: its end, which waits for no kernel, and which graphs may outlive.

namespace {

using sys::CurrentContext;

constexpr Timeout kLeaving{1'000'000};

// For the process's life, as the rest of what graphs use.
void keep(std::shared_ptr<gpu::Told> told) {
  static std::mutex mutex;  // guards the list
  static auto* const kept = new std::vector<std::shared_ptr<gpu::Told>>;
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(told));
}

}  // namespace

// A graph that has this communicator's operations may be launched when it is gone. So its kernels find on this GPU that
// there is nothing to do, before they look at any other, and what they use stays until the process ends.
void GpuGroup::end_captured() {
  const sys::CudaDriver& cu = *driver_;
  const CurrentContext current(cu, context_);
  sys::cuda::Stream own = nullptr;  // waits for no kernel
  if (cu->cuStreamCreateWithPriority(&own, sys::cuda::kStreamNonBlocking, 0) != sys::cuda::kSuccess) return;
  std::atomic_ref(host_->stop).store(1);
  const auto at = scratch_ + offsetof(gpu::ScratchHead, failed);
  (void)cu->cuMemcpyAsync(at, reinterpret_cast<sys::cuda::Address>(&host_->stop), sizeof host_->stop, own);
  (void)cu->cuStreamSynchronize(own);
  cu->cuStreamDestroy_v2(own);
}

GpuGroup::~GpuGroup() {
  bool is_free = true;
  const bool outlived = graphs_.any();
  if (outlived && scratch_ != 0) end_captured();
  if (engine_.is_open()) {
    for (const Mapping& mapping : mappings_)
      if (mapping.id) (void)engine_.unmap(mapping.id);
    // Ranks that have not left yet may still write here.
    if (region_.id) is_free = engine_.deregister(region_, kLeaving).is_ok();
  }
  if (context_ == nullptr) return;
  if (outlived) {
    keep(std::move(told_of_file_));
    return;
  }
  closing_->post([driver = driver_, context = context_, scratch = is_free ? scratch_ : 0,
                  told = std::move(told_of_file_), host = host_, ends = places_.events(), gpu = gpu_] {
    const sys::CudaDriver& cu = *driver;
    {
      const CurrentContext current(cu, context);
      for (const sys::cuda::Event end : ends)
        if (end != nullptr) cu->cuEventDestroy_v2(end);
      if (scratch != 0) cu->cuMemFree_v2(scratch);
      if (told) cu->cuMemHostUnregister(told.get());
      if (host != nullptr) cu->cuMemFreeHost(host);
    }
    cu->cuDevicePrimaryCtxRelease_v2(gpu);
  });
}

void GpuGroup::destroy(std::vector<sys::cuda::Event> events) const {
  closing_->post([driver = driver_, context = context_, events = std::move(events)] {
    const CurrentContext current(*driver, context);
    for (const sys::cuda::Event event : events)
      if (event != nullptr) (*driver)->cuEventDestroy_v2(event);
  });
}

}  // namespace fairway::collectives
