#include "collectives/nccl/group.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "collectives/nccl/operation.h"
#include "collectives/nccl/way_table.h"
#include "sys/cuda_memory.h"

namespace fairway::collectives {
namespace {

constexpr std::chrono::microseconds kBetweenLooks{50};
constexpr Timeout kOthersLeave{1'000'000};
constexpr std::size_t kWarmBytes = 4U << 20;

}  // namespace

Result<std::unique_ptr<NcclGroup>> NcclGroup::open(std::shared_ptr<const nccl::Library> library, const GpuGroup& on,
                                                   int rank, int size, const nccl::UniqueId& id, Time deadline) {
  std::unique_ptr<NcclGroup> group(new NcclGroup(std::move(library), on.driver(), on.context(), rank, size));
  const sys::CurrentContext current(*group->driver_, group->context_);
  nccl::Config config;
  config.blocking = 0;
  const int result = (*group->library_)->ncclCommInitRankConfig(&group->comm_, size, id, rank, &config);
  Status status = group->comm_ == nullptr ? group->library_->check(result, "making a communicator")
                                          : group->settle(result, "making a communicator", deadline);
  if (status) status = group->warm(deadline);
  if (!status) {
    group->abort();
    return status;
  }
  return group;
}

NcclGroup::~NcclGroup() {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return;
  const sys::CurrentContext current(*driver_, context_);
  const Time deadline = after(Clock::now(), kOthersLeave);
  int result = (*library_)->ncclCommFinalize(comm_);
  while (result == nccl::kInProgress && Clock::now() < deadline) {
    std::this_thread::sleep_for(kBetweenLooks);
    int state = nccl::kSuccess;
    if ((*library_)->ncclCommGetAsyncError(comm_, &state) != nccl::kSuccess) break;
    result = state;
  }
  if (result == nccl::kSuccess)
    (*library_)->ncclCommDestroy(comm_);
  else if (!captured_)
    (*library_)->ncclCommAbort(comm_);
}

// Until it is no longer in progress. Others may abort it meanwhile.
Status NcclGroup::settle(int result, const char* what, Time deadline) {
  while (result == nccl::kInProgress) {
    {
      const std::lock_guard lock(mutex_);
      if (comm_ == nullptr) return {ErrorCode::cancelled, fmt::format("NCCL: {}: it was aborted", what)};
      if (const int code = (*library_)->ncclCommGetAsyncError(comm_, &result); code != nccl::kSuccess) result = code;
    }
    if (result != nccl::kInProgress) break;
    if (Clock::now() >= deadline)
      return {ErrorCode::deadline_exceeded, fmt::format("NCCL: {}: the timeout passed", what)};
    std::this_thread::sleep_for(kBetweenLooks);
  }
  return library_->check(result, what);
}

Status NcclGroup::enqueue(const Collective& call, void* stream, bool captured, Time deadline) {
  const sys::CurrentContext current(*driver_, context_);
  int result = nccl::kSuccess;
  {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return {ErrorCode::cancelled, "NCCL's communicator was aborted"};
    captured_ = captured_ || captured;
    result = nccl::enqueue(*library_, call, {comm_, rank_, size_}, stream);
  }
  return settle(result, "enqueueing", deadline);
}

// The first operation of a kind and size makes connections, for which ranks wait for each other.
Status NcclGroup::warm(Time deadline) {
  const sys::CudaDriver& cu = *driver_;
  sys::cuda::Address memory = 0;
  sys::cuda::Stream stream = nullptr;
  Status status = cu.check(cu->cuMemAlloc_v2(&memory, 2 * kWarmBytes), "NCCL: allocating memory for a trial");
  if (status)
    status = cu.check(cu->cuStreamCreateWithPriority(&stream, sys::cuda::kStreamNonBlocking, 0), "making a stream");
  auto* const input = reinterpret_cast<std::byte*>(memory);
  for (const std::size_t bytes : {std::size_t{256}, kWarmBytes})
    if (status) status = run_each(input, input + kWarmBytes, bytes, stream, deadline);
  bool busy = false;
  while (stream != nullptr && (busy = cu->cuStreamQuery(stream) == sys::cuda::kErrorNotReady) &&
         Clock::now() < deadline && error())
    std::this_thread::sleep_for(kBetweenLooks);
  if (status) status = error();
  if (status && busy) status = {ErrorCode::deadline_exceeded, "NCCL: a trial has not ended within the timeout"};
  if (busy) abort();
  if (stream != nullptr) cu->cuStreamDestroy_v2(stream);
  if (memory != 0) cu->cuMemFree_v2(memory);
  return status;
}

Status NcclGroup::run_each(std::byte* input, std::byte* output, std::size_t bytes, void* stream, Time deadline) {
  for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::broadcast, CollectiveKind::all_gather,
                                    CollectiveKind::reduce_scatter, CollectiveKind::all_to_all, CollectiveKind::reduce,
                                    CollectiveKind::gather, CollectiveKind::scatter}) {
    const bool blocks = bytes_of_all({.kind = kind, .count = 1}, 2) == 2;
    Collective call{.kind = kind, .input = input, .output = output, .type = DataType::f32};
    call.count = bytes / sizeof(float) / (blocks ? static_cast<std::size_t>(size_) : 1);
    Status status = enqueue(call, stream, false, deadline);
    if (!status) return status.with_context(fmt::format("a trial of {}", to_string(kind)));
  }
  return {};
}

void NcclGroup::abort() {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) return;
  const sys::CurrentContext current(*driver_, context_);
  (void)(*library_)->ncclCommAbort(std::exchange(comm_, nullptr));
}

Status NcclGroup::error() {
  const std::lock_guard lock(mutex_);
  int state = nccl::kSuccess;
  if (comm_ == nullptr) return {};
  const int result = (*library_)->ncclCommGetAsyncError(comm_, &state);
  return library_->check(result != nccl::kSuccess || state == nccl::kInProgress ? result : state, "an operation");
}

}  // namespace fairway::collectives
