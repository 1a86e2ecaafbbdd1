#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "fairway/collectives.h"

// `fairway soak collectives`: what ranks do, a pure function of the settings, the seed and a life's number. A life is
// some hundred rounds of one job; its processes come and go, and each of them knows the whole plan.
namespace fairway::tool::soak::groups {

inline constexpr int kMostRanks = 17;
inline constexpr std::uint64_t kRoundsOfLife = 200;

struct Settings {
  std::uint64_t seed = 1;
  int ranks = 6;                                   // at most
  std::uint64_t largest = std::uint64_t{1} << 20;  // bytes of a block
  std::vector<std::string> via = {"shm", "tcp"};   // one of them in each life
};
// As words of a command line; the same settings have the same words.
std::string words_of(const Settings& settings);

enum class Happening : std::uint8_t {
  nothing,
  split,        // into groups of any colors
  freeze,       // a rank is stopped for less than the peer timeout: nobody notices
  kill,         // a rank is killed under an operation
  kill_two,     // and another while the others shrink
  freeze_long,  // a rank is stopped until its peers have declared it dead, and goes on then
  leave,        // a rank that lives is left out, and comes back
  mismatch,     // a rank calls something else
  late,         // a rank does not come until the others' deadline
  grow,         // those that are missing join
};
inline constexpr std::size_t kHappenings = 10;
std::string_view to_string(Happening what);

// Numbers of one stream: the same for each process that asks in the same order.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  std::uint64_t below(std::uint64_t limit) { return next() % limit; }
  bool one_in(std::uint64_t count) { return below(count) == 0; }

 private:
  std::uint64_t state_;
};
std::uint64_t mix(std::uint64_t value);

// Seats are the places of a job: a process that dies leaves its seat to the next one. A group's ranks are seats in some
// order.
struct Round {
  std::uint64_t number = 0;
  Happening what = Happening::nothing;
  std::vector<int> members, after;  // seats by rank, before and after what happens
  std::vector<int> joining;         // grow: the last of `after`
  int victim = -1, second = -1;     // seats
  std::chrono::microseconds delay{0}, second_delay{0};
  std::chrono::milliseconds stopped{0};
  std::uint64_t salt = 0;  // of its operations
};

struct Life {
  std::uint64_t number = 0;
  int ranks = 0;
  std::string transport;
  Progress progress = Progress::caller;
  std::uint32_t slot_bytes = 0;
  std::uint64_t largest = 0;  // bytes of a block: of small pieces no thousands
  std::chrono::milliseconds peer_timeout{0};
  std::vector<Round> rounds;
};
Life life_of(const Settings& settings, std::uint64_t number);

}  // namespace fairway::tool::soak::groups
