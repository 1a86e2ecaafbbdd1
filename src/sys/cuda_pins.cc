#include "sys/cuda_pins.h"

#include <algorithm>
#include <iterator>

#include "sys/cuda_memory.h"

namespace fairway::sys {

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

}  // namespace fairway::sys
