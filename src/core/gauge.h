#pragma once

#include <atomic>

namespace fairway {

// A number that one thread at a time writes and any thread reads at any time, by itself: it orders nothing else. With
// one writer no read-modify-write is needed, so it costs what a plain number does. Copies are of the writer.
template <class T>
class Gauge {
 public:
  Gauge(T value = {}) : value_(value) {}  // NOLINT(google-explicit-constructor)
  Gauge(const Gauge& other) : value_(static_cast<T>(other)) {}
  ~Gauge() = default;
  Gauge& operator=(const Gauge& other) { return *this = static_cast<T>(other); }
  Gauge& operator=(T value) {
    value_.store(value, std::memory_order_relaxed);
    return *this;
  }
  operator T() const { return value_.load(std::memory_order_relaxed); }  // NOLINT(google-explicit-constructor)
  Gauge& operator+=(T more) { return *this = static_cast<T>(*this + more); }
  Gauge& operator-=(T less) { return *this = static_cast<T>(*this - less); }
  Gauge& operator++() { return *this += 1; }
  Gauge& operator--() { return *this -= 1; }

 private:
  std::atomic<T> value_;
};

}  // namespace fairway
