#include "control/frame.h"

#include <array>

#include <fmt/format.h>

#include "core/bytes.h"

namespace fairway::control {
namespace {

std::array<std::byte, 8> number_bytes(std::uint64_t number) {
  std::array<std::byte, 8> bytes{};
  ByteWriter(bytes).put(number);
  return bytes;
}

}  // namespace

Status Sealer::seal(Hmac& hmac, FrameType type, std::span<const std::byte> body, std::vector<std::byte>& out) {
  if (body.size() > kMaxBody)
    return {ErrorCode::out_of_range,
            fmt::format("a frame of {} bytes is too large: the limit is {}", body.size(), kMaxBody)};
  std::array<std::byte, kHeaderSize> header{};
  ByteWriter(header).put(static_cast<std::uint32_t>(body.size())).put(static_cast<std::uint8_t>(type));
  const auto tag = hmac(key_, {number_bytes(sent_), header, body});
  if (!tag) return {ErrorCode::system_error, "OpenSSL cannot compute HMAC-SHA256"};
  ++sent_;
  out.insert(out.end(), header.begin(), header.end());
  out.insert(out.end(), body.begin(), body.end());
  out.insert(out.end(), tag->begin(), tag->begin() + kTagSize);
  return {};
}

Result<std::optional<Frame>> Opener::open(Hmac& hmac, std::span<const std::byte> in, std::size_t& used) {
  used = 0;
  if (in.size() < kHeaderSize) return std::optional<Frame>();
  ByteReader reader(in.first(kHeaderSize));
  const auto size = reader.get<std::uint32_t>();
  const auto type = reader.get<std::uint8_t>();
  if (size > kMaxBody)
    return Status(ErrorCode::protocol_error, fmt::format("a frame claims {} bytes: the limit is {}", size, kMaxBody));
  if (type < static_cast<std::uint8_t>(FrameType::identity) || type > static_cast<std::uint8_t>(FrameType::answer))
    return Status(ErrorCode::protocol_error, fmt::format("unknown frame type {}", type));
  const std::size_t total = kHeaderSize + size + kTagSize;
  if (in.size() < total) return std::optional<Frame>();
  const auto body = in.subspan(kHeaderSize, size);
  const auto tag = hmac(key_, {number_bytes(received_), in.first(kHeaderSize), body});
  if (!tag || !same(std::span(*tag).first(kTagSize), in.subspan(kHeaderSize + size, kTagSize)))
    return Status(ErrorCode::checksum_mismatch,
                  fmt::format("frame {} has a wrong authentication tag: it was changed in transit", received_));
  ++received_;
  used = total;
  return std::optional<Frame>(Frame{static_cast<FrameType>(type), body});
}

}  // namespace fairway::control
