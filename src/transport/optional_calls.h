#pragma once

#include <cstdint>

#include "transport/transport.h"

// What some transports have besides the contract. The engine finds it by dynamic_cast.
namespace fairway::transport {

// A transport that makes its links without control, so that one end may be up when the other never will be.
class ConnectsByItself {
 public:
  // The peer closed the epoch of that name, which was not up here yet. True: it never will be. False: it still will.
  virtual bool forgo(PeerIndex peer, std::uint64_t epoch_name) = 0;

 protected:
  ~ConnectsByItself() = default;
};

// A transport whose deregister() alone does not stop peers: the engine asks each of them first, and waits for its
// answer.
class RevokesWithPeers {
 protected:
  ~RevokesWithPeers() = default;
};

// A transport with a device that only delivers (not Capabilities::visible_when_done), whose writes need more than a
// message behind them.
class FlushesWrites {
 public:
  virtual Status flush(std::uint64_t local_handle) = 0;  // makes bytes delivered to that memory visible to its owner

 protected:
  ~FlushesWrites() = default;
};

}  // namespace fairway::transport
