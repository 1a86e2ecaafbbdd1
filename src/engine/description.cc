#include "engine/description.h"

#include <algorithm>

#include "core/bytes.h"
#include "core/crc32c.h"

namespace fairway::engine {
namespace {

constexpr std::uint32_t kMagic = 0x31525746;   // "FWR1"
constexpr std::uint32_t kSealed = 0x43525746;  // "FWRC"
constexpr std::size_t kMaxBytes = 64 * 1024;

}  // namespace

std::vector<std::byte> format_description(const Description& description) {
  std::size_t size = 64;
  for (const TransportKeys& keys : description.keys) {
    size += 16 + keys.transport.size();
    for (const auto& key : keys.keys) size += 2 + key.size();
  }
  std::vector<std::byte> bytes(size);
  ByteWriter writer(bytes);
  writer.put(kMagic)
      .put(description.incarnation)
      .put(description.region.slot)
      .put(description.region.generation)
      .put(description.size_bytes)
      .put(static_cast<std::uint8_t>(description.kind))
      .put(static_cast<std::uint8_t>(description.access))
      .put(static_cast<std::uint16_t>(description.keys.size()));
  for (const TransportKeys& keys : description.keys) {
    writer.put(keys.worker).put_text(keys.transport).put(static_cast<std::uint16_t>(keys.keys.size()));
    for (const auto& key : keys.keys) writer.put_sized(key);
  }
  bytes.resize(writer.size());
  return bytes;
}

std::vector<std::byte> seal_description(std::span<const std::byte> description) {
  std::vector<std::byte> bytes(2 * sizeof(std::uint32_t) + description.size());
  ByteWriter(bytes).put(kSealed).put(crc32c(0, description)).put_bytes(description);
  return bytes;
}

std::vector<std::byte> format_description(Description description, std::size_t most) {
  for (;;) {
    auto bytes = format_description(description);
    if (bytes.size() <= most || description.keys.empty()) return bytes;
    description.keys.pop_back();
  }
}

Result<Description> parse_description(std::span<const std::byte> bytes) {
  const auto malformed = [] {
    return Status(ErrorCode::invalid_argument,
                  "these bytes are not a region's description: pass what Engine::describe() gave, unchanged");
  };
  if (bytes.size() > kMaxBytes) return malformed();
  ByteReader reader(bytes);
  Description description;
  auto magic = reader.get<std::uint32_t>();
  if (magic == kSealed) {
    const auto checksum = reader.get<std::uint32_t>();
    const auto sealed = bytes.subspan(std::min(bytes.size(), 2 * sizeof(std::uint32_t)));
    if (crc32c(0, sealed) != checksum) return malformed();
    magic = reader.get<std::uint32_t>();
  }
  if (magic != kMagic) return malformed();
  description.incarnation = reader.get<std::uint64_t>();
  description.region.slot = reader.get<std::uint32_t>();
  description.region.generation = reader.get<std::uint32_t>();
  description.size_bytes = reader.get<std::uint64_t>();
  const auto kind = reader.get<std::uint8_t>();
  const auto access = reader.get<std::uint8_t>();
  if (kind > static_cast<std::uint8_t>(MemoryKind::managed) || access > static_cast<std::uint8_t>(Access::all))
    return malformed();
  description.kind = static_cast<MemoryKind>(kind);
  description.access = static_cast<Access>(access);
  const auto transports = reader.get<std::uint16_t>();
  for (std::uint16_t i = 0; i < transports && reader.ok(); ++i) {
    TransportKeys keys;
    keys.worker = reader.get<std::uint16_t>();
    keys.transport = reader.get_text();
    const auto count = reader.get<std::uint16_t>();
    for (std::uint16_t k = 0; k < count && reader.ok(); ++k) {
      const auto key = reader.get_sized();
      keys.keys.emplace_back(key.begin(), key.end());
    }
    description.keys.push_back(std::move(keys));
  }
  if (!reader.done() || !description.region) return malformed();
  return description;
}

}  // namespace fairway::engine
