#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/transport.h"

namespace fairway::engine {

inline constexpr std::size_t kMaxLinks = 64;  // per peer
// Of memory kinds: a device's.
inline constexpr auto kDeviceBit = static_cast<std::uint8_t>(1u << static_cast<unsigned>(MemoryKind::device));

// One link of a peer as the router sees it. A snapshot; borrowed pointers outlive the call.
struct LinkView {
  const transport::Capabilities* capabilities = nullptr;
  bool usable = false;                 // up, proven
  std::uint64_t bytes_per_second = 0;  // 0: unknown
  std::uint64_t queued_bytes = 0;      // posted and not yet done
  std::uint32_t room = 0;              // slices it takes now
  std::uint16_t rank = 0;              // its transport: the better the lower: a shared memory, then sockets
};

struct RouteRequest {
  transport::Op op = transport::Op::write;
  std::uint64_t bytes = 0;
  std::uint8_t memory_kinds = 1;    // bits of both sides' MemoryKind
  bool stream_ordered = false;      // it waits for an event of a stream
  std::uint64_t without = 0;        // a bit by rank: transports that do not reach one of its regions
  std::uint64_t without_links = 0;  // a bit by index: links whose devices do not have one of its regions
  bool staged = false;              // what no link takes may go through host memory of the engines' own
};

enum class Method : std::uint8_t {
  none,         // no link can do it
  native,       // the links have the operation
  by_messages,  // the shared layer does it over their messages
  staged,       // by transfers between host memory of the two engines, which they copy from and to the devices'
};

// A ranked choice: the links a transfer may use, best first.
struct Route {
  Method method = Method::none;
  std::uint8_t count = 0;
  std::array<std::uint8_t, kMaxLinks> links{};  // indices into the span
  [[nodiscard]] std::span<const std::uint8_t> chosen() const { return {links.data(), count}; }
};

// A link whose messages are smaller carries none of the engine's own records.
inline constexpr std::uint32_t kSmallestMessage = 384;

// Transfers up to this size take one link: a second doorbell costs more than it saves.
inline constexpr std::uint64_t kStripeMinimum = 256 * 1024;
// A link slower than this part of the best one only adds a tail.
inline constexpr std::uint64_t kSlowestPart = 8;

// Pure. Native links are preferred to messages, of those the links of the best transport alone (bytes over sockets
// beside a shared memory would cost cores and gain nothing), then by predicted finish: (queued + bytes) / rate. Of what
// is staged the links are those that host memory would take.
Route route(const RouteRequest& request, std::span<const LinkView> links);

// The rate to reckon with where a device does not know its own.
inline constexpr std::uint64_t kUnknownRate = 1'000'000'000;
inline std::uint64_t rate_of(const LinkView& link) {
  return link.bytes_per_second ? link.bytes_per_second : kUnknownRate;
}

}  // namespace fairway::engine
