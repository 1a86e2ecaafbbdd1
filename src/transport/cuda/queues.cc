#include "transport/cuda/queues.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "sys/cuda.h"
#include "transport/cuda/stream_kernels.h"

namespace fairway::transport::cuda {
namespace {

using namespace sys::cuda;

constexpr std::uint32_t kStages = 8;
constexpr unsigned kBlocks = 32, kWarps = 16;      // of the kernel: enough to fill a link, few SMs taken from the user
constexpr std::uint32_t kLooksPerQuery = 1 << 16;  // looks at a word before the driver is asked for errors

}  // namespace

Result<std::unique_ptr<Queues>> Queues::make(Devices& devices, int device, bool scratch) {
  const auto context = devices.use(device);
  if (!context) return context.status();
  std::unique_ptr<Queues> queues(new Queues(devices, device, *context));
  if (Status status = queues->set_up(scratch); !status) return status;
  return queues;
}

Status Queues::set_up(bool scratch) {
  const CudaDriver& cu = devices_.driver();
  const Current current(cu, context_);
  for (std::uint32_t i = 0; i < kCount; ++i)
    if (Status status =
            cu.check(cu->cuStreamCreateWithPriority(&queues_[i].stream, kStreamNonBlocking, i == kUrgent ? -1 : 0),
                     "making a stream");
        !status)
      return status;
  const unsigned flags = kHostPortable | kHostMapped;
  void* words = nullptr;
  Status status = cu.check(cu->cuMemHostAlloc(&words, sizeof(Word) * kCount, flags), "pinning memory");
  if (!status) return status;
  words_ = static_cast<Word*>(words);
  std::memset(words, 0, sizeof(Word) * kCount);
  if (scratch) {
    Address address = 0;
    const int made = cu->cuMemAlloc_v2(&address, kScratch);
    if (refused_by_capture(made)) return cu.check(made, "allocating GPU memory");
    if (made == kSuccess) scratch_ = reinterpret_cast<std::byte*>(address);
  }
  for_streams_.load(cu, context_, queues_[kUrgent].stream,
                    reinterpret_cast<std::byte*>(words_) + sizeof(std::uint64_t));
  if (const char* code = copy_kernel(); code != nullptr) {
    // Without it pages go one by one, so it is no failure.
    Module module = nullptr;
    if (sys::load_once(cu, context_, code, &module) != kSuccess ||
        cu->cuModuleGetFunction(&kernel_, module, "fairway_copy_pieces") != kSuccess)
      kernel_ = nullptr;
  }
  if (cu->cuMemcpyBatchAsync != nullptr) {
    to_.reserve(kListed);
    from_.reserve(kListed);
    sizes_.reserve(kListed);
  }
  if (kernel_ == nullptr) return {};
  void* lists = nullptr;
  status = cu.check(cu->cuMemHostAlloc(&lists, sizeof(host::Mover::Copy) * kListed * kLists, flags), "pinning memory");
  if (!status) return status;
  lists_ = static_cast<host::Mover::Copy*>(lists);
  for (std::uint32_t i = 0; i < kLists; ++i) free_lists_.push_back(i);
  return {};
}

Queues::~Queues() {
  const CudaDriver& cu = devices_.driver();
  const Current current(cu, context_);
  for (const Queue& queue : queues_)
    if (queue.stream != nullptr) {
      cu->cuStreamSynchronize(queue.stream);
      cu->cuStreamDestroy_v2(queue.stream);
    }
  if (scratch_ != nullptr) cu->cuMemFree_v2(reinterpret_cast<Address>(scratch_));
  if (words_ != nullptr) cu->cuMemFreeHost(words_);
  if (lists_ != nullptr) cu->cuMemFreeHost(lists_);
  if (stages_ != nullptr) cu->cuMemFreeHost(stages_);
}

// An event that was recorded in a capture would take the queue's stream into that capture.
Status Queues::wait_for_event(Queue& queue, sys::cuda::Event after) {
  const CudaDriver& cu = devices_.driver();
  if (cu->cuEventQuery(after) == kErrorCapturedEvent)
    return {ErrorCode::invalid_argument,
            "start_after: the event was recorded in a capture: a graph's next launch would not be waited for"};
  return cu.check(cu->cuStreamWaitEvent(queue.stream, after, 0), "waiting for the event");
}

// If some copies were queued before a failure, the ticket is valid and poll() reports the failure after they are over.
Status Queues::start(std::span<const host::Mover::Copy> copies, std::uint64_t kernel_below, bool urgent, void* after,
                     host::Mover::Ticket& out) {
  if (!dead_.empty()) return {ErrorCode::system_error, dead_};
  const CudaDriver& cu = devices_.driver();
  const Current current(cu, context_);
  const std::uint32_t index = after != nullptr ? kWaiting + next_waiting_++ % kWaitings : urgent ? kUrgent : next_bulk_;
  Queue& queue = queues_[index];
  Status status = after != nullptr ? wait_for_event(queue, static_cast<sys::cuda::Event>(after)) : Status();
  if (!status) return status;
  bool queued = false;
  if (by_kernel(copies, kernel_below, index == kUrgent)) {
    status = copy_by_kernel(queue, copies);
    queued = status.is_ok();
    if (index < kBulk)
      next_bulk_ = (index + 1) % kBulk;  // so that the next kernel need not wait for the last page of this one
  } else if (kernel_below != 0 && cu->cuMemcpyBatchAsync != nullptr && copies.size() >= kBatchFrom) {
    for (std::size_t first = 0; first < copies.size() && status; first += kListed)
      status = copy_as_one(queue, copies.subspan(first, std::min(kListed, copies.size() - first)), queued);
  } else {
    status = copy_each(queue, copies, 0, queued);
  }
  if (!queued) return status;
  out = {index, queue.serial + 1};
  unmarked_ |= 1u << index;
  if (status) return {};
  out.failure = next_failure_++;
  if (next_failure_ == 0) next_failure_ = 1;
  failures_[out.failure] = status.message();
  return {};
}

// Copy engines serve a direction first come, first served, whatever the stream's priority: what is urgent passes large
// copies by a kernel alone.
bool Queues::by_kernel(std::span<const host::Mover::Copy> copies, std::uint64_t kernel_below, bool urgent) const {
  if (!is_listed(copies) || copies.front().size >= kernel_below) return false;
  return copies.size() >= kKernelFrom || (urgent && bulk_is_queued());
}

bool Queues::bulk_is_queued() const {
  for (std::uint32_t i = 0; i < kBulk; ++i)
    if ((unmarked_ >> i & 1) != 0 ||
        std::atomic_ref(words_[i].serial).load(std::memory_order_relaxed) != queues_[i].serial)
      return true;
  return false;
}

// A queue whose word the driver does not take is over once its stream is.
void Queues::mark() {
  const CudaDriver& cu = devices_.driver();
  const Current current(cu, context_);
  for (std::uint32_t left = std::exchange(unmarked_, 0); left != 0; left &= left - 1) {
    const auto index = static_cast<std::uint32_t>(std::countr_zero(left));
    Queue& queue = queues_[index];
    if (index < kBulk) next_bulk_ = (index + 1) % kBulk;
    const int result =
        cu->cuStreamWriteValue32_v2(queue.stream, reinterpret_cast<Address>(&words_[index].serial), ++queue.serial, 0);
    if (result == kSuccess) continue;
    dead_ = cu.check(result, "the word after a copy").message();
    if (cu->cuStreamSynchronize(queue.stream) == kSuccess)
      std::atomic_ref(words_[index].serial).store(queue.serial, std::memory_order_release);
  }
}

Status Queues::copy_each(Queue& queue, std::span<const host::Mover::Copy> copies, std::size_t from, bool& queued) {
  const CudaDriver& cu = devices_.driver();
  for (std::size_t i = from; i < copies.size(); ++i) {
    const auto& copy = copies[i];
    int result = cu->cuMemcpyAsync(reinterpret_cast<Address>(copy.to), reinterpret_cast<Address>(copy.from), copy.size,
                                   queue.stream);
    if (result == kErrorInvalidValue) result = copy_in_parts(queue, copy, queued);
    if (result != kSuccess)
      return cu.check(result, "copy " + std::to_string(i + 1) + " of " + std::to_string(copies.size()) + " by GPU " +
                                  std::to_string(device_));
    queued = true;
  }
  return {};
}

// The driver refuses what begins in pinned host memory and ends outside of it, be it in other pinned memory. What
// begins outside it takes. kErrorInvalidValue: that was not why it refused.
int Queues::copy_in_parts(const Queue& queue, const host::Mover::Copy& copy, bool& queued) {
  const CudaDriver& cu = devices_.driver();
  const auto pinned_from = [&](const std::byte* at, std::uint64_t size) {
    const sys::CudaPointer range = sys::look_at(cu, at);
    if (range.kind != MemoryKind::pinned) return size;
    return std::min(size, range.base + range.size - reinterpret_cast<std::uint64_t>(at));
  };
  for (std::uint64_t at = 0; at < copy.size;) {
    const std::uint64_t left = copy.size - at;
    const std::uint64_t part = std::min(pinned_from(copy.to + at, left), pinned_from(copy.from + at, left));
    if (part == copy.size) return kErrorInvalidValue;
    const int result = cu->cuMemcpyAsync(reinterpret_cast<Address>(copy.to + at),
                                         reinterpret_cast<Address>(copy.from + at), part, queue.stream);
    if (result != kSuccess) return result;
    queued = true;
    at += part;
  }
  return kSuccess;
}

// One batch call: its copies are in order with the rest of the stream but not among each other. If the driver refuses
// one, that copy and those after it are tried again one by one.
Status Queues::copy_as_one(Queue& queue, std::span<const host::Mover::Copy> copies, bool& queued) {
  to_.clear();
  from_.clear();
  sizes_.clear();
  for (const auto& copy : copies) {
    if (copy.size == 0) return copy_each(queue, copies, 0, queued);  // the batch call refuses empty copies
    to_.push_back(reinterpret_cast<Address>(copy.to));
    from_.push_back(reinterpret_cast<Address>(copy.from));
    sizes_.push_back(copy.size);
  }
  CopyAttributes attributes{kInStreamOrder, {}, {}, 0};
  std::size_t first = 0, refused = 0;  // refused: the first copy that was not queued; ~0: the whole call failed
  const int result = devices_.driver()->cuMemcpyBatchAsync(to_.data(), from_.data(), sizes_.data(), sizes_.size(),
                                                           &attributes, &first, 1, &refused, queue.stream);
  queued = true;
  return result == kSuccess ? Status() : copy_each(queue, copies, refused < copies.size() ? refused : 0, queued);
}

Status Queues::copy_by_kernel(Queue& queue, std::span<const host::Mover::Copy> copies) {
  const CudaDriver& cu = devices_.driver();
  const auto list = static_cast<std::uint32_t>((copies.data() - lists_) / static_cast<std::ptrdiff_t>(kListed));
  auto count = static_cast<std::uint32_t>(copies.size());
  host::Mover::Copy* pieces = lists_ + list * kListed;
  std::array<void*, 2> arguments{&pieces, &count};
  const Status status = cu.check(cu->cuLaunchKernel(kernel_, std::min(kBlocks, (count + kWarps - 1) / kWarps), 1, 1,
                                                    kWarps * 32, 1, 1, 0, queue.stream, arguments.data(), nullptr),
                                 "the kernel that copies pages");
  if (!status) return status;
  std::erase(free_lists_, list);
  queue.lists.emplace_back(queue.serial + 1, list);
  return {};
}

std::byte* Queues::take_stage() {
  if (stages_ == nullptr) {
    const CudaDriver& cu = devices_.driver();
    const Current current(cu, context_);
    void* made = nullptr;
    if (cu->cuMemHostAlloc(&made, host::Mover::kStageBytes * kStages, kHostPortable | kHostMapped) != kSuccess)
      return nullptr;
    stages_ = static_cast<std::byte*>(made);
    for (std::uint32_t i = 0; i < kStages; ++i) free_stages_.push_back(stages_ + i * host::Mover::kStageBytes);
  }
  if (free_stages_.empty()) return nullptr;
  std::byte* const stage = free_stages_.back();
  free_stages_.pop_back();
  return stage;
}

std::span<host::Mover::Copy> Queues::list() {
  if (kernel_ != nullptr) take_lists_back();
  if (!free_lists_.empty()) return {lists_ + free_lists_.back() * kListed, kListed};
  plain_.resize(kListed);
  return plain_;
}

void Queues::take_lists_back() {
  std::string why;
  for (std::uint32_t i = 0; i < kCount; ++i)
    while (!queues_[i].lists.empty() &&
           poll({i, queues_[i].lists.front().first}, why) != host::Mover::Readiness::opening) {
      free_lists_.push_back(queues_[i].lists.front().second);
      queues_[i].lists.pop_front();
    }
}

host::Mover::Readiness Queues::poll(const host::Mover::Ticket& ticket, std::string& why) {
  using Readiness = host::Mover::Readiness;
  const std::uint32_t now = std::atomic_ref(words_[ticket.queue].serial).load(std::memory_order_acquire);
  if (static_cast<std::int32_t>(now - ticket.serial) >= 0) {
    if (ticket.failure == 0) return Readiness::ready;
    const auto failed = failures_.find(ticket.failure);
    if (failed == failures_.end()) return Readiness::ready;
    why = std::move(failed->second);
    failures_.erase(failed);
    return Readiness::refused;
  }
  if (dead_.empty() && ++looks_ % kLooksPerQuery == 0) {
    const CudaDriver& cu = devices_.driver();
    const Current current(cu, context_);
    const int result = cu->cuStreamQuery(queues_[ticket.queue].stream);
    if (result != kSuccess && result != kErrorNotReady && !refused_by_capture(result))
      dead_ = cu.check(result, "GPU " + std::to_string(device_) + " failed").message();
  }
  if (dead_.empty()) return Readiness::opening;
  why = dead_;
  return Readiness::refused;
}

}  // namespace fairway::transport::cuda
