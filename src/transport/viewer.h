#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fairway/mapping.h"

#include "transport/transport.h"

namespace fairway::transport {

// Lets kernels reach regions by themselves: a peer's, or one of this process that is another GPU's. Who lends memory so
// is told no end by slices, so its deregister() waits until each view is given back, or the process with it has ended.
// Owner: the transport's worker, but where "any thread" is said.
class Viewer {
 public:
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

  virtual ~Viewer() = default;
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
