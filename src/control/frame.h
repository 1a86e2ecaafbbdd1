#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "control/control.h"
#include "control/proof.h"

// After the proofs everything travels in frames: a header of 8 bytes (size of the body, type), the body, and a tag of
// 16 bytes that covers the frame's number on this connection, header and body with a key of this connection and
// direction. A frame that was changed, lost, repeated, reordered or sent back ends the connection.
namespace fairway::control {

enum class FrameType : std::uint8_t {
  identity = 1,  // who one is; from the dialer also what it wants
  accept = 2,
  refuse = 3,
  message = 4,  // the engine's
  ack = 5,
  beat = 6,
  goodbye = 7,
  publish = 8,  // from here on: with an engine that serves the directory
  withdraw = 9,
  lookup = 10,
  answer = 11,
};

inline constexpr std::size_t kHeaderSize = 8;
inline constexpr std::size_t kTagSize = 16;
inline constexpr std::size_t kMaxBody = kMaxMessage + 64;

struct Frame {
  FrameType type{};
  std::span<const std::byte> body;
};

// One direction of one connection, at its sender. A value.
class Sealer {
 public:
  explicit Sealer(const Mac& key) : key_(key) {}
  // Appends one frame to `out`; system_error when no tag can be computed.
  Status seal(Hmac& hmac, FrameType type, std::span<const std::byte> body, std::vector<std::byte>& out);

 private:
  Mac key_;
  std::uint64_t sent_ = 0;
};

// One direction of one connection, at its receiver. A value.
class Opener {
 public:
  explicit Opener(const Mac& key) : key_(key) {}
  // The first frame in `in`, of which `used` bytes are then done; none when it is not complete. An error is final.
  Result<std::optional<Frame>> open(Hmac& hmac, std::span<const std::byte> in, std::size_t& used);

 private:
  Mac key_;
  std::uint64_t received_ = 0;
};

}  // namespace fairway::control
