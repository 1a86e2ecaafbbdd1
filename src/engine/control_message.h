#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fairway/ids.h"

// What two engines tell each other over control, in order. docs/wire-format.md has the layouts.
namespace fairway::engine {

enum class MessageType : std::uint8_t { hello = 1, exchange, link_closed, lookup = 6, lookup_reply };  // 4, 5: reserved

struct Hello {                          // the first message of a session, from both sides
  std::uint16_t worker = 0;             // the sender's worker that owns this session: whose keys to use
  std::uint16_t cores = 0;              // that the sender's process may use; 0: it does not say
  std::uint32_t event_credits = 0;      // notifications the receiver of this may have outstanding at the sender
  std::uint32_t record_bytes = 0;       // the smallest message limit of the sender's devices that carry records
  std::uint32_t unexpected_bytes = 0;   // the sender's limit of unexpected messages
  std::uint64_t scratch_offset = 0;     // where in the scratch region this peer proves its links
  std::vector<std::string> transports;  // usable at the sender
  std::vector<std::byte> scratch;       // description of the scratch region
};
struct Exchange {
  std::string transport;
  std::span<const std::byte> bytes;
};
struct LinkClosed {  // this side touches nothing of that epoch any more
  std::string transport;
  std::uint64_t name = 0;
  std::uint64_t immediates = 0;  // received on it
};
struct Lookup {
  std::uint64_t token = 0;
  std::string name;
};
struct LookupReply {
  std::uint64_t token = 0;
  std::uint8_t code = 0;  // ErrorCode
  std::vector<std::byte> description;
};

std::vector<std::byte> format(const Hello& message);
std::vector<std::byte> format(const Exchange& message);
std::vector<std::byte> format(const LinkClosed& message);
std::vector<std::byte> format(const Lookup& message);
std::vector<std::byte> format(const LookupReply& message);

// Each gives nothing for bytes that are not that message, whatever they are. Spans point into `bytes`.
std::optional<MessageType> message_type(std::span<const std::byte> bytes);
std::optional<Hello> parse_hello(std::span<const std::byte> bytes);
std::optional<Exchange> parse_exchange(std::span<const std::byte> bytes);
std::optional<LinkClosed> parse_link_closed(std::span<const std::byte> bytes);
std::optional<Lookup> parse_lookup(std::span<const std::byte> bytes);
std::optional<LookupReply> parse_lookup_reply(std::span<const std::byte> bytes);

}  // namespace fairway::engine
