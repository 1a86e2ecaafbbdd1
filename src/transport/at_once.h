#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/transport.h"

// Beside the contract: what a transport can do within the call, because this process's CPU reaches the peer's memory.
namespace fairway::transport {

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
