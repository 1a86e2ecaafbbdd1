#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fairway/memory.h"

#include "sys/memory_file.h"

#if defined(__clang__)
#define FAIRWAY_UNSANITIZED [[clang::no_sanitize("address", "thread", "undefined")]]
#else
#define FAIRWAY_UNSANITIZED [[gnu::no_sanitize("address,thread,undefined")]]
#endif

namespace fairway::conformance {

// A device's memory, for buffers whose bytes no CPU reaches.
class Placement {
 public:
  virtual ~Placement() = default;
  virtual std::byte* allocate(std::size_t size) = 0;
  virtual void free(std::byte* place) = 0;
  virtual void upload(std::byte* to, std::span<const std::byte> from) = 0;
  virtual void download(std::span<std::byte> to, const std::byte* from) = 0;
};

// Memory of the host that a world has for its buffers.
class Room {
 public:
  virtual ~Room() = default;
  virtual std::byte* take(std::size_t size) = 0;
  virtual void give_back(std::byte* place, std::size_t size) = 0;
  virtual std::uint64_t offset(const std::byte* place) const = 0;
  virtual int file() const = 0;  // that peers can map; -1: none
};

// Memory that shows every byte that moved: a pattern by position and seed inside, poison in the margins. An `offset`
// makes its start unaligned. A value; stays where it is once made.
class Buffer {
 public:
  static constexpr std::size_t kMargin = 512;
  static constexpr std::byte kPoison{0xd7};

  // Where a world wants the memory of buffers made from now on: in files that peers can map, or private,
  static inline bool in_files = false;
  static inline Room* room = nullptr;            // or there,
  static inline Placement* placement = nullptr;  // or in a device's

  explicit Buffer(std::size_t size, std::size_t offset = 0) : size_(size) {
    const std::size_t whole = size + 2 * kMargin + 64;
    if (in_files) file_ = std::move(sys::MemoryFile::make(whole)).value();
    own_.resize(in_files || in_ != nullptr ? 0 : whole);
    bytes_ = in_ != nullptr ? std::span(in_->take(whole), whole)
             : in_files     ? std::span(file_.address(), whole)
                            : std::span(own_);
    std::memset(bytes_.data(), static_cast<int>(kPoison), whole);
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data()) + kMargin;
    begin_ = bytes_.data() + ((address + 63) / 64 * 64 - address) + kMargin + offset % 64;
    if (on_ != nullptr) place_ = on_->allocate(whole);
    upload();
  }
  ~Buffer() {
    if (in_ != nullptr) in_->give_back(bytes_.data(), bytes_.size());
    if (on_ != nullptr) on_->free(place_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::byte* data() { return on_ == nullptr ? begin_ : place_ + (begin_ - bytes_.data()); }
  MemoryKind kind() const { return on_ == nullptr ? MemoryKind::host : MemoryKind::device; }
  std::size_t size() const { return size_; }
  int file() const { return in_ != nullptr ? in_->file() : file_.fd(); }  // -1: none
  std::uint64_t file_offset() const {
    return in_ != nullptr ? in_->offset(begin_) : static_cast<std::uint64_t>(begin_ - bytes_.data());
  }

  FAIRWAY_UNSANITIZED static std::byte pattern(std::uint64_t seed, std::uint64_t position) {
    const std::uint64_t mixed = (position / 8 + 1) * 0x9e3779b97f4a7c15 ^ seed * 0xd6e8feb86659fd93;
    return static_cast<std::byte>(mixed >> (8 * (position % 8)) >> 3 ^ position);
  }
  void fill(std::uint64_t seed) {
    download();
    for (std::size_t i = 0; i < size_; i += kBlock) {
      const Block block = pattern_block(seed, i);
      std::memcpy(begin_ + i, block.data(), std::min(kBlock, size_ - i));
    }
    upload();
  }
  void poison() { set(kPoison); }
  void set(std::byte value) {
    download();
    std::memset(begin_, static_cast<int>(value), size_);
    upload();
  }
  std::uint64_t word(std::size_t offset) const {
    download();
    std::uint64_t value = 0;
    std::memcpy(&value, begin_ + offset, sizeof value);
    return value;
  }

  // Empty when [from, from + length) holds `seed`'s pattern from `position` on; else what is wrong.
  std::string holds(std::uint64_t seed, std::size_t from, std::size_t length, std::uint64_t position) const {
    download();
    for (std::size_t i = 0; i < length; i += kBlock) {
      const auto wrong = first_difference(begin_ + from + i, pattern_block(seed, position + i), length - i);
      if (wrong) return "wrong byte at " + std::to_string(from + i + *wrong);
    }
    return {};
  }
  // Empty when [from, from + length) and the margins are as poison() left them.
  std::string untouched(std::size_t from, std::size_t length) const {
    download();
    Block poisoned;
    poisoned.fill(kPoison);
    for (std::size_t i = 0; i < length; i += kBlock)
      if (const auto stray = first_difference(begin_ + from + i, poisoned, length - i))
        return "a stray byte at " + std::to_string(from + i + *stray);
    return margins();
  }
  std::string margins() const {
    download();
    for (const std::byte* at = bytes_.data(); at < begin_; ++at)
      if (*at != kPoison) return "a stray byte " + std::to_string(begin_ - at) + " before the memory";
    for (const std::byte* at = begin_ + size_; at < bytes_.data() + bytes_.size(); ++at)
      if (*at != kPoison) return "a stray byte " + std::to_string(at - begin_ - size_) + " after the memory";
    return {};
  }

 private:
  // Memory is looked at by memcmp, a block at a time: sanitizers see those bytes as they would each one, in a hundredth
  // of the time.
  static constexpr std::size_t kBlock = 4096;
  using Block = std::array<std::byte, kBlock>;

  FAIRWAY_UNSANITIZED static Block pattern_block(std::uint64_t seed, std::uint64_t position) {
    Block block;
    for (std::size_t i = 0; i < kBlock; ++i) block[i] = pattern(seed, position + i);
    return block;
  }
  static std::optional<std::size_t> first_difference(const std::byte* at, const Block& wanted, std::size_t length) {
    length = std::min(length, kBlock);
    if (std::memcmp(at, wanted.data(), length) == 0) return std::nullopt;
    return static_cast<std::size_t>(std::mismatch(at, at + length, wanted.begin()).first - at);
  }

  void upload() {
    if (on_ != nullptr) on_->upload(place_, bytes_);
  }
  void download() const {
    if (on_ != nullptr) on_->download(bytes_, place_);
  }

  Room* const in_ = room;
  Placement* const on_ = placement;
  std::byte* place_ = nullptr;
  std::vector<std::byte> own_;  // of a device's memory, its copy
  sys::MemoryFile file_;
  std::span<std::byte> bytes_;
  std::size_t size_;
  std::byte* begin_;
};

}  // namespace fairway::conformance
