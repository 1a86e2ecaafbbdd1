#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "fairway/mapping.h"

#include "transport/stream_gate.h"
#include "transport/transport.h"

namespace fairway::transport {

class Copier;  // transport/copier.h

// Whose memory an address lies in, as a machine's model names it.
struct MemoryPlace {
  MemoryKind kind = MemoryKind::host;
  std::string gpu;  // the PCI address of the GPU that has it; empty: none has, or which is unknown
};

// How a kernel reaches a region by itself: a bit each in Capabilities::device_initiated, an alternative of View::by.
enum class DeviceInitiated : Bits { address = 1, proxy_ring = 2, nic_queue = 4, multicast = 8 };
struct MappedAddress {  // by loads and stores
  std::byte* address = nullptr;
  bool atomics = false;
};
struct ProxyRing {  // by commands that this host's CPU posts for it
  void* commands = nullptr;
  std::uint32_t slots = 0, slot_bytes = 0;
  std::uint64_t* posted = nullptr;           // the kernel counts what it wrote
  const std::uint64_t* completed = nullptr;  // this signal counts what is over, in order
};
struct NicQueue {  // by work requests of the NIC's own format, with no CPU on the way
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

// What a transport offers beyond the contract where it has to do with GPUs: where memory lies, copies for the engine's
// staging, gates for streams, and regions that kernels reach by themselves. Each may be missing. Owner: the transport's
// worker, but where "any thread" is said.
class GpuAccess {
 public:
  virtual ~GpuAccess() = default;

  // Whose memory that is; nothing: not that it knows. Any thread.
  virtual std::optional<MemoryPlace> place_of(const void* /*address*/) const { return {}; }
  virtual MemoryPlace place_of_remote(std::uint64_t /*remote_handle*/) const { return {}; }  // if in this machine
  virtual Copier* copier() { return nullptr; }  // for the engine's staging; any thread asks, the worker's uses it
  // Makes a stream of the caller's stand until the gate opens; null: it has no streams. Any thread.
  virtual Result<std::shared_ptr<StreamGate>> hold_stream(void* /*stream*/) { return std::shared_ptr<StreamGate>(); }

  // ---- with Capabilities::device_initiated: a peer's region, or one of this process that is another GPU's ----
  // Who lends memory so is told no end by slices, so its deregister() waits until each view is given back, or the
  // process with it has ended.
  struct View {
    std::uint64_t number = 0;  // not used again
    std::uint64_t size_bytes = 0;
    Access access = Access::none;
    const std::uint32_t* ended = nullptr;  // as in Mapping
    std::string path_description;
    std::variant<MappedAddress, ProxyRing, NicQueue, MulticastGroup> by;
  };
  static constexpr PeerIndex kThisSide = 0;  // among holders()

  // For kernels of that GPU of this process, by one of `accepted` (of DeviceInitiated). opening: ask again. From `yes`
  // on its owner waits for give_back(), and an event `invalidated` says when it is asked for, or there is nothing left
  // to reach.
  virtual Reach view(std::uint64_t /*remote_handle*/, int /*gpu*/, Bits /*accepted*/, View& /*out*/, Status& /*why*/) {
    return Reach::no;
  }
  virtual Reach view_own(std::uint64_t /*local_handle*/, int /*gpu*/, Bits /*accepted*/, View& /*out*/,
                         Status& /*why*/) {
    return Reach::no;
  }
  virtual void give_back(std::uint64_t /*number*/) {}  // no kernel uses it any more
  virtual std::vector<PeerIndex> holders(std::uint64_t /*local_handle*/) const { return {}; }  // of views that keep it

  // Work for a stream of the caller's, also one that is captured. Any thread. Addresses were checked.
  struct Put {
    int gpu = -1;  // whose stream it must be
    std::byte* to = nullptr;
    const void* from = nullptr;
    std::uint64_t length = 0;
    PutBy by = PutBy::automatic;
    std::uint64_t* signal = nullptr;  // null: none
    std::uint64_t value = 0;
    bool add = false;
  };
  virtual Status put(const Put& /*put*/, void* /*stream*/) { return {ErrorCode::unsupported, "no streams"}; }
  virtual Status wait(const StreamWait& /*wait*/, const std::uint32_t* /*ended*/, void* /*stream*/) {
    return {ErrorCode::unsupported, "no streams"};
  }
};

inline bool has(const Transport& transport, DeviceInitiated way) {
  for (const Device& device : transport.devices())
    if ((device.capabilities.device_initiated & static_cast<Bits>(way)) != 0) return true;
  return false;
}

}  // namespace fairway::transport
