#include "engine/waiting.h"

#include <algorithm>

namespace fairway::engine {
namespace {

constexpr Time kTakeOver = kMillisecond;
constexpr Time kPause = 100 * kMicrosecond;  // between two polls
constexpr std::uint32_t kPollsInRow = 16;

}  // namespace

Status Waiting::open() {
  auto made = runtime_.executor.make_signal();
  if (!made) return made.status();
  signal_ = std::move(made).value();
  return {};
}

Time Waiting::deadline(Timeout timeout) const {
  return timeout == kForever ? kNever : passes_at(timeout.count() <= 0 ? 0 : runtime_.clock.now(), timeout);
}

// With Progress::caller mostly nobody sleeps on the count: either this sees who does, or that one sees the new count,
// and with it what there is.
void Waiting::notice() {
  notices_.fetch_add(1, std::memory_order_seq_cst);
  if (!by_caller_ || sleepers_.load(std::memory_order_seq_cst) != 0) runtime_.executor.wake_all(notices_);
  if (signal_ != nullptr) signal_->set();
}

void Waiting::stop() {
  stopped_.store(true, std::memory_order_release);
  notice();
  while (by_caller_ && stepping_.load(std::memory_order_acquire)) {  // it leaves at the end of that step
    const std::uint32_t seen = notices_.load(std::memory_order_acquire);
    runtime_.executor.wait(notices_, seen, after(runtime_.clock.now(), kPause));
  }
}

void Waiting::ended() {
  ended_.store(1, std::memory_order_release);
  runtime_.executor.wake_all(ended_);
  notice();
}

bool Waiting::wait_for_end(Time deadline) {
  while (ended_.load(std::memory_order_acquire) == 0) {
    if (runtime_.clock.now() >= deadline) return false;
    runtime_.executor.wait(ended_, 0, deadline);
  }
  return true;
}

std::size_t Waiting::step_once(std::span<Completion> room) {
  const SteppersTurn turn(stepping_);
  const Time now = turn ? runtime_.clock.about(read_) : runtime_.clock.now();
  const auto self = std::this_thread::get_id();
  const bool in_row =
      now < after(polled_.load(std::memory_order_relaxed), kPause) && poller_.load(std::memory_order_relaxed) == self;
  polled_.store(now, std::memory_order_relaxed);
  polls_.store(in_row ? polls_.load(std::memory_order_relaxed) + 1 : 0, std::memory_order_relaxed);
  if (!in_row) poller_.store(self, std::memory_order_relaxed);
  if (!turn && sleeps_in_turn_.load(std::memory_order_relaxed) && is_polled(now)) signal_->set();
  if (!turn || stopped_.load(std::memory_order_acquire)) return 0;
  unstepped_.store(0, std::memory_order_relaxed);
  std::size_t filled = 0;
  next_timer_ = workers_.step_for(room, filled, now);
  work_left_ = next_timer_ <= now;
  return filled;
}

bool Waiting::is_polled(Time now) const {
  return polls_.load(std::memory_order_relaxed) >= kPollsInRow &&
         now < after(polled_.load(std::memory_order_relaxed), kPause);
}

void Waiting::wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time until) {
  if (!by_caller_) return runtime_.executor.wait(word, seen, until);
  const bool stopped = stopped_.load(std::memory_order_acquire);  // then nobody can take over
  if (!stopped && step_until(word, seen, until)) return;
  const Asleep asleep(sleepers_);
  runtime_.executor.wait(word, seen, stopped ? until : std::min(until, after(runtime_.clock.now(), kTakeOver)));
}

bool Waiting::step_until(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time until) {
  const auto is_others = [this](Time now) {
    return is_polled(now) && poller_.load(std::memory_order_relaxed) != std::this_thread::get_id();
  };
  if (is_others(runtime_.clock.now())) return false;
  const SteppersTurn turn(stepping_);
  if (!turn) return false;
  read_ = {};  // it is older than the times here
  while (word.load(std::memory_order_acquire) == seen) {
    signal_->clear();
    const Time now = runtime_.clock.now();
    if (stopped_.load(std::memory_order_acquire)) return true;
    if (is_others(now)) {
      signal_->set();
      return false;
    }
    unstepped_.store(0, std::memory_order_relaxed);
    const Time next = workers_.step(now);
    if (word.load(std::memory_order_acquire) != seen || now >= until) break;
    if (next <= now) continue;
    if (!workers_.prepare_sleep()) continue;
    sleeps_in_turn_.store(true, std::memory_order_relaxed);
    signal_->wait(std::min(until, next));
    sleeps_in_turn_.store(false, std::memory_order_relaxed);
    workers_.slept(runtime_.clock.now());
  }
  signal_->set();
  return true;
}

int Waiting::fd() {
  const int fd = signal_->fd();
  // Readable at first, since events before this call did not set it.
  if (!fd_given_.exchange(true, std::memory_order_seq_cst)) signal_->set();
  return fd;
}

// A descriptor that was never given out is left as it is: who waits in wait() clears it before looking.
void Waiting::settle_fd() {
  if (by_caller_)
    signal_->clear_at(polled_.load(std::memory_order_relaxed));  // the poll before this read the clock
  else
    signal_->clear();
  if (workers_.any_left()) return signal_->set();
  if (!by_caller_) return;
  // The caller may sleep on the descriptor from now on. So the transports arm their wake-ups, as before a sleep in
  // wait(), and the descriptor also becomes readable for the workers' timers, which no other thread checks.
  const SteppersTurn turn(stepping_);
  if (!turn || stopped_.load(std::memory_order_acquire)) return;
  if (!work_left_ && workers_.prepare_sleep())
    signal_->set_at(next_timer_);
  else
    signal_->set();
}

}  // namespace fairway::engine
