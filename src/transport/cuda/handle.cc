#include "transport/cuda/handle.h"

#include <cstring>

#include "core/bytes.h"

namespace fairway::transport::cuda {
namespace {

constexpr std::uint8_t kVersion = 2;
constexpr std::size_t kMaxWhy = 300;
constexpr std::uint32_t kMaxMappings = 65536;

// Adjacent mappings of equal size.
struct Run {
  std::uint32_t count = 0;
  std::uint64_t size = 0;
};

std::vector<Run> runs_of(const std::vector<std::uint64_t>& mappings) {
  std::vector<Run> runs;
  for (const std::uint64_t size : mappings) {
    if (runs.empty() || runs.back().size != size) runs.push_back({0, size});
    ++runs.back().count;
  }
  return runs;
}

// False: their sizes do not add up to the handle's size.
bool read_mappings(ByteReader& reader, Handle& handle) {
  std::uint64_t left = handle.size;
  const auto runs = reader.get<std::uint16_t>();
  for (std::uint16_t i = 0; i < runs && reader.ok(); ++i) {
    const auto count = reader.get<std::uint32_t>();
    const auto size = reader.get<std::uint64_t>();
    if (size == 0 || count == 0 || count > kMaxMappings - handle.mappings.size() || size > left / count) return false;
    left -= size * count;
    handle.mappings.insert(handle.mappings.end(), count, size);
  }
  return left == 0 && !handle.mappings.empty();
}

}  // namespace

std::vector<std::byte> encode(const Handle& handle) {
  const std::vector<Run> runs = runs_of(handle.mappings);
  std::vector<std::byte> bytes(160 + kMaxWhy + runs.size() * sizeof(Run));
  ByteWriter writer(bytes);
  writer.put(kVersion).put(static_cast<std::uint8_t>(handle.by)).put_bytes(handle.process);
  writer.put_bytes(std::as_bytes(std::span(handle.device.bytes))).put(handle.base).put(handle.size);
  if (handle.by == Export::ipc) writer.put_bytes(std::as_bytes(std::span(handle.ipc.bytes)));
  if (handle.by == Export::file) {
    writer.put(static_cast<std::uint16_t>(runs.size()));
    for (const Run& run : runs) writer.put(run.count).put(run.size);
  }
  if (handle.by == Export::none) writer.put_text(std::string_view(handle.why).substr(0, kMaxWhy));
  bytes.resize(writer.size());
  return bytes;
}

Result<Handle> decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Handle handle;
  const auto take = [&](void* into, std::size_t size) {
    const auto from = reader.get_bytes(size);
    if (from.size() == size) std::memcpy(into, from.data(), size);
  };
  const auto version = reader.get<std::uint8_t>();
  const auto by = reader.get<std::uint8_t>();
  take(handle.process.data(), handle.process.size());
  take(handle.device.bytes, sizeof handle.device.bytes);
  handle.base = reader.get<std::uint64_t>();
  handle.size = reader.get<std::uint64_t>();
  handle.by = static_cast<Export>(by);
  if (handle.by == Export::ipc) take(handle.ipc.bytes, sizeof handle.ipc.bytes);
  if (handle.by == Export::none) handle.why = reader.get_text();
  const bool mapped = handle.by != Export::file || read_mappings(reader, handle);
  if (!mapped || !reader.done() || version != kVersion || by > static_cast<std::uint8_t>(Export::file))
    return Status(ErrorCode::protocol_error, "malformed handle of GPU memory");
  return handle;
}

}  // namespace fairway::transport::cuda
