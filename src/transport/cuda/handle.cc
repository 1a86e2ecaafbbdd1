#include "transport/cuda/handle.h"

#include <cstring>

#include "core/bytes.h"

namespace fairway::transport::cuda {
namespace {

constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kMaxWhy = 300;

}  // namespace

std::vector<std::byte> encode(const Handle& handle) {
  std::vector<std::byte> bytes(160 + kMaxWhy);
  ByteWriter writer(bytes);
  writer.put(kVersion).put(static_cast<std::uint8_t>(handle.way)).put_bytes(handle.process);
  writer.put_bytes(std::as_bytes(std::span(handle.device.bytes))).put(handle.base).put(handle.size);
  if (handle.way == Way::ipc) writer.put_bytes(std::as_bytes(std::span(handle.ipc.bytes)));
  if (handle.way == Way::none) writer.put_text(std::string_view(handle.why).substr(0, kMaxWhy));
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
  const auto way = reader.get<std::uint8_t>();
  take(handle.process.data(), handle.process.size());
  take(handle.device.bytes, sizeof handle.device.bytes);
  handle.base = reader.get<std::uint64_t>();
  handle.size = reader.get<std::uint64_t>();
  handle.way = static_cast<Way>(way);
  if (handle.way == Way::ipc) take(handle.ipc.bytes, sizeof handle.ipc.bytes);
  if (handle.way == Way::none) handle.why = reader.get_text();
  if (!reader.done() || version != kVersion || way > static_cast<std::uint8_t>(Way::file))
    return Status(ErrorCode::protocol_error, "a handle of GPU memory of no sense");
  return handle;
}

}  // namespace fairway::transport::cuda
