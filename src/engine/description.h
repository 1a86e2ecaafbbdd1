#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fairway/memory.h"
#include "fairway/status.h"

namespace fairway::engine {

// One transport's keys to a region, for the links of one worker of the region's engine.
struct TransportKeys {
  std::uint16_t worker = 0;
  std::string transport;
  std::vector<std::vector<std::byte>> keys;  // one per device
};

// What Engine::describe() writes and import_region() reads: a region as its peers know it. docs/wire-format.md has the
// layout.
struct Description {
  std::uint64_t incarnation = 0;  // of the engine that owns the region
  RegionId region;
  std::uint64_t size_bytes = 0;
  MemoryKind kind = MemoryKind::host;
  Access access = Access::none;
  std::vector<TransportKeys> keys;  // a transport that needs none is absent
};

std::vector<std::byte> format_description(const Description& description);
// The same in at most so many bytes, at least 64. If all keys do not fit, those of the last (slowest) transports are
// left out; to peers the region then looks as if those transports had not registered it.
std::vector<std::byte> format_description(Description description, std::size_t most);
// What Engine::describe() gives away: with a checksum, since nobody knows how these bytes travel.
std::vector<std::byte> seal_description(std::span<const std::byte> description);
// Sealed or not. invalid_argument for bytes that are not a description, whatever they are.
Result<Description> parse_description(std::span<const std::byte> bytes);

}  // namespace fairway::engine
