#include "sys/cuda_memory.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <iterator>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace fairway::sys {

using namespace cuda;

namespace {

constexpr std::uint64_t kGranule = 64 * 1024;  // smallest alignment of mappings

unsigned long long allocation_at(const CudaDriver& driver, Address address) {
  unsigned long long allocation = 0;
  int ask = kBufferId;
  void* answer = &allocation;
  return driver->cuPointerGetAttributes(1, &ask, &answer, address) == kSuccess ? allocation : 0;
}

// For virtual memory with several adjacent mappings, the driver reports the range of all of them (docs/GOTCHAS.md).
// This finds the mapping that contains `pointer`.
void narrow_to_mapping(const CudaDriver& driver, Address address, CudaPointer& pointer) {
  const auto is_own = [&](Address at) { return allocation_at(driver, at) == pointer.allocation; };
  const Address end = pointer.base + pointer.size;
  if (is_own(pointer.base) && is_own(end - 1)) return;
  // Two binary searches, for the first and the last granule of the mapping. All of [own, beyond) belongs to it; nothing
  // below `other` and nothing from `last` on does.
  Address other = pointer.base, own = address / kGranule * kGranule, beyond = own + kGranule, last = end;
  if (own < pointer.base) own = pointer.base;
  while (own > other) {
    const Address middle = other + (own - other) / 2 / kGranule * kGranule;
    if (is_own(middle))
      own = middle;
    else
      other = middle + kGranule;
  }
  while (beyond < last) {
    const Address middle = beyond + (last - beyond) / 2 / kGranule * kGranule;
    if (is_own(middle))
      beyond = middle + kGranule;
    else
      last = middle;
  }
  pointer.base = own;
  pointer.size = last - own;
}

}  // namespace

CudaPointer look_at(const CudaDriver& driver, const void* address) {
  unsigned type = 0, managed = 0, ipc = 0;
  int device = -1;
  unsigned long long allocation = 0, handles = 0;
  Address base = 0;
  std::size_t size = 0;
  std::array<int, 8> ask{kMemoryType, kIsManaged, kDeviceOrdinal, kBufferId,
                         kRangeStart, kRangeSize, kIpcCapable,    kAllowedHandleTypes};
  std::array<void*, 8> answers{&type, &managed, &device, &allocation, &base, &size, &ipc, &handles};
  CudaPointer pointer;
  const int result = driver->cuPointerGetAttributes(static_cast<unsigned>(ask.size()), ask.data(), answers.data(),
                                                    reinterpret_cast<Address>(address));
  if (result != kSuccess || type == 0) return pointer;
  pointer.kind = managed != 0 ? MemoryKind::managed : type == kTypeDevice ? MemoryKind::device : MemoryKind::pinned;
  pointer.device = device;
  pointer.allocation = allocation;
  pointer.base = base;
  pointer.size = size;
  pointer.ipc = (ipc & 0xff) != 0;
  pointer.file = (handles & kHandleFile) != 0;
  if (pointer.kind == MemoryKind::device && !pointer.ipc && size > 0)
    narrow_to_mapping(driver, reinterpret_cast<Address>(address), pointer);
  return pointer;
}

std::uint64_t reached_by_kernels(const CudaDriver& driver, const void* address, std::uint64_t size) {
  const auto begin = reinterpret_cast<Address>(address), end = begin + size;
  for (Address at = begin; at < end;) {
    unsigned type = 0;
    Address base = 0;
    std::size_t bytes = 0;
    std::array<int, 3> ask{kMemoryType, kRangeStart, kRangeSize};
    std::array<void*, 3> answers{&type, &base, &bytes};
    const int result =
        driver->cuPointerGetAttributes(static_cast<unsigned>(ask.size()), ask.data(), answers.data(), at);
    if (result != kSuccess || type == 0) return at - begin;
    at = std::max<Address>(base + bytes, at + 1);
  }
  return size;
}

CurrentContext::CurrentContext(const CudaDriver& driver, Context context)
    : relaxed_(driver), driver_(driver), pushed_(driver->cuCtxPushCurrent_v2(context) == kSuccess) {}

CurrentContext::~CurrentContext() {
  Context popped = nullptr;
  if (pushed_) driver_->cuCtxPopCurrent_v2(&popped);
}

Result<std::unique_ptr<BusGpu>> BusGpu::open(std::shared_ptr<const CudaDriver> driver, int device) {
  std::unique_ptr<BusGpu> gpu(new BusGpu(std::move(driver)));
  const CudaDriver& cu = *gpu->driver_;
  const std::string name = fmt::format("GPU {}", device);
  Status status = cu.check(cu->cuDeviceGet(&gpu->device_, device), name);
  if (status)
    status = cu.check(cu->cuDevicePrimaryCtxRetain(&gpu->context_, gpu->device_),
                      "cannot retain the primary context of " + name);
  if (!status) return status;
  gpu->retained_ = true;
  int ordering = 0, options = 0;
  if (cu->cuDeviceGetAttribute(&ordering, kBusWritesOrdering, gpu->device_) != kSuccess) ordering = 0;
  if (cu->cuDeviceGetAttribute(&options, kBusFlushOptions, gpu->device_) != kSuccess) options = 0;
  gpu->needs_flush_ = ordering < kOrderedForOwner;
  if (gpu->needs_flush_ && (options & kFlushByHost) == 0)
    return Status(ErrorCode::unsupported, name + " neither orders writes by other devices nor supports flushing them");
  const CurrentContext current(cu, gpu->context_);
  status = cu.check(cu->cuMemAlloc_v2(&gpu->word_, kWordBytes), "cannot allocate eight bytes on " + name);
  if (!status) return status;
  return gpu;
}

BusGpu::~BusGpu() {
  if (!retained_) return;
  {
    const CurrentContext current(*driver_, context_);
    if (word_ != 0) (*driver_)->cuMemFree_v2(word_);
  }
  (*driver_)->cuDevicePrimaryCtxRelease_v2(device_);
}

// The driver exports whole pages of the host's page size. The file may hold bytes around the part, but the importer
// maps only the given offset and length.
Result<DmaBuf> BusGpu::export_dmabuf(const void* address, std::uint64_t size) const {
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uint64_t>(address);
  const std::uint64_t from = begin / page * page, to = (begin + size + page - 1) / page * page;
  const CurrentContext current(*driver_, context_);
  int file = -1;
  const Status status = driver_->check((*driver_)->cuMemGetHandleForAddressRange(&file, from, to - from, kDmaBuf, 0),
                                       "cuMemGetHandleForAddressRange");
  if (!status) return status;
  return DmaBuf{Fd(file), begin - from};
}

void BusGpu::order_copies(const void* address) const {
  const unsigned on = 1;
  const CurrentContext current(*driver_, context_);
  (*driver_)->cuPointerSetAttribute(&on, kSyncCopies, reinterpret_cast<Address>(address));
}

Status BusGpu::flush() const {
  const CurrentContext current(*driver_, context_);
  return driver_->check((*driver_)->cuFlushGPUDirectRDMAWrites(kFlushCurrentContext, kOrderedForOwner),
                        "cuFlushGPUDirectRDMAWrites");
}

using namespace cuda;

// Under the lock: the first range that has some of those bytes.
CudaPins::Ranges::iterator CudaPins::at(std::uint64_t begin, std::uint64_t end) const {
  auto found = ranges_.upper_bound(begin);
  if (found != ranges_.begin() && std::prev(found)->second.end > begin) return std::prev(found);
  return found != ranges_.end() && found->first < end ? found : ranges_.end();
}

int CudaPins::pin(void* address, std::size_t size) {
  const auto begin = reinterpret_cast<std::uint64_t>(address), end = begin + size;
  {
    std::unique_lock lock(mutex_);
    for (auto found = at(begin, end); found != ranges_.end(); found = at(begin, end)) {
      Range& range = found->second;
      if (range.state == State::pinning) {
        changed_.wait(lock);
        continue;
      }
      if (range.state == State::ending || found->first > begin || range.end < end) return kErrorAlreadyRegistered;
      ++range.users;
      return kSuccess;
    }
    ranges_[begin].end = end;
  }
  const int result = driver_->cuMemHostRegister_v2(address, size, kHostPortable | kHostMapped);
  const std::lock_guard lock(mutex_);
  if (result == kSuccess)
    ranges_[begin].state = State::pinned;
  else
    ranges_.erase(begin);
  changed_.notify_all();
  return result;
}

void CudaPins::unpin(void* address) {
  std::uint64_t begin = reinterpret_cast<std::uint64_t>(address);
  {
    const std::lock_guard lock(mutex_);
    const auto found = at(begin, begin + 1);
    if (found == ranges_.end() || --found->second.users != 0) return;
    found->second.state = State::ending;
    begin = found->first;
  }
  driver_->cuMemHostUnregister(reinterpret_cast<void*>(begin));
  const std::lock_guard lock(mutex_);
  ranges_.erase(begin);
}

bool CudaPins::touches(const void* address, std::size_t size) const {
  const auto begin = reinterpret_cast<std::uint64_t>(address);
  const std::lock_guard lock(mutex_);
  return at(begin, begin + size) != ranges_.end();
}

bool pinned_by_program(const CudaDriver& driver, const void* address, std::size_t size) {
  if (driver.pins().touches(address, size)) return false;
  const auto begin = reinterpret_cast<std::uint64_t>(address), end = begin + size;
  for (std::uint64_t at = begin; at < end;) {
    const CudaPointer range = look_at(driver, reinterpret_cast<const void*>(at));
    if (range.kind != MemoryKind::pinned || range.base > at || range.base + range.size <= at) return false;
    at = range.base + range.size;
  }
  return true;
}

namespace {

constexpr std::chrono::milliseconds kPatience{100};

}  // namespace

// Shared with the thread, which may outlive the object.
struct CudaClosing::State {
  explicit State(std::shared_ptr<const CudaDriver> of) : driver(std::move(of)) {}

  const std::shared_ptr<const CudaDriver> driver;
  std::mutex mutex;  // guards all below
  std::condition_variable changed;
  std::deque<std::function<void()>> jobs;
  std::uint64_t posted = 0, done = 0;
  std::thread::id thread;  // that runs them; none: not started
  bool ends = false, ended = false;

  void run() {
    const RelaxedCapture relaxed(*driver);
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return !jobs.empty() || ends; });
      if (jobs.empty()) break;
      auto job = std::move(jobs.front());
      jobs.pop_front();
      lock.unlock();
      job();
      job = nullptr;  // what it owned goes here too
      lock.lock();
      ++done;
      changed.notify_all();
    }
    ended = true;
    changed.notify_all();
  }
  // Under the lock. False: the system gives no thread.
  bool start(const std::shared_ptr<State>& self) {
    if (thread != std::thread::id()) return true;
    try {
      std::thread runs([self] { self->run(); });
      thread = runs.get_id();
      runs.detach();
    } catch (const std::system_error&) {
      return false;
    }
    return true;
  }
};

CudaClosing::CudaClosing(std::shared_ptr<const CudaDriver> driver)
    : state_(std::make_shared<State>(std::move(driver))) {}

CudaClosing::~CudaClosing() {
  std::unique_lock lock(state_->mutex);
  state_->ends = true;
  state_->changed.notify_all();
  // Its own thread: a job owned the object.
  if (state_->thread == std::thread::id() || state_->thread == std::this_thread::get_id()) return;
  state_->changed.wait_for(lock, kPatience, [this] { return state_->ended; });
}

void CudaClosing::post(std::function<void()> job) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->start(state_)) {
      state_->jobs.push_back(std::move(job));
      ++state_->posted;
      state_->changed.notify_all();
      return;
    }
  }
  const RelaxedCapture relaxed(*state_->driver);
  job();
}

void CudaClosing::wait() {
  std::unique_lock lock(state_->mutex);
  const std::uint64_t all = state_->posted;
  state_->changed.wait(lock, [&] { return state_->done >= all; });
}

}  // namespace fairway::sys
