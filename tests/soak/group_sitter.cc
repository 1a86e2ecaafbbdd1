#include <algorithm>
#include <csignal>
#include <cstring>
#include <optional>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "group_acts.h"

// A process of a soak of collectives: one rank, from the time it sits down until the life's end or its own.
namespace fairway::tool::soak::groups {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kTimeout{30};  // of every operation
constexpr std::chrono::seconds kPatience{90};
constexpr const char* kFirstName = "life";

// Sends this process a signal after a while, from a thread of its own.
class Strike {
 public:
  Strike(int signal, std::chrono::microseconds after)
      : thread_([signal, after] {
          std::this_thread::sleep_for(after);
          ::kill(::getpid(), signal);
        }) {}
  ~Strike() { thread_.join(); }

 private:
  std::thread thread_;
};

[[noreturn]] void wait_for_death() {
  for (;;) ::pause();
}

class Sitter {
 public:
  Sitter(const Life& life, int seat, int turn, Board& board)
      : life_(life), seat_(seat), turn_(turn), board_(board), acts_(life.largest, board) {}

  int run() {
    std::string wrong = live();
    if (wrong.empty()) return gives_up_ ? kGivesUpSeat : kDone;
    Seat& own = own_seat();
    std::strncpy(own.said.data(), wrong.c_str(), own.said.size() - 1);
    return kWrong;
  }

 private:
  Seat& own_seat() { return board_.seats[static_cast<std::size_t>(seat_)]; }
  Seat& seat(int number) { return board_.seats[static_cast<std::size_t>(number)]; }
  [[nodiscard]] int rank_of(const Round& round, int seat) const {
    return static_cast<int>(std::find(round.members.begin(), round.members.end(), seat) - round.members.begin());
  }

  std::string live();
  std::string open_engine();
  // In which round this process joins, if in any.
  std::optional<std::size_t> joins_after(std::size_t round) const;
  std::optional<std::size_t> first_round() const;
  std::string join(const std::vector<int>& members, std::uint64_t present, const std::vector<int>& joining,
                   const std::string& name);
  std::string await(const std::vector<int>& seats, std::uint64_t present);
  CommunicatorOptions options(const std::string& name) const;

  std::string play(const Round& round);
  // Until all have left the round before: who has its results may end before what it sent has reached the others.
  std::string await_all(const Round& round);
  std::string expect_ok(const char* what, const Outcome& outcome);
  std::string until_over(const Round& round, std::optional<int> blamed);
  std::string shrink(const Round& round, std::span<const int> without = {});
  std::string die(const Round& round);
  std::string freeze_long(const Round& round);
  std::string leave(const Round& round);
  std::string mismatch(const Round& round);
  std::string late(const Round& round);
  std::string grow(const Round& round);

  const Life& life_;
  const int seat_, turn_;
  Board& board_;
  Acts acts_;
  std::optional<Engine> engine_;
  std::optional<Communicator> group_;
  bool gives_up_ = false, left_ = false;
};

std::string Sitter::open_engine() {
  EngineOptions options;
  options.name = fmt::format("seat-{}.{}", seat_, turn_);
  options.transports = {life_.transport};
  options.progress = life_.progress;
  options.peer_timeout = life_.peer_timeout;
  options.max_counters = 1U << 15;
  if (life_.ranks > 2) options.spin = std::chrono::microseconds(0);
  auto engine = Engine::open(options);
  if (!engine) return "no engine: " + engine.status().to_string();
  engine_.emplace(std::move(*engine));
  return {};
}

CommunicatorOptions Sitter::options(const std::string& name) const {
  // Those who join wait for the others to end what they are in, with time to spare.
  return {.name = name, .timeout = name == kFirstName ? kTimeout : 2 * kTimeout, .slot_bytes = life_.slot_bytes};
}

std::optional<std::size_t> Sitter::joins_after(std::size_t round) const {
  for (std::size_t i = round; i < life_.rounds.size(); ++i)
    if (life_.rounds[i].what == Happening::grow) return i;
  return {};
}

// The round in which the process before this one lost the seat.
std::optional<std::size_t> Sitter::first_round() const {
  int turn = 0;
  for (const Round& round : life_.rounds) {
    const bool dies = round.what == Happening::kill || round.what == Happening::kill_two;
    const bool loses = ((dies || round.what == Happening::freeze_long) && round.victim == seat_) ||
                       (round.what == Happening::kill_two && round.second == seat_);
    if (loses && ++turn == turn_) return joins_after(static_cast<std::size_t>(round.number));
  }
  return {};
}

std::string Sitter::await(const std::vector<int>& seats, std::uint64_t present) {
  const auto end = Clock::now() + kPatience;
  for (const int one : seats)
    while (seat(one).present != present) {
      if (Clock::now() > end) return fmt::format("nobody came to seat {}", one);
      (void)engine_->wait_notification(std::chrono::milliseconds(1));  // a pause in which the engine works
    }
  return {};
}

std::string Sitter::join(const std::vector<int>& members, std::uint64_t present, const std::vector<int>& joining,
                         const std::string& name) {
  std::strncpy(own_seat().address.data(), engine_->address().c_str(), own_seat().address.size() - 1);
  own_seat().present = present;
  if (std::string wrong = await(joining, present); !wrong.empty()) return wrong;
  std::vector<std::string> addresses;
  int rank = -1;
  for (const int member : members) {
    if (member == seat_) rank = static_cast<int>(addresses.size());
    addresses.emplace_back(seat(member).address.data());
  }
  auto made = Communicator::create(*engine_, rank, addresses, options(name));
  if (!made) return fmt::format("create \"{}\": {}", name, made.status().to_string());
  group_.emplace(std::move(*made));
  return {};
}

std::string Sitter::live() {
  if (std::string wrong = open_engine(); !wrong.empty()) return wrong;
  std::optional<std::size_t> first;
  if (turn_ == 0) {
    const std::vector<int>& all = life_.rounds.front().members;
    if (std::string wrong = join(all, 1, all, kFirstName); !wrong.empty()) return wrong;
    first = 0;
  } else {
    first = first_round();
    left_ = first.has_value();
  }
  for (std::size_t i = first.value_or(life_.rounds.size()); i < life_.rounds.size(); ++i) {
    const Round& round = life_.rounds[i];
    own_seat().round = i;
    ++own_seat().steps;
    const auto start = Clock::now();
    std::string wrong = left_ ? grow(round) : play(round);
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start).count();
    auto& longest = board_.longest_us[static_cast<std::size_t>(round.what)];
    if (static_cast<std::uint64_t>(us) > longest) longest = static_cast<std::uint64_t>(us);
    if (!wrong.empty()) return fmt::format("round {} ({}), seat {}: {}", i, to_string(round.what), seat_, wrong);
    if (gives_up_) return {};
    if (!left_) continue;
    const auto back = joins_after(i);
    if (!back) return {};
    i = *back - 1;
  }
  if (!group_) return {};
  const Status met = group_->run({});
  return met ? std::string() : "at the end: " + met.to_string();
}

std::string Sitter::await_all(const Round& round) {
  const auto end = Clock::now() + kPatience;
  for (const int member : round.members)
    while (seat(member).round < round.number) {
      if (Clock::now() > end) return fmt::format("seat {} stays in the round before", member);
      (void)engine_->wait_notification(std::chrono::milliseconds(1));
    }
  return {};
}

std::string Sitter::expect_ok(const char* what, const Outcome& outcome) {
  if (!outcome.wrong.empty()) return outcome.wrong;
  return outcome.status ? std::string() : fmt::format("{}: {}", what, outcome.status.to_string());
}

std::string Sitter::until_over(const Round& round, std::optional<int> blamed) {
  const auto end = Clock::now() + kPatience;
  Status status;
  while ((status = group_->run({})))
    if (Clock::now() > end) return "its end was never noticed";
  const CollectiveFailure& why = group_->failure();
  if (blamed && why.rank != rank_of(round, *blamed))
    return fmt::format("rank {} is at fault, and this is said: {}", rank_of(round, *blamed), status.to_string());
  return {};
}

std::string Sitter::shrink(const Round& round, std::span<const int> without) {
  const int tries = round.what == Happening::kill_two ? 6 : 1;
  std::string said;
  for (int i = 0; i < tries; ++i) {
    auto made = group_->shrink(without);
    if (!made) {
      said = made.status().to_string();
      continue;
    }
    if (made->size() == static_cast<int>(round.after.size())) {
      group_.emplace(std::move(*made));
      return {};
    }
    said = fmt::format("{} ranks in place of {}", made->size(), round.after.size());
    // The one who is to die was still there: until it is not.
    if (tries > 1)
      for (const auto end = Clock::now() + kPatience; made->run({});)
        if (Clock::now() > end) return "the second death was never noticed";
  }
  return "shrink: " + said;
}

std::string Sitter::die(const Round& round) {
  Draws draws(round.salt);
  std::optional<Strike> strike;
  if (seat_ == round.victim) {
    if (std::string wrong = await_all(round); !wrong.empty()) return wrong;
    strike.emplace(SIGKILL, round.delay);
  }
  const Outcome outcome = draws.one_in(4) ? acts_.split(*group_, draws) : acts_.play(*group_, draws, 1);
  if (!outcome.wrong.empty()) return outcome.wrong;
  std::string wrong = until_over(round, round.victim);
  if (strike) wait_for_death();
  if (!wrong.empty()) return wrong;
  if (seat_ == round.second && round.what == Happening::kill_two) {
    strike.emplace(SIGKILL, round.second_delay);
    (void)shrink(round);
    wait_for_death();
  }
  return shrink(round);
}

std::string Sitter::freeze_long(const Round& round) {
  if (seat_ == round.victim) {
    if (std::string wrong = await_all(round); !wrong.empty()) return wrong;
    const Strike strike(SIGSTOP, round.delay);
    const Outcome outcome = acts_.play(*group_, Draws(round.salt), 1);
    if (!outcome.wrong.empty()) return outcome.wrong;
    std::string wrong = until_over(round, {});
    gives_up_ = true;
    return wrong;
  }
  const Outcome outcome = acts_.play(*group_, Draws(round.salt), 1);
  if (!outcome.wrong.empty()) return outcome.wrong;
  if (std::string wrong = until_over(round, round.victim); !wrong.empty()) return wrong;
  const int without[] = {rank_of(round, round.victim)};
  return shrink(round, without);
}

std::string Sitter::leave(const Round& round) {
  if (const Status met = group_->run({}); !met) return met.to_string();
  if (seat_ == round.victim) {
    group_.reset();
    left_ = true;
    return {};
  }
  const int without[] = {rank_of(round, round.victim)};
  return shrink(round, without);
}

std::string Sitter::mismatch(const Round& round) {
  std::vector<float> input(80), output(80);
  Collective call{.kind = CollectiveKind::all_reduce, .input = input.data(), .output = output.data(), .count = 64};
  call.type = DataType::f32;
  if (seat_ == round.victim) switch (round.salt % 4) {
      case 0: call.kind = CollectiveKind::barrier; break;
      case 1: call.count = 65; break;
      case 2: call.type = DataType::i32; break;
      default: call.reduction = Reduction::max; break;
    }
  const Status status = group_->run(call);
  if (status.code() != ErrorCode::invalid_argument)
    return "a call that does not match is not told: " + status.to_string();
  return shrink(round);
}

std::string Sitter::late(const Round& round) {
  if (const Status met = group_->run({}); !met) return met.to_string();
  if (seat_ == round.victim) {
    const auto end = Clock::now() + kPatience;
    for (const int member : round.members)
      while (member != seat_ && seat(member).told != round.number + 1) {
        if (Clock::now() > end) return "the others were not told of the deadline";
        (void)engine_->wait_notification(std::chrono::milliseconds(1));
      }
    if (group_->run({})) return "a call after the others' deadline was ok";
    return shrink(round);
  }
  Collective call;
  call.timeout = std::chrono::milliseconds(1500);
  const Status status = group_->run(call);
  own_seat().told = round.number + 1;
  if (status.code() != ErrorCode::deadline_exceeded || group_->failure().rank != rank_of(round, round.victim))
    return fmt::format("rank {} was late, and this is said: {}", rank_of(round, round.victim), status.to_string());
  return shrink(round);
}

std::string Sitter::grow(const Round& round) {
  const std::string name = fmt::format("life, grown in {}", round.number);
  if (left_) {
    left_ = false;
    return join(round.after, round.number + 2, round.joining, name);
  }
  if (std::string wrong = await(round.joining, round.number + 2); !wrong.empty()) return wrong;
  std::vector<std::string> added;
  for (const int one : round.joining) added.emplace_back(seat(one).address.data());
  auto made = group_->grow(added, options(name));
  if (!made) return made.status().to_string();
  group_.emplace(std::move(*made));
  return {};
}

std::string Sitter::play(const Round& round) {
  switch (round.what) {
    case Happening::kill:
    case Happening::kill_two: return die(round);
    case Happening::freeze_long: return freeze_long(round);
    case Happening::leave: return leave(round);
    case Happening::mismatch: return mismatch(round);
    case Happening::late: return late(round);
    case Happening::grow: return grow(round);
    case Happening::split: {
      Draws draws(round.salt);
      std::string wrong = expect_ok("split", acts_.split(*group_, draws));
      return wrong.empty() ? expect_ok("after a split", {group_->run({}), {}}) : wrong;
    }
    case Happening::freeze: {
      std::optional<Strike> strike;
      if (seat_ == round.victim) strike.emplace(SIGSTOP, round.delay);
      return expect_ok("beside a frozen rank", acts_.play(*group_, Draws(round.salt), 3));
    }
    case Happening::nothing: break;
  }
  return expect_ok("an operation", acts_.play(*group_, Draws(round.salt), 3));
}

}  // namespace

int sit(const Life& life, int seat, int turn, Board& board) {
  return Sitter(life, seat, turn, board).run();
}

}  // namespace fairway::tool::soak::groups
