#include "group_plan.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fairway::tool::soak::groups {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

Happening draw(Draws& draws, std::size_t members, bool missing) {
  const std::uint64_t dice = draws.below(10'000), two = draws.below(4);
  if (missing && dice < 2500) return Happening::grow;
  const std::uint64_t fate = draws.below(10'000);
  const auto if_more_than = [members](std::size_t least, Happening what) {
    return members > least ? what : Happening::nothing;
  };
  if (fate < 250) return Happening::split;
  if (fate < 330) return Happening::freeze;
  if (fate < 450) return two == 0 ? if_more_than(2, Happening::kill_two) : if_more_than(1, Happening::kill);
  if (fate < 510) return if_more_than(1, Happening::leave);
  if (fate < 550) return if_more_than(1, Happening::mismatch);
  if (fate < 554) return if_more_than(1, Happening::late);
  if (fate < 556) return if_more_than(1, Happening::freeze_long);
  return Happening::nothing;
}

void remove(std::vector<int>& seats, int seat) {
  seats.erase(std::find(seats.begin(), seats.end(), seat));
}

void plan(Round& round, Draws& draws, milliseconds peer_timeout, std::vector<int>& missing) {
  const auto any = [&](const std::vector<int>& seats) { return seats[draws.below(seats.size())]; };
  round.what = draw(draws, round.members.size(), !missing.empty());
  round.salt = draws.next();
  round.victim = any(round.members);
  round.delay = microseconds(draws.one_in(3) ? draws.below(20'000) : draws.below(800));
  round.second_delay = microseconds(draws.below(6'000));
  round.stopped = milliseconds(5 + draws.below(draws.one_in(4) ? 300 : 30));
  round.after = round.members;
  switch (round.what) {
    case Happening::kill_two:
    case Happening::kill:
    case Happening::freeze_long:
    case Happening::leave:
      remove(round.after, round.victim);
      missing.push_back(round.victim);
      if (round.what == Happening::freeze_long) round.stopped = peer_timeout + milliseconds(1500);
      if (round.what != Happening::kill_two) break;
      round.second = any(round.after);
      remove(round.after, round.second);
      missing.push_back(round.second);
      break;
    case Happening::grow:
      round.joining = missing;
      missing.clear();
      round.after.insert(round.after.end(), round.joining.begin(), round.joining.end());
      break;
    default: break;
  }
}

}  // namespace

std::uint64_t mix(std::uint64_t value) {  // SplitMix64's finalizer
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31);
}

std::uint64_t Draws::next() {
  return mix(state_ += 0x9E3779B97F4A7C15U);
}

std::string words_of(const Settings& settings) {
  return fmt::format("--seed {} --ranks {} --largest {} --via {}", settings.seed, settings.ranks, settings.largest,
                     fmt::join(settings.via, ","));
}

std::string_view to_string(Happening what) {
  constexpr std::array<std::string_view, kHappenings> kWords = {
      "nothing else",    "split",    "frozen",   "killed", "two killed",
      "frozen for long", "left out", "mismatch", "late",   "grown"};
  return kWords[static_cast<std::size_t>(what)];
}

Life life_of(const Settings& settings, std::uint64_t number) {
  Draws draws(mix(settings.seed) ^ mix(number + 0x5F3759DF));
  Life life;
  life.number = number;
  const auto most = static_cast<std::uint64_t>(settings.ranks);
  // Few ranks are the usual, for a machine of few cores; each life in ten may have all that are allowed.
  const std::uint64_t top = draws.one_in(10) ? most : std::min<std::uint64_t>(most, 5);
  life.ranks = static_cast<int>(draws.one_in(12) || top < 2 ? 1 : 2 + draws.below(top - 1));
  life.transport = settings.via[draws.below(settings.via.size())];
  life.progress = draws.one_in(3) ? Progress::threads : Progress::caller;
  constexpr std::array<std::uint32_t, 4> kSlots = {0, 0, 256, 4096};
  life.slot_bytes = kSlots[draws.below(kSlots.size())];
  life.largest =
      life.slot_bytes == 0 ? settings.largest : std::min<std::uint64_t>(settings.largest, 256 * life.slot_bytes);
  life.peer_timeout = milliseconds(4000);
  std::vector<int> members(static_cast<std::size_t>(life.ranks)), missing;
  for (int seat = 0; seat < life.ranks; ++seat) members[static_cast<std::size_t>(seat)] = seat;
  for (std::uint64_t i = 0; i < kRoundsOfLife; ++i) {
    Round round;
    round.number = i;
    round.members = members;
    plan(round, draws, life.peer_timeout, missing);
    members = round.after;
    life.rounds.push_back(std::move(round));
  }
  return life;
}

}  // namespace fairway::tool::soak::groups
