#pragma once

#include <cstdint>
#include <string>

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

// A transport with a device that only delivers (not Capabilities::visible_when_done), whose writes need more than a
// message behind them.
class FlushesWrites {
 public:
  virtual Status flush(std::uint64_t local_handle) = 0;  // makes bytes delivered to that memory visible to its owner

 protected:
  ~FlushesWrites() = default;
};

// A transport that knows how its links get on with slices that have not ended, so that a slow link is not taken for a
// dead one. It is asked a few times within peer_timeout, of links with slices in flight on which none has ended.
class TellsProgress {
 public:
  // Bytes that this epoch of the link has moved, in both directions, so far as they are known to have arrived.
  virtual std::uint64_t moved(LinkId link) = 0;
  // None did for peer_timeout, and fence() is next: why, with the remedy; empty: it cannot tell. The transport may make
  // the next epoch otherwise.
  virtual std::string why_stalled(LinkId link) = 0;

 protected:
  ~TellsProgress() = default;
};

}  // namespace fairway::transport
