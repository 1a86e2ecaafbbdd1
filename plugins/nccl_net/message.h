#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "fairway/request.h"

#include "nccl_net/abi.h"

namespace fairway::nccl {

// Names one end of a connection, or a listener, within its process. The index is the immediate of its notifications.
struct PortId {
  std::uint32_t index = 0;
  std::uint32_t generation = 0;  // 0: none
  auto operator<=>(const PortId&) const = default;
};

// The destination of one receive of a group.
struct Place {
  RegionId region;  // the receiver's region, published under name_of()
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::int32_t tag = 0;
};

// A message between the two ends, sent as one notification. See docs/decisions/notifications-and-messages.md.
struct Message {
  enum class Kind : std::uint8_t {
    hello = 1,  // sender to listener: open a connection; `from` is the sender
    refused,    // to the sender: there is no such listener
    post,       // receiver to sender: `places` are posted as group `sequence`
    done,       // sender to receiver, ordered after the data: `bytes` bytes are in place `part` of group `sequence`
    failed,     // sender to receiver: the send did not fit into place `part`
    closed,     // either way: this end has closed
  };
  Kind kind = Kind::hello;
  std::uint8_t count = 0;  // post: number of places
  std::uint8_t part = 0;
  std::uint32_t to_generation = 0;
  PortId from;
  std::uint32_t sequence = 0;
  std::uint64_t bytes = 0;
  std::array<Place, abi::kMostReceives> places{};
};

using MessageBytes = std::array<std::byte, kMaxNotifyMessage>;
// Writes the message into `into` and returns the used part.
std::span<const std::byte> format(const Message& message, MessageBytes& into);
// Empty when no end of this version sends such bytes.
std::optional<Message> parse(std::span<const std::byte> bytes);

// The name under which a receiver publishes a region.
std::string name_of(RegionId region);

}  // namespace fairway::nccl
