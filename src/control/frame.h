#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "control/control.h"
#include "control/proof.h"

// After the handshake all bytes travel in frames: a header of 8 bytes (body size, type), the body, and an
// authentication tag of 16 bytes. The tag covers the frame's number on this connection, the header and the body, with a
// key of this connection and direction. A frame that was changed, lost, replayed, reordered or reflected ends the
// connection.
namespace fairway::control {

enum class FrameType : std::uint8_t {
  identity = 1,  // who the sender is; from the dialer also what it wants
  accept = 2,
  refuse = 3,
  message = 4,  // a message of the engine
  ack = 5,
  beat = 6,
  goodbye = 7,
  publish = 8,  // from here on: frames to and from a directory server
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

// The sending side of one direction of one connection. A value.
class Sealer {
 public:
  explicit Sealer(const Mac& key) : key_(key) {}
  // Appends one frame to `out`. Error: system_error when OpenSSL cannot compute the tag.
  Status seal(Hmac& hmac, FrameType type, std::span<const std::byte> body, std::vector<std::byte>& out);

 private:
  Mac key_;
  std::uint64_t sent_ = 0;
};

// The receiving side of one direction of one connection. A value.
class Opener {
 public:
  explicit Opener(const Mac& key) : key_(key) {}
  // Returns the first frame in `in` and sets `used` to the bytes it took; nothing while the frame is incomplete. After
  // an error the connection cannot continue.
  Result<std::optional<Frame>> open(Hmac& hmac, std::span<const std::byte> in, std::size_t& used);

 private:
  Mac key_;
  std::uint64_t received_ = 0;
};

}  // namespace fairway::control
