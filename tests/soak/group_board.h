#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "group_plan.h"

// What the processes of a soak share: a page that the leading one has made before it forked them.
namespace fairway::tool::soak::groups {

struct Seat {
  std::atomic<std::uint64_t> round{0};    // in which its process is
  std::atomic<std::uint64_t> present{0};  // its process waits at `address` to join in round `present` - 1
  std::atomic<std::uint64_t> told{0};     // it was told of the end of its group in round `told` - 1
  std::atomic<std::uint64_t> steps{0};    // grows while it gets on
  std::array<char, 256> address{};
  std::array<char, 4096> said{};  // what is wrong
};

struct Board {
  std::array<Seat, kMostRanks> seats;
  // Of the whole life, by all its ranks.
  std::array<std::atomic<std::uint64_t>, 10> operations{};  // that were ok, by kind
  std::atomic<std::uint64_t> messages{0}, groups{0}, bytes{0}, failed{0};
  std::array<std::atomic<std::uint64_t>, kHappenings> longest_us{};  // of a round
};

// How a process of a life ends.
inline constexpr int kDone = 0, kWrong = 1, kGivesUpSeat = 7;

// Is the process of a seat from the `turn`-th time on that somebody sits there, 0 at the life's beginning. Returns its
// exit status.
int sit(const Life& life, int seat, int turn, Board& board);

}  // namespace fairway::tool::soak::groups
