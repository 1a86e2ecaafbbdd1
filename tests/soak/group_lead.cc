#include "group_lead.h"

#include <csignal>
#include <cstdio>
#include <optional>

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fairway/progress.h"

#include "interrupt.h"

namespace fairway::tool::soak::groups {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kHangs{150};  // without a step of any process

class Lead {
 public:
  Lead(const Life& life, Board& board) : life_(life), board_(board), seats_(static_cast<std::size_t>(life.ranks)) {
    ::sigemptyset(&child_);
    ::sigaddset(&child_, SIGCHLD);
    ::sigprocmask(SIG_BLOCK, &child_, &before_);
  }
  ~Lead() {
    for (Place& place : seats_) {
      if (place.process == 0) continue;
      ::kill(place.process, SIGKILL);
      ::waitpid(place.process, nullptr, 0);
    }
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  Lead(const Lead&) = delete;
  Lead& operator=(const Lead&) = delete;

  Lived run() {
    for (std::size_t i = 0; i < seats_.size(); ++i)
      if (std::string wrong = start(i, 0); !wrong.empty()) return {false, wrong};
    auto moved = Clock::now();
    std::uint64_t steps = 0;
    while (left_ > 0) {
      const timespec soon{0, 20'000'000};
      (void)::sigtimedwait(&child_, nullptr, &soon);
      if (Interrupt::came()) return {true, {}};
      if (std::string wrong = look(); !wrong.empty()) return {false, wrong};
      wake();
      std::uint64_t now = 0;
      for (const Seat& seat : board_.seats) now += seat.steps;
      if (now != steps) {
        steps = now;
        moved = Clock::now();
      } else if (Clock::now() - moved > kHangs) {
        return {false, "it hangs" + others()};
      }
    }
    return {};
  }

 private:
  struct Place {
    pid_t process = 0;
    int turn = 0;
    std::optional<Clock::time_point> wakes;
  };

  std::string start(std::size_t seat, int turn) {
    const pid_t process = ::fork();
    if (process < 0) return "no process: fork failed";
    if (process == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::sigprocmask(SIG_SETMASK, &before_, nullptr);
      std::signal(SIGINT, SIG_IGN);
      ::_exit(sit(life_, static_cast<int>(seat), turn, board_));
    }
    seats_[seat] = {process, turn, {}};
    ++left_;
    return {};
  }

  // What has become of the processes.
  std::string look() {
    for (std::size_t i = 0; i < seats_.size(); ++i) {
      Place& place = seats_[i];
      int status = 0;
      if (place.process == 0 || ::waitpid(place.process, &status, WNOHANG | WUNTRACED) != place.process) continue;
      if (WIFSTOPPED(status)) {
        place.wakes = Clock::now() + round_of(i).stopped;
        continue;
      }
      place.process = 0;
      --left_;
      if (WIFEXITED(status) && WEXITSTATUS(status) == kDone) continue;
      if (WIFEXITED(status) && WEXITSTATUS(status) == kWrong)
        return std::string(board_.seats[i].said.data()) + others();
      const bool by_plan =
          WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL && dies(i) : WEXITSTATUS(status) == kGivesUpSeat;
      if (!by_plan)
        return fmt::format("round {}: the process of seat {} ended by {} {}", round_of(i).number, i,
                           WIFSIGNALED(status) ? "signal" : "exit status",
                           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
      if (std::string wrong = start(i, place.turn + 1); !wrong.empty()) return wrong;
    }
    return {};
  }

  void wake() {
    for (Place& place : seats_)
      if (place.wakes && Clock::now() >= *place.wakes) {
        place.wakes.reset();
        ::kill(place.process, SIGCONT);
      }
  }

  [[nodiscard]] const Round& round_of(std::size_t seat) const { return life_.rounds[board_.seats[seat].round]; }
  [[nodiscard]] bool dies(std::size_t seat) const {
    const Round& round = round_of(seat);
    const int one = static_cast<int>(seat);
    return (round.what == Happening::kill && round.victim == one) ||
           (round.what == Happening::kill_two && (round.victim == one || round.second == one));
  }

  // Where the others are.
  std::string others() {
    std::string text;
    for (std::size_t i = 0; i < seats_.size(); ++i)
      if (seats_[i].process != 0)
        text += fmt::format(" seat {} (process {}) in round {};", i, seats_[i].process, round_of(i).number);
    for (const std::string& one : who_hangs(progress_of_ranks())) text += "\n  " + one;
    return text;
  }

  const Life& life_;
  Board& board_;
  std::vector<Place> seats_;
  int left_ = 0;
  sigset_t child_{}, before_{};
};

}  // namespace

Lived lead(const Life& life, Board& board) {
  (void)std::fflush(nullptr);  // not once more by each child
  return Lead(life, board).run();
}

}  // namespace fairway::tool::soak::groups
