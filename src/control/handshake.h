#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fairway/status.h"

// The first 64 bytes in each direction, and all that is read from a peer before it proves the key. Their layout is the
// same in every version.
namespace fairway::control {

inline constexpr std::size_t kHelloSize = 64;
using HelloBytes = std::array<std::byte, kHelloSize>;
using Nonce = std::array<std::byte, 32>;

// Versions of the wire format that an engine speaks, both ends included.
struct VersionRange {
  std::uint16_t min = 7;  // earlier versions were never released
  std::uint16_t max = 7;
};

// Who opened the connection. Every proof covers it, so that one side's message cannot be replayed as the other's.
enum class Role : std::uint8_t { dialer = 1, listener = 2 };

struct Hello {
  VersionRange versions;
  Role role = Role::dialer;
  bool keyed = false;    // a job key is set. Both sides must agree; sent so that the error can name the cause
  bool no_room = false;  // from a listener: it is out of file descriptors and closes the connection
  Nonce nonce{};         // new for every connection
};

HelloBytes encode(const Hello& hello);

// Error: protocol_error when the bytes are not a hello from a peer in role `expected`.
Result<Hello> decode_hello(std::span<const std::byte> bytes, Role expected);

// The highest version that both sides speak. Error: version_mismatch, naming both ranges.
Result<std::uint16_t> common_version(VersionRange ours, VersionRange theirs);

// Values computed with the job's key.

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
