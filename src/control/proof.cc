#include "control/proof.h"

#include <algorithm>
#include <cstring>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>

namespace fairway::control {

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
