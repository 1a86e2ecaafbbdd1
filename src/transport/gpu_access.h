#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "fairway/ids.h"
#include "fairway/mapping.h"

#include "sys/memory_file.h"
#include "transport/transport.h"

namespace fairway::transport {

// Makes a stream of the caller wait. It continues once open() is called, on any thread, or the last owner of the gate
// is gone, so a stream never waits for ever.
class StreamGate {
 public:
  virtual ~StreamGate() = default;
  virtual void open() = 0;
};

class Copier;

// The memory that an address lies in, as the machine model names it.
struct MemoryPlace {
  MemoryKind kind = MemoryKind::host;
  std::string gpu;  // PCI address of its GPU; empty: not GPU memory, or unknown
};

// How a kernel reaches a region by itself: a bit each in GpuAccess::device_initiated(), an alternative of View::by.
// cpu: no kernel but this process's CPUs, by a MappedAddress.
enum class DeviceInitiated : Bits { address = 1, proxy_ring = 2, nic_queue = 4, multicast = 8, cpu = 16 };
struct MappedAddress {  // by loads and stores
  std::byte* address = nullptr;
  bool atomics = false;
};
struct ProxyRing {  // by commands that a proxy thread on the host posts
  void* commands = nullptr;
  std::uint32_t slots = 0, slot_bytes = 0;
  std::uint64_t* posted = nullptr;           // commands written, counted by the kernel
  const std::uint64_t* completed = nullptr;  // commands completed in order, counted by the proxy
};
struct NicQueue {  // by work requests in the NIC's own format, without the CPU
  void* requests = nullptr;
  const void* completions = nullptr;
  std::uint32_t slots = 0, queue_number = 0;
  void* doorbell = nullptr;
  std::uint64_t remote_address = 0;
  std::uint32_t local_key = 0, remote_key = 0;
};
struct MulticastGroup {  // by stores that land in every member, and loads that reduce over them
  std::byte* address = nullptr;
  std::uint32_t members = 0;
};

// What a transport offers for GPUs beyond the contract: where memory lies, copies for the engine's staging, gates for
// streams, and views of regions for kernels. Each is optional. Owner: the transport's worker, except where a comment
// says "any thread".
class GpuAccess {
 public:
  virtual ~GpuAccess() = default;

  // The memory that an address lies in; nothing: unknown to the driver. Any thread.
  virtual std::optional<MemoryPlace> place_of(const void* /*address*/) const { return {}; }
  virtual MemoryPlace place_of_remote(std::uint64_t /*remote_handle*/) const { return {}; }  // if in this machine
  virtual Copier* copier() { return nullptr; }  // for the engine's staging; any thread may ask, the worker uses it
  virtual bool orders_by_streams() const { return false; }  // takes Slice::start_after; any thread
  // Makes the caller's stream wait until the gate opens; null: this transport has no streams. Any thread.
  virtual Result<std::shared_ptr<StreamGate>> hold_stream(void* /*stream*/) { return std::shared_ptr<StreamGate>(); }

  // ---- with device_initiated(): views of a peer's region, or of one of this process on another GPU ----
  virtual Bits device_initiated() const { return 0; }  // of DeviceInitiated: how kernels reach peers; any thread
  // Kernels post no slices that a fence could end, so the owner's deregister() waits until each view is given back or
  // the process that holds it has ended.
  struct View {
    std::uint64_t number = 0;  // never reused
    std::uint64_t size_bytes = 0;
    Access access = Access::none;
    const std::uint32_t* ended = nullptr;  // as in Mapping
    std::string path_description;
    std::variant<MappedAddress, ProxyRing, NicQueue, MulticastGroup> by;
  };
  static constexpr PeerIndex kThisSide = 0;  // among holders()

  // A view for kernels on this process's GPU `gpu`, of a kind in `accepted` (bits of DeviceInitiated). opening: ask
  // again. After `yes` the region's owner waits for give_back(); the event `invalidated` asks for it, or says that the
  // view no longer works.
  virtual Reach view(std::uint64_t /*remote_handle*/, int /*gpu*/, Bits /*accepted*/, View& /*out*/, Status& /*why*/) {
    return Reach::no;
  }
  virtual Reach view_own(std::uint64_t /*local_handle*/, int /*gpu*/, Bits /*accepted*/, View& /*out*/,
                         Status& /*why*/) {
    return Reach::no;
  }
  virtual void give_back(std::uint64_t /*number*/) {}  // no kernel uses the view any more
  // Peers with a view of the region, for which its deregister() waits.
  virtual std::vector<PeerIndex> holders(std::uint64_t /*local_handle*/) const { return {}; }

  // Work for the caller's stream, which may be capturing. Any thread. The caller has checked the addresses.
  struct Put {
    int gpu = -1;  // whose stream it must be
    std::byte* to = nullptr;
    const void* from = nullptr;
    std::uint64_t length = 0;
    PutBy by = PutBy::automatic;
    std::uint64_t* signal = nullptr;  // null: none
    std::uint64_t value = 0;
    bool add = false;
    std::uint32_t blocks = 0;       // as in StreamPut, as is the next
    bool signal_by_stream = false;  // `signal` is set, and `add` is false
  };
  virtual Status put(const Put& /*put*/, void* /*stream*/) { return {ErrorCode::unsupported, "no streams"}; }
  virtual Status wait(const StreamWait& /*wait*/, const std::uint32_t* /*ended*/, void* /*stream*/) {
    return {ErrorCode::unsupported, "no streams"};
  }
};

inline bool has(Transport& transport, DeviceInitiated kind) {
  const GpuAccess* const gpus = transport.gpu();
  return gpus != nullptr && (gpus->device_initiated() & static_cast<Bits>(kind)) != 0;
}

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
