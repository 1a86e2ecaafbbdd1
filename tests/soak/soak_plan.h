#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "soak.h"

namespace fairway::tool::soak {

// splitmix64 (Steele, Lea and Flood 2014): any seed will do, and what follows from it is the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }
  bool one_in(std::uint64_t count) { return below(count) == 0; }

 private:
  std::uint64_t state_;
};
std::uint64_t mixed(std::uint64_t a, std::uint64_t b);

using std::chrono::microseconds;

enum class Kind : std::uint8_t { write, read, pages_out, pages_in, send, fetch_add, compare_swap };
inline bool is_atomic(Kind kind) {
  return kind == Kind::fetch_add || kind == Kind::compare_swap;
}
inline bool is_read(Kind kind) {
  return kind == Kind::read || kind == Kind::pages_in;
}

// Some bytes of one process's memory: `count` pieces of the step, `stride` apart.
struct Place {
  unsigned process = 0, memory = 0;
  std::uint64_t at = 0, stride = 0;
};

// One transfer.
struct Step {
  unsigned index = 0;
  Kind kind = Kind::write;
  Place from, to;           // of an atomic `to` is the word, and `from` says who asks
  std::uint64_t piece = 0;  // bytes
  std::uint64_t count = 1;
  std::uint64_t shuffle = 0;  // of the pieces
  NotifyKind notify = NotifyKind::none;
  std::uint64_t word = 0;  // of a signal: where it is in the memory of `to`
  bool adds = false;       // that signal
  bool checksum = false;
  Priority priority = Priority::normal;
  microseconds start{0}, receive{0};      // from the round's start; when the receiver of a send asks for it
  microseconds cancel{-1}, deadline{-1};  // from its own start; negative: none

  [[nodiscard]] unsigned by() const { return is_read(kind) ? to.process : from.process; }    // who starts it
  [[nodiscard]] unsigned with() const { return is_read(kind) ? from.process : to.process; }  // the other one
  [[nodiscard]] const Place& near() const { return is_read(kind) ? to : from; }              // of who starts it
  [[nodiscard]] const Place& far() const { return is_read(kind) ? from : to; }
  [[nodiscard]] std::uint64_t bytes() const { return piece * count; }
  [[nodiscard]] std::string what() const;  // "write+event": its row of the table
};
// Where each piece of a step lies on one side, in bytes from the start of the memory there.
enum class Side : std::uint8_t { from, to };
std::vector<std::uint64_t> pieces_of(const Step& step, Side side);

// What happens to a process in a round.
struct Fault {
  enum class Kind : std::uint8_t { none, kill, freeze, revoke } kind = Kind::none;
  unsigned process = 0, memory = 0;  // whose, and which is taken back
  microseconds at{0}, lasts{0};      // from the round's start; how long it is frozen
};

struct Round {
  std::uint64_t number = 0;
  std::vector<Step> steps;
  Fault fault;
};
Round plan_of(const Settings& settings, std::uint64_t number);

// Each memory begins with words for atomics and signals, which are zero before a round.
inline constexpr std::uint64_t kWords = 512, kAdded = 16, kSwapped = 32;
inline constexpr std::uint64_t kWordBytes = kWords * 8;
std::uint64_t memory_bytes(const Settings& settings);

// Peers that say nothing for so long are dead.
inline constexpr std::chrono::milliseconds kPeerTimeout{2000};

}  // namespace fairway::tool::soak
