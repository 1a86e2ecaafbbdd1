#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fairway/mapping.h"

#include "transport/stream_gate.h"
#include "transport/transport.h"

namespace fairway::transport {

class Copier;  // transport/copier.h

enum class Reach : std::uint8_t {
  yes,
  pinning,  // slowly as yet, and the task is woken when it is faster
  opening,  // it is being found out, and the task is woken
  no,
};

// What a transport offers beyond the contract when it reaches GPU memory: where memory lies, which pairs of memories
// its slices can move between, copies for the engine's staging, gates for streams, and regions that kernels reach by
// themselves. Owner: the transport's worker, but where "any thread" is said.
class GpuAccess {
 public:
  virtual ~GpuAccess() = default;

  // ---- memory and slices ----
  virtual MemoryPlace place_of_remote(std::uint64_t remote_handle) const = 0;  // if its memory is in this machine
  // Whether slices can move between two memories of the transport's kinds, of which one is a GPU's.
  virtual Reach reach(std::uint64_t local_handle, std::uint64_t remote_handle, std::string& why) = 0;
  virtual Copier* copier() = 0;  // for the engine's staging; any thread asks, the worker's uses it
  // Makes a stream of the caller's stand until the gate opens; any thread.
  virtual Result<std::shared_ptr<StreamGate>> hold_stream(void* stream) = 0;

  // ---- regions that kernels reach by themselves: a peer's, or one of this process that is another GPU's ----
  // Who lends memory so is told no end by slices, so its deregister() waits until each view is given back, or the
  // process with it has ended.
  virtual bool has_views() const = 0;  // false: none of what follows is called; any thread
  struct View {
    std::uint64_t number = 0;  // not used again
    std::byte* address = nullptr;
    std::uint64_t size_bytes = 0;
    Access access = Access::none;
    const std::uint32_t* ended = nullptr;  // as in Mapping
    bool atomics = false;
    std::string way;
  };
  static constexpr PeerIndex kThisSide = 0;  // among holders()

  // For kernels of that GPU of this process. opening: ask again. From `yes` on its owner waits for give_back(), and an
  // event `invalidated` says when it is asked for, or there is nothing left to reach.
  virtual Reach view(std::uint64_t remote_handle, int gpu, View& out, Status& why) = 0;
  virtual Reach view_own(std::uint64_t local_handle, int gpu, View& out, Status& why) = 0;
  virtual void give_back(std::uint64_t number) = 0;                              // no kernel uses it any more
  virtual std::vector<PeerIndex> holders(std::uint64_t local_handle) const = 0;  // of views that keep it registered

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
  virtual Status put(const Put& put, void* stream) = 0;
  virtual Status wait(const StreamWait& wait, const std::uint32_t* ended, void* stream) = 0;
};

}  // namespace fairway::transport
