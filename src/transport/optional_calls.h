#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
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

// Beside the contract: what a transport can do within the call, because this process's CPU reaches the peer's memory.

inline constexpr std::uint64_t kMostAtOnce = 4096;  // bytes: less than a microsecond of the caller's time

// A contiguous write, write_immediate or read between memories of hosts, of at most kMostAtOnce bytes.
struct SmallMove {
  Op op = Op::write;
  std::uint32_t immediate = 0;
  LinkId link;
  std::byte* local = nullptr;  // all of it lies in a region that is registered now
  std::uint64_t remote_handle = 0, remote_offset = 0, length = 0;
};

enum class AtOnce : Bits {
  done,   // as a slice after its event `done`; it has no event
  later,  // post() it, which also says why it fails, if it does. It told the target nothing
  never,  // the same, and not between these memories while this epoch lasts
};

// The engine finds it by dynamic_cast. Called on the worker's thread, or in its place: never beside another call.
class MovesAtOnce {
 public:
  // Makes the same checks as post() under the same words, and passes nothing on the link that it must follow.
  virtual AtOnce move_now(const SmallMove& move) = 0;
  // A message of `head` and `tail` in a row, of at most the link's max_message_bytes; both are copied.
  virtual AtOnce send_now(LinkId /*link*/, std::span<const std::byte> /*head*/, std::span<const std::byte> /*tail*/) {
    return AtOnce::never;
  }

 protected:
  ~MovesAtOnce() = default;
};

}  // namespace fairway::transport
