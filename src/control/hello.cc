#include "control/hello.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "core/bytes.h"

namespace fairway::control {
namespace {

constexpr std::array<std::byte, 8> kMagic{std::byte{'F'}, std::byte{'A'}, std::byte{'I'}, std::byte{'R'},
                                          std::byte{'W'}, std::byte{'A'}, std::byte{'Y'}, std::byte{0}};
constexpr std::uint16_t kFlagKeyed = 1, kFlagNoRoom = 2;

}  // namespace

HelloBytes encode(const Hello& hello) {
  HelloBytes bytes{};  // unwritten bytes are reserved: sent as zero, ignored by the receiver, covered by the proofs
  ByteWriter(bytes)
      .put_bytes(kMagic)
      .put(hello.versions.min)
      .put(hello.versions.max)
      .put(static_cast<std::uint8_t>(hello.role))
      .put(std::uint8_t{0})
      .put(static_cast<std::uint16_t>((hello.keyed ? kFlagKeyed : 0) | (hello.no_room ? kFlagNoRoom : 0)))
      .put_bytes(hello.nonce);
  return bytes;
}

Result<Hello> decode_hello(std::span<const std::byte> bytes, Role expected) {
  const auto wrong = [](std::string_view why) {
    return Status(ErrorCode::protocol_error, fmt::format("the peer is not a Fairway engine: {}", why));
  };
  if (bytes.size() != kHelloSize) return wrong("its hello has the wrong size");
  ByteReader reader(bytes);
  const auto magic = reader.get_bytes(kMagic.size());
  if (!std::equal(magic.begin(), magic.end(), kMagic.begin())) return wrong("its first bytes are not a hello");
  Hello hello;
  hello.versions.min = reader.get<std::uint16_t>();
  hello.versions.max = reader.get<std::uint16_t>();
  const auto role = reader.get<std::uint8_t>();
  reader.get<std::uint8_t>();
  const auto flags = reader.get<std::uint16_t>();
  hello.keyed = (flags & kFlagKeyed) != 0;
  hello.no_room = (flags & kFlagNoRoom) != 0;
  const auto nonce = reader.get_bytes(hello.nonce.size());
  std::memcpy(hello.nonce.data(), nonce.data(), nonce.size());
  if (hello.versions.min == 0 || hello.versions.min > hello.versions.max) return wrong("its version range is empty");
  if (role != static_cast<std::uint8_t>(expected)) return wrong("its hello has the wrong role");
  hello.role = expected;
  return hello;
}

Result<std::uint16_t> common_version(VersionRange ours, VersionRange theirs) {
  const std::uint16_t best = std::min(ours.max, theirs.max);
  if (best >= ours.min && best >= theirs.min) return best;
  return Status(
      ErrorCode::version_mismatch,
      fmt::format("this engine speaks versions {} to {} of the wire format, the peer {} to {}: update the older",
                  ours.min, ours.max, theirs.min, theirs.max));
}

}  // namespace fairway::control
