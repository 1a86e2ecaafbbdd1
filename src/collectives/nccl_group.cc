#include "collectives/nccl_group.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "collectives/way_table.h"
#include "sys/cuda_memory.h"

namespace fairway::collectives {
namespace {

constexpr std::chrono::microseconds kBetweenLooks{50};
constexpr Timeout kOthersLeave{1'000'000};
constexpr std::size_t kWarmBytes = 4U << 20;

constexpr int kNoType = -1;
int nccl_type(DataType type) {
  switch (type) {
    case DataType::i8: return nccl::kInt8;
    case DataType::u8: return nccl::kUint8;
    case DataType::i32: return nccl::kInt32;
    case DataType::u32: return nccl::kUint32;
    case DataType::i64: return nccl::kInt64;
    case DataType::u64: return nccl::kUint64;
    case DataType::f16: return nccl::kFloat16;
    case DataType::bf16: return nccl::kBfloat16;
    case DataType::f32: return nccl::kFloat32;
    case DataType::f64: return nccl::kFloat64;
    case DataType::i16:
    case DataType::u16:
    case DataType::f8e4m3:
    case DataType::f8e5m2: break;
  }
  return kNoType;
}

int nccl_reduction(Reduction reduction) {
  switch (reduction) {
    case Reduction::product: return nccl::kProduct;
    case Reduction::min: return nccl::kMin;
    case Reduction::max: return nccl::kMax;
    case Reduction::average: return nccl::kAverage;
    case Reduction::sum:
    case Reduction::custom:
    case Reduction::premul_sum: break;
  }
  return nccl::kSum;
}

bool is_float(DataType type) {
  return type == DataType::f16 || type == DataType::bf16 || type == DataType::f32 || type == DataType::f64;
}

bool is_good(int result) {
  return result == nccl::kSuccess || result == nccl::kInProgress;
}

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

bool NcclGroup::can(const Collective& call) {
  if (call.count == 0 || call.reproducible || call.algorithm != Algorithm::automatic) return false;
  switch (call.kind) {
    case CollectiveKind::all_reduce:
    case CollectiveKind::reduce:
    case CollectiveKind::reduce_scatter:
      // Of integers, averages are rounded as it likes.
      return nccl_type(call.type) != kNoType && call.reduction < Reduction::custom &&
             (call.reduction != Reduction::average || is_float(call.type));
    case CollectiveKind::broadcast:
    case CollectiveKind::all_gather:
    case CollectiveKind::gather:
    case CollectiveKind::scatter: return true;
    case CollectiveKind::all_to_all: return call.input != call.output;
    case CollectiveKind::barrier:
    case CollectiveKind::all_to_allv:  // counts that differ would not be found, and no rank knows how many bytes it is
      break;
  }
  return false;
}

Status NcclGroup::enqueue(const Collective& call, void* stream, bool captured, Time deadline) {
  const sys::CurrentContext current(*driver_, context_);
  int result = nccl::kSuccess;
  {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return {ErrorCode::cancelled, "NCCL's communicator was aborted"};
    captured_ = captured_ || captured;
    result = call_nccl(call, stream);
  }
  return settle(result, "enqueueing", deadline);
}

// With comm_, under its lock. What is only moved is bytes.
int NcclGroup::call_nccl(const Collective& call, void* stream) {
  const nccl::Library& n = *library_;
  const std::size_t bytes = call.count * size_of(call.type);
  switch (call.kind) {
    case CollectiveKind::all_reduce:
      return n->ncclAllReduce(call.input, call.output, call.count, nccl_type(call.type), nccl_reduction(call.reduction),
                              comm_, stream);
    case CollectiveKind::reduce:
      return n->ncclReduce(call.input, call.output, call.count, nccl_type(call.type), nccl_reduction(call.reduction),
                           call.root, comm_, stream);
    case CollectiveKind::reduce_scatter:
      return n->ncclReduceScatter(call.input, call.output, call.count, nccl_type(call.type),
                                  nccl_reduction(call.reduction), comm_, stream);
    case CollectiveKind::all_gather:
      return n->ncclAllGather(call.input, call.output, bytes, nccl::kUint8, comm_, stream);
    case CollectiveKind::broadcast:
      return n->ncclBroadcast(rank_ == call.root ? call.input : call.output, call.output, bytes, nccl::kUint8,
                              call.root, comm_, stream);
    default: return blocks(call, stream);
  }
}

// A block from, or to, each rank that has one: all_to_all, gather, scatter.
int NcclGroup::blocks(const Collective& call, void* stream) {
  const nccl::Library& n = *library_;
  const std::size_t bytes = call.count * size_of(call.type);
  const auto* const input = static_cast<const std::byte*>(call.input);
  auto* const output = static_cast<std::byte*>(call.output);
  const bool gathers = call.kind == CollectiveKind::gather, scatters = call.kind == CollectiveKind::scatter;
  const bool here = rank_ == call.root;
  int result = n->ncclGroupStart();
  for (int peer = 0; peer < size_ && is_good(result); ++peer) {
    const std::size_t at = static_cast<std::size_t>(peer) * bytes;
    const std::byte* const from = input + (gathers ? 0 : at);
    std::byte* const to = output + (scatters ? 0 : at);
    const bool sends = gathers ? peer == call.root : !scatters || here;
    const bool takes = scatters ? peer == call.root : !gathers || here;
    if (peer == rank_ && from == to) continue;  // in place
    if (sends) result = n->ncclSend(from, bytes, nccl::kUint8, peer, comm_, stream);
    if (takes && is_good(result)) result = n->ncclRecv(to, bytes, nccl::kUint8, peer, comm_, stream);
  }
  const int ended = n->ncclGroupEnd();
  return is_good(result) ? ended : result;
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
