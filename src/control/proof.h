#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "control/hello.h"

// Values computed with the job's key.
namespace fairway::control {

using Mac = std::array<std::byte, 32>;

// HMAC-SHA256 by OpenSSL. Used by one thread; one context serves every computation.
class Hmac {
 public:
  Hmac();
  ~Hmac();
  Hmac(Hmac&&) noexcept;
  Hmac& operator=(Hmac&&) noexcept;

  // Empty when OpenSSL fails (out of memory, or the algorithm is missing): the caller must treat the proof as failed.
  std::optional<Mac> operator()(std::span<const std::byte> key,
                                std::initializer_list<std::span<const std::byte>> parts);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

// Compares in constant time.
bool same(std::span<const std::byte> a, std::span<const std::byte> b);

// The job's key and what is derived from it. Used on the thread of its Hmac. Every use has its own label, so that a
// value derived for one purpose is useless for another.
class JobKey {
 public:
  explicit JobKey(std::string_view key);

  bool set() const { return set_; }
  std::optional<Mac> derive(std::string_view label, std::initializer_list<std::span<const std::byte>> parts);
  Hmac& hmac() { return hmac_; }

 private:
  const bool set_;
  const std::string key_;  // never empty: HMAC implementations disagree on empty keys
  Hmac hmac_;
};

inline constexpr std::string_view kDialerProof = "fairway dialer proof";
inline constexpr std::string_view kListenerProof = "fairway listener proof";
inline constexpr std::string_view kDialerFrames = "fairway dialer frames";
inline constexpr std::string_view kListenerFrames = "fairway listener frames";
inline constexpr std::string_view kLaneSecret = "fairway lane secret";
inline constexpr std::string_view kRecordProof = "fairway record";

}  // namespace fairway::control
