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

// One end of a connection, or a listener, in its process; the index is the notification's immediate.
struct PortId {
  std::uint32_t index = 0;
  std::uint32_t generation = 0;  // 0: none
  auto operator<=>(const PortId&) const = default;
};

// Where one receive of a group wants its bytes.
struct Place {
  RegionId region;  // of the receiver; published under name_of()
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
  std::int32_t tag = 0;
};

// What the two ends tell each other, each in one notification. docs/decisions/nccl-receives-are-posted.md.
struct Message {
  enum class Kind : std::uint8_t {
    hello = 1,  // sender to listener: `from` wants to send
    refused,    // to the sender: there is no such listener
    post,       // receiver to sender: `places` wait, as group `sequence`
    done,       // sender to receiver, behind the bytes: `bytes` of them are in place `part` of `sequence`
    failed,     // sender to receiver: what was sent did not fit into place `part`
    closed,     // either to the other: this end is no more
  };
  Kind kind = Kind::hello;
  std::uint8_t count = 0;  // post: of places
  std::uint8_t part = 0;
  std::uint32_t to_generation = 0;
  PortId from;
  std::uint32_t sequence = 0;
  std::uint64_t bytes = 0;
  std::array<Place, abi::kMostReceives> places{};
};

using MessageBytes = std::array<std::byte, kMaxNotifyMessage>;
// The part of `into` that the message takes.
std::span<const std::byte> format(const Message& message, MessageBytes& into);
// None for what no end of this version sends, whatever it is.
std::optional<Message> parse(std::span<const std::byte> bytes);

// Under which name a receiver publishes a region.
std::string name_of(RegionId region);

}  // namespace fairway::nccl
