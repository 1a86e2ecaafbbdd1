#include "control/handshake.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>

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

struct Hmac::Context {
  Context() : mac(EVP_MAC_fetch(nullptr, "HMAC", nullptr)), state(mac ? EVP_MAC_CTX_new(mac) : nullptr) {}
  ~Context() {
    EVP_MAC_CTX_free(state);
    EVP_MAC_free(mac);
  }
  EVP_MAC* mac;
  EVP_MAC_CTX* state;
};

Hmac::Hmac() : context_(std::make_unique<Context>()) {}
Hmac::~Hmac() = default;
Hmac::Hmac(Hmac&&) noexcept = default;
Hmac& Hmac::operator=(Hmac&&) noexcept = default;

std::optional<Mac> Hmac::operator()(std::span<const std::byte> key,
                                    std::initializer_list<std::span<const std::byte>> parts) {
  if (!context_->state) return std::nullopt;
  char digest[] = "SHA256";
  const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                               OSSL_PARAM_construct_end()};
  const auto* bytes = reinterpret_cast<const unsigned char*>(key.data());
  if (!EVP_MAC_init(context_->state, bytes, key.size(), params)) return std::nullopt;
  for (const auto part : parts) {
    if (part.empty()) continue;
    if (!EVP_MAC_update(context_->state, reinterpret_cast<const unsigned char*>(part.data()), part.size()))
      return std::nullopt;
  }
  Mac out{};
  std::size_t size = 0;
  if (!EVP_MAC_final(context_->state, reinterpret_cast<unsigned char*>(out.data()), &size, out.size()) ||
      size != out.size())
    return std::nullopt;
  return out;
}

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

JobKey::JobKey(std::string_view key) : set_(!key.empty()), key_("fairway job key:" + std::string(key)) {}

std::optional<Mac> JobKey::derive(std::string_view label, std::initializer_list<std::span<const std::byte>> parts) {
  // The label fills a field of fixed size, so that no label and data can be parsed as another label and data.
  std::array<std::byte, 32> field{};
  std::memcpy(field.data(), label.data(), std::min(label.size(), field.size()));
  const auto key = std::as_bytes(std::span(key_.data(), key_.size()));
  const auto inner = hmac_(key, {field});
  if (!inner) return std::nullopt;
  return hmac_(*inner, parts);
}

}  // namespace fairway::control
