#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "model/explorer.h"

namespace fairway::model {

// The source line of the call in whose default argument it is constructed (like std::source_location, which clang 14
// lacks).
struct Place {
  Place(const char* file_in = __builtin_FILE(), unsigned line_in = __builtin_LINE()) : file(file_in), line(line_in) {}
  const char* file;
  unsigned line;
};

// The policy that runs every atomic operation of core's containers under the explorer. Only thread 0 may construct one.
// compare_exchange_weak never fails spuriously, because a loop around it would never end.
struct ModelAtomics {
  template <class T>
  class Atomic {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));

   public:
    Atomic() : Atomic(T{}) {}
    Atomic(T initial) : location_(Explorer::current().memory().add_location(to_bits(initial))) {}
    Atomic(const Atomic&) = delete;
    Atomic& operator=(const Atomic&) = delete;

    T load(std::memory_order order, Place place = {}) const { return from_bits(step(Kind::load, order, 0, place)); }
    void store(T value, std::memory_order order, Place place = {}) { step(Kind::store, order, to_bits(value), place); }
    T exchange(T value, std::memory_order order, Place place = {}) {
      return from_bits(step(Kind::exchange, order, to_bits(value), place));
    }
    T fetch_add(T value, std::memory_order order, Place place = {}) {
      return from_bits(step(Kind::add, order, to_bits(value), place));
    }
    T fetch_sub(T value, std::memory_order order, Place place = {}) {
      return from_bits(step(Kind::add, order, to_bits(static_cast<T>(T{0} - value)), place));
    }
    bool compare_exchange_strong(T& expected, T desired, std::memory_order success, std::memory_order failure,
                                 Place place = {}) {
      Operation operation{.kind = Kind::compare_exchange,
                          .location = location_,
                          .order = success,
                          .failure_order = failure,
                          .operand = to_bits(desired),
                          .expected = to_bits(expected),
                          .file = place.file,
                          .line = place.line};
      const std::uint64_t seen = Explorer::current().step(operation);
      if (operation.always_succeeds || seen == operation.expected) return true;
      expected = from_bits(seen);
      return false;
    }
    bool compare_exchange_weak(T& expected, T desired, std::memory_order success, std::memory_order failure,
                               Place place = {}) {
      return compare_exchange_strong(expected, desired, success, failure, place);
    }
    // Not in std::atomic: sleeps until the value is not zero and takes it, like read() on an eventfd.
    T await_nonzero() { return from_bits(step(Kind::await_nonzero, std::memory_order_acq_rel, 0, {})); }

   private:
    std::uint64_t step(Kind kind, std::memory_order order, std::uint64_t operand, Place place) const {
      Operation operation{.kind = kind,
                          .location = location_,
                          .order = order,
                          .operand = operand,
                          .file = place.file,
                          .line = place.line};
      return Explorer::current().step(operation);
    }
    static std::uint64_t to_bits(T value) {
      std::uint64_t bits = 0;
      std::memcpy(&bits, &value, sizeof value);
      return bits;
    }
    static T from_bits(std::uint64_t bits) {
      T value;
      std::memcpy(&value, &bits, sizeof value);
      return value;
    }

    unsigned location_;
  };

  static void fence(std::memory_order order, Place place = {}) {
    Operation operation{.kind = Kind::fence, .order = order, .file = place.file, .line = place.line};
    Explorer::current().step(operation);
  }

  template <class T>
  using Zeroed = std::unique_ptr<T[]>;
  template <class T>
  static Zeroed<T> zeroed(std::size_t count) {
    return Zeroed<T>(new T[count]);
  }
};

// A kernel wake-up: an eventfd. It synchronizes, and a wake-up before the sleep persists.
class Event {
 public:
  void set() { count_.fetch_add(1, std::memory_order_acq_rel); }
  void wait() { count_.await_nonzero(); }

 private:
  ModelAtomics::Atomic<std::uint32_t> count_{0};
};

// A non-atomic value. Checks every access for data races and for use outside of the object's lifetime.
class Tracked {
 public:
  explicit Tracked(int value = 0) : value_(value) { note(memory().construct(thread(), this)); }
  Tracked(Tracked&& other) noexcept : value_(other.take()) { note(memory().construct(thread(), this)); }
  Tracked& operator=(Tracked&& other) noexcept {
    set(other.take());
    return *this;
  }
  ~Tracked() { note(memory().destroy(thread(), this)); }

  int get() const {
    note(memory().read(thread(), this));
    return value_;
  }
  void set(int value) {
    note(memory().write(thread(), this));
    value_ = value;
  }

 private:
  static Memory& memory() { return Explorer::current().memory(); }
  static unsigned thread() { return Explorer::current().thread(); }
  static void note(const std::string& problem) {
    if (!problem.empty()) Explorer::current().fail(problem);
  }
  int take() {
    note(memory().write(thread(), this));
    return std::exchange(value_, -1);
  }

  int value_;
};

}  // namespace fairway::model
