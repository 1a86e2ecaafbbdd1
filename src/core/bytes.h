#pragma once

#include <algorithm>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace fairway {

// Writes little-endian fields into a buffer of fixed size. A write past the end does nothing and makes ok() false.
class ByteWriter {
 public:
  explicit ByteWriter(std::span<std::byte> out) : out_(out) {}

  template <std::unsigned_integral T>
  ByteWriter& put(T value) {
    if (!take(sizeof(T))) return *this;
    std::byte* const to = out_.data() + used_ - sizeof(T);
    if constexpr (std::endian::native == std::endian::little) {
      std::memcpy(to, &value, sizeof(T));
    } else {
      for (std::size_t i = 0; i < sizeof(T); ++i)
        to[i] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i));
    }
    return *this;
  }
  ByteWriter& put_bytes(std::span<const std::byte> bytes) {
    if (take(bytes.size()) && !bytes.empty())
      std::memcpy(out_.data() + used_ - bytes.size(), bytes.data(), bytes.size());
    return *this;
  }
  // Writes a 16-bit length, then the bytes.
  ByteWriter& put_sized(std::span<const std::byte> bytes) {
    if (bytes.size() > 0xffff) {
      ok_ = false;
      return *this;
    }
    return put(static_cast<std::uint16_t>(bytes.size())).put_bytes(bytes);
  }
  ByteWriter& put_text(std::string_view text) { return put_sized(std::as_bytes(std::span(text.data(), text.size()))); }

  bool ok() const { return ok_; }
  std::size_t size() const { return used_; }
  std::span<const std::byte> written() const { return out_.first(used_); }

 private:
  bool take(std::size_t size) {
    if (!ok_ || size > out_.size() - used_) return ok_ = false;
    used_ += size;
    return true;
  }

  std::span<std::byte> out_;
  std::size_t used_ = 0;
  bool ok_ = true;
};

// Reads what ByteWriter wrote. Safe on untrusted bytes: a read past the end returns zeros and makes ok() false.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> in) : in_(in) {}

  template <std::unsigned_integral T>
  T get() {
    const auto bytes = get_bytes(sizeof(T));
    if constexpr (std::endian::native == std::endian::little) {
      T value = 0;
      if (bytes.size() == sizeof(T)) std::memcpy(&value, bytes.data(), sizeof(T));
      return value;
    }
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) value |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
    return static_cast<T>(value);
  }
  std::span<const std::byte> get_bytes(std::size_t size) {
    if (!ok_ || size > in_.size() - used_) {
      ok_ = false;
      return {};
    }
    used_ += size;
    return in_.subspan(used_ - size, size);
  }
  std::span<const std::byte> get_sized() { return get_bytes(get<std::uint16_t>()); }
  std::string get_text() {
    const auto bytes = get_sized();
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  std::span<const std::byte> rest() { return get_bytes(in_.size() - used_); }

  bool ok() const { return ok_; }
  bool done() const { return ok_ && used_ == in_.size(); }  // all bytes were read and none were missing

 private:
  std::span<const std::byte> in_;
  std::size_t used_ = 0;
  bool ok_ = true;
};

// Takes the same time wherever they differ: for secrets that a stranger may guess at.
inline bool equal_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) {
  if (a.size() != b.size()) return false;
  std::byte difference{0};
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == std::byte{0};
}

}  // namespace fairway
