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

// What copies between memory that no CPU reaches and this process's own: a device's driver. One per worker; owner: its
// thread.
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
  };
  // Shared memory that devices copy to and from at full speed. Made, and ended behind its last owner, by a thread of
  // its own, since the driver may take long over either. The worker is woken when `state` changes.
  struct Room {
    std::atomic<Readiness> state{Readiness::opening};
    sys::MemoryFile memory;  // once ready
    std::string why;         // once refused; or once ready: why copies are slower than they could be
  };

  virtual ~Copier() = default;
  virtual std::shared_ptr<Room> make_room(std::uint64_t size_bytes) = 0;
  // Queues copies between the region's memory and this process's own, not before the event `after`, when there is one;
  // `urgent` ones pass others. opening: not yet, the worker will be woken. Without copies: says whether it could.
  virtual Readiness copy(RegionId region, std::span<const Copy> copies, bool urgent, void* after, Ticket& out,
                         std::string& why) = 0;
  virtual void flush() = 0;  // after some copy(): from now on the device will tell of all of them
  // ready: they are over; refused: the device failed.
  virtual Readiness look(const Ticket& ticket, std::string& why) = 0;
};

}  // namespace fairway::transport
