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

}  // namespace fairway::transport
