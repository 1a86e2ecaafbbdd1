#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "fairway/ids.h"

#include "sys/memory_file.h"

namespace fairway::transport {

// Copies between device memory, which the CPU cannot access, and host memory of this process, by the device's driver.
// One per worker, used on its thread.
class Copier {
 public:
  enum class Readiness : std::uint8_t { ready, opening, refused };
  struct Copy {
    std::byte* to = nullptr;
    const std::byte* from = nullptr;
    std::uint64_t size = 0;
  };
  struct Ticket {
    std::uint32_t queue = 0, serial = 0;
    std::uint32_t failure = 0;  // not 0: some of its copies were refused; the number of that
  };
  // Pinned shared memory that devices copy to and from at full speed. The janitor creates it and frees it after its
  // last owner, since the driver may be slow at both. The worker wakes when `state` changes.
  struct StagingBuffer {
    std::atomic<Readiness> state{Readiness::opening};
    sys::MemoryFile memory;  // once ready
    std::string why;         // refused: the reason; ready: why copies are slower than they could be, if they are
  };

  virtual ~Copier() = default;
  virtual std::shared_ptr<StagingBuffer> allocate_staging(std::uint64_t size_bytes) = 0;
  // Queues copies between the region's memory and host memory of this process, to start after the event `after` if
  // there is one; `urgent` copies pass others. opening: not yet, the worker will be woken. With no copies it only says
  // whether it could copy.
  virtual Readiness copy(RegionId region, std::span<const Copy> copies, bool urgent, void* after, Ticket& out,
                         std::string& why) = 0;
  virtual void flush() = 0;  // call after copy(): makes the device report the copies queued so far
  // ready: the copies are complete; refused: the device failed.
  virtual Readiness poll(const Ticket& ticket, std::string& why) = 0;
};

}  // namespace fairway::transport
