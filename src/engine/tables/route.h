#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "fairway/request.h"

#include "engine/layout.h"
#include "transport/transport.h"

namespace fairway::engine {

constexpr bool is_atomic(Operation operation) {
  return operation == Operation::fetch_add || operation == Operation::compare_swap;
}

// Those that wait for their other half at the peer.
constexpr bool is_message(Operation operation) {
  return operation == Operation::send || operation == Operation::receive;
}

// A receive of whichever peer sends first.
inline bool is_of_any(const Request& request) {
  return request.operation == Operation::receive && !request.peer;
}

// What moves the bytes of an operation. A send is a write into the window that its receive opens.
constexpr transport::Op op_of(Operation operation) {
  switch (operation) {
    case Operation::read: return transport::Op::read;
    case Operation::fetch_add: return transport::Op::fetch_add;
    case Operation::compare_swap: return transport::Op::compare_swap;
    default: return transport::Op::write;
  }
}

inline constexpr std::size_t kMaxLinks = 64;  // per peer
// Of memory kinds: a device's.
inline constexpr auto kDeviceBit = static_cast<std::uint8_t>(1u << static_cast<unsigned>(MemoryKind::device));

// One link of a peer as the router sees it. A snapshot; borrowed pointers outlive the call.
struct LinkView {
  const transport::Capabilities* capabilities = nullptr;
  bool usable = false;                 // up, proven
  std::uint64_t bytes_per_second = 0;  // 0: unknown
  std::uint64_t queued_bytes = 0;      // posted and not yet done
  std::uint32_t free_slots = 0;        // slices it takes now
  std::uint16_t rank = 0;              // of its transport: lower is better: shared memory, then sockets
  std::uint16_t way = 0;               // sockets over one interface have the same one; 0: it is like no other link
  bool one_of_way = false;             // of those the first takes all that is large: more would cost cores that are few
};

struct RouteRequest {
  transport::Op op = transport::Op::write;
  std::uint64_t bytes = 0;
  std::uint8_t memory_kinds = 1;    // bits of both sides' MemoryKind
  bool stream_ordered = false;      // it waits for an event of a stream, so no CPU may do it
  std::uint64_t without = 0;        // a bit by rank: transports that do not reach one of its regions, or lack streams
  std::uint64_t without_links = 0;  // a bit by index: links whose devices do not have one of its regions
  bool staged = false;              // bytes that no link takes may be staged
};

enum class Method : std::uint8_t {
  none,         // no link can do it
  native,       // the links have the operation
  by_messages,  // the engines do it, over the links' messages
  staged,       // through host memory of the two engines, which copy it from and to device memory
};

// A ranked choice: the links a transfer may use, best first.
struct Route {
  Method method = Method::none;
  std::uint8_t count = 0;
  std::array<std::uint8_t, kMaxLinks> links{};  // indices into the span
  [[nodiscard]] std::span<const std::uint8_t> chosen() const { return {links.data(), count}; }
};

// A link with smaller messages carries no records.
inline constexpr std::uint32_t kSmallestMessage = 384;

// Transfers up to this size take one link: a second doorbell costs more than it saves.
inline constexpr std::uint64_t kStripeMinimum = 256 * 1024;
// What is small keeps to one of the sockets over an interface while that has little more queued: frames leave in one
// call there, acknowledgements ride on them, and the other sockets need no look.
inline constexpr std::uint64_t kLittleQueued = 16 * 1024;
// Where each end has no more cores, a second socket over an interface gains nothing: the kernel's copies fill them.
inline constexpr unsigned kFewCores = 2;
// A link slower than this fraction of the best would only finish late.
inline constexpr std::uint64_t kSlowestPart = 8;

// Pure. Prefers native links to messages; among native links uses those of the best-ranked transport alone (sockets
// beside shared memory would cost cores and gain nothing); ranks them by predicted finish: (queued + bytes) / rate. For
// a staged transfer the links are those that host memory would take.
Route route(const RouteRequest& request, std::span<const LinkView> links);

// The rate that is assumed of a device that does not know its own.
inline constexpr std::uint64_t kUnknownRate = 1'000'000'000;
inline std::uint64_t rate_of(const LinkView& link) {
  return link.bytes_per_second ? link.bytes_per_second : kUnknownRate;
}

// Whether a socket takes that transfer although others over its interface have less queued. Where one answers the other
// in turns, the last message and its like may still be unacknowledged.
inline bool takes_more(const LinkView& link, std::uint64_t bytes) {
  return link.free_slots > 0 && bytes <= kStripeMinimum && link.queued_bytes <= kLittleQueued + 2 * bytes;
}

// How far a transfer's layout has been cut. Resumable; a value.
struct Cursor {
  std::uint64_t block = 0;
  std::uint64_t offset = 0;  // within the block
};

// One cut: bytes of one block, or `count` whole blocks of a regular layout, for one link.
struct Piece {
  std::uint64_t block = 0;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;  // of one block
  std::uint32_t count = 1;
  std::uint8_t link = 0;  // index into the peer's links
  [[nodiscard]] std::uint64_t bytes() const { return length * count; }
};

// Pure. Cuts the layout from `cursor` on into at most out.size() pieces, each for the chosen link that would finish it
// first, as long as some link has a free slot. Advances the cursor, and updates `links` (free_slots, queued_bytes) for
// the next call. Skips empty blocks, a bounded number in one call; then call again.
std::size_t stripe(const Layout& layout, std::uint64_t blocks, Cursor& cursor, const Route& route,
                   std::span<LinkView> links, std::uint64_t max_message_payload, std::span<Piece> out);

}  // namespace fairway::engine
