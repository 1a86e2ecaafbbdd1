#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "transport/transport.h"

namespace fairway::transport::verbs {

inline constexpr std::uint32_t kQueueDepth = 64;    // slices of a lane
inline constexpr std::uint32_t kSends = 512;        // requests of its send queue
inline constexpr std::uint32_t kReceives = 32;      // credits of the peer: messages and immediates
inline constexpr std::uint32_t kSpareReceives = 4;  // for credit updates, which use no credit: two at most

// Precedes each message on links without immediate data.
struct MessageHeader {
  enum class Kind : std::uint32_t { message, credits, immediate };
  static constexpr std::size_t kBytes = 16;
  std::uint32_t credits = 0;  // credit update: the total, as in an immediate
  Kind kind = Kind::message;
  std::uint32_t value = 0;  // of an immediate
};

// Buffers for a lane's messages, and for old values of atomics. A resource; not in any region.
class LaneMemory {
 public:
  static constexpr std::size_t kIn = kReceives + kSpareReceives;
  static constexpr std::size_t kBuffer = MessageHeader::kBytes + kMessageBytes;
  static constexpr std::size_t kBytes =
      (kIn + kReceives) * kBuffer + kSpareReceives * MessageHeader::kBytes + (kQueueDepth + 1) * 8;

  static LaneMemory make() {
    LaneMemory memory;
    memory.bytes_.reset(static_cast<std::byte*>(std::aligned_alloc(4096, (kBytes + 4095) / 4096 * 4096)));
    return memory;
  }
  explicit operator bool() const { return bytes_ != nullptr; }
  void leak() { static_cast<void>(bytes_.release()); }
  [[nodiscard]] std::byte* get() const { return bytes_.get(); }
  [[nodiscard]] std::byte* in(std::size_t i) const { return get() + i * kBuffer; }
  [[nodiscard]] std::byte* out(std::size_t i) const { return get() + (kIn + i) * kBuffer; }
  // For credit updates, of which at most kSpareReceives are in flight.
  [[nodiscard]] std::byte* word(std::size_t i) const { return out(kReceives) + i * MessageHeader::kBytes; }
  [[nodiscard]] std::byte* result(std::size_t i) const { return word(kSpareReceives) + i * 8; }
  [[nodiscard]] std::byte* sink() const { return result(kQueueDepth); }

 private:
  struct Free {
    void operator()(std::byte* bytes) const { std::free(bytes); }
  };
  std::unique_ptr<std::byte, Free> bytes_;
};

}  // namespace fairway::transport::verbs
