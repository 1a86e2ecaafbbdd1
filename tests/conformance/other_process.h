#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "sys/fd.h"

namespace fairway::conformance {

// Values and bytes in a row, between two processes of one program. What is put is taken in the same order.
class Parcel {
 public:
  template <class T>
  Parcel& put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return put_raw(std::as_bytes(std::span(&value, 1)));
  }
  Parcel& put_bytes(std::span<const std::byte> bytes) { return put(bytes.size()).put_raw(bytes); }
  Parcel& put_text(const std::string& text) { return put_bytes(std::as_bytes(std::span(text.data(), text.size()))); }
  template <class T>
  T take() {
    static_assert(std::is_trivially_copyable_v<T>);
    std::remove_const_t<T> value;
    const auto raw = take_raw(sizeof value);
    std::copy(raw.begin(), raw.end(), reinterpret_cast<std::byte*>(&value));
    return value;
  }
  std::span<const std::byte> take_bytes() { return take_raw(take<std::size_t>()); }
  std::string take_text();

  bool send(int socket) const;                       // whole; false: the other end is gone
  static std::optional<Parcel> receive(int socket);  // the next one; nothing: the other end is gone

 private:
  Parcel& put_raw(std::span<const std::byte> bytes);
  std::span<const std::byte> take_raw(std::size_t size);

  std::vector<std::byte> bytes_;
  std::size_t taken_ = 0;
};

// Memory that this process and the other one have, at addresses of which neither is valid in the other. Of a process.
class Arena {
 public:
  static constexpr std::size_t kSize = std::size_t{2} << 30;  // of addresses; pages are had as they are touched

  std::byte* allocate(std::size_t size);  // throws when it is used up
  void free(std::byte* place, std::size_t size);
  int file() const { return file_.get(); }
  std::byte* base() const { return base_; }
  bool has(const void* place) const { return place >= base_ && place < base_ + kSize; }

 private:
  friend class OtherProcess;
  sys::Fd file_;
  std::byte* base_ = nullptr;
  std::byte* others_ =
      nullptr;  // where the other process has it; reserved here, so that nothing else comes to lie there
  std::size_t used_ = 0, live_ = 0;
};

// A process forked from this one to hold the far sides of worlds. It is forked when it is first wanted, which has to be
// while this process has one thread, and ends with this one.
class OtherProcess {
 public:
  static OtherProcess& get();

  // A connection to a thread of the other process that runs serve(its end).
  sys::Fd connect();
  Arena& arena() { return arena_; }

 private:
  OtherProcess();
  [[noreturn]] void live(int doorway);

  Arena arena_;
  sys::Fd doorway_;
};

}  // namespace fairway::conformance
