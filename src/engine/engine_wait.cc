#include <thread>

#include "engine/state.h"

// How callers wait. With worker threads they sleep on a word; with Progress::caller one of them steps the workers and
// sleeps on the engine's descriptor, the others sleep on their word and look now and then whether the stepping has
// become free. One that polls without a pause has it from one that waits: it would find the turn taken, and each
// message would cross two threads.
namespace fairway {
namespace {

constexpr Time kTakeOver = kMillisecond;
constexpr Time kPause = 100 * kMicrosecond;  // between two polls
constexpr std::uint32_t kPollsInRow = 16;

// The right to step the workers, if it is free. Not a mutex: a callback that runs inside a step may ask again.
class Turn {
 public:
  explicit Turn(std::atomic<bool>& taken) : taken_(taken), mine_(!taken.exchange(true, std::memory_order_acquire)) {}
  ~Turn() {
    if (mine_) taken_.store(false, std::memory_order_release);
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  explicit operator bool() const { return mine_; }

 private:
  std::atomic<bool>& taken_;
  const bool mine_;
};

}  // namespace

Time Engine::State::deadline(Timeout timeout) const {
  if (timeout == kForever) return kNever;
  if (timeout.count() <= 0) return 0;
  const auto us = static_cast<std::uint64_t>(timeout.count());
  return us > kNever / kMicrosecond ? kNever : after(runtime.clock.now(), us * kMicrosecond);
}

void Engine::State::notice() {
  notices.fetch_add(1, std::memory_order_release);
  runtime.executor.wake_all(notices);
  if (signal != nullptr) signal->set();
}

void Engine::State::drive() {
  const Time now = runtime.clock.now();
  const Turn turn(stepping);
  const auto self = std::this_thread::get_id();
  const bool in_row =
      now < after(polled_.load(std::memory_order_relaxed), kPause) && poller_.load(std::memory_order_relaxed) == self;
  polled_.store(now, std::memory_order_relaxed);
  polls_.store(in_row ? polls_.load(std::memory_order_relaxed) + 1 : 0, std::memory_order_relaxed);
  if (!in_row) poller_.store(self, std::memory_order_relaxed);
  if (!turn && sleeps_in_turn_.load(std::memory_order_relaxed) && is_polled(now)) signal->set();
  if (!turn || stopped_.load(std::memory_order_acquire)) return;
  Time next = kNever;
  for (const auto& worker : workers) next = std::min(next, worker->step(now));
  work_left_ = next <= now;
  next_timer_ = next;
}

bool Engine::State::is_polled(Time now) const {
  return polls_.load(std::memory_order_relaxed) >= kPollsInRow &&
         now < after(polled_.load(std::memory_order_relaxed), kPause);
}

void Engine::State::wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time until) {
  if (options.progress == Progress::threads || stopped_.load(std::memory_order_acquire))
    return runtime.executor.wait(word, seen, until);
  if (!step_until(word, seen, until))
    runtime.executor.wait(word, seen, std::min(until, after(runtime.clock.now(), kTakeOver)));
}

// False: somebody else does.
bool Engine::State::step_until(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time until) {
  const auto is_others = [this](Time now) {
    return is_polled(now) && poller_.load(std::memory_order_relaxed) != std::this_thread::get_id();
  };
  if (is_others(runtime.clock.now())) return false;
  const Turn turn(stepping);
  if (!turn) return false;
  while (word.load(std::memory_order_acquire) == seen) {
    signal->clear();
    const Time now = runtime.clock.now();
    if (is_others(now)) {
      signal->set();
      return false;
    }
    Time next = kNever;
    for (const auto& worker : workers) next = std::min(next, worker->step(now));
    if (word.load(std::memory_order_acquire) != seen || now >= until) break;
    if (next <= now) continue;
    bool quiet = true;
    for (const auto& worker : workers) quiet = worker->prepare_sleep() && quiet;
    if (!quiet) continue;
    sleeps_in_turn_.store(true, std::memory_order_relaxed);
    signal->wait(std::min(until, next));
    sleeps_in_turn_.store(false, std::memory_order_relaxed);
    for (const auto& worker : workers) worker->slept(runtime.clock.now());
  }
  signal->set();
  return true;
}

void Engine::State::settle_signal() {
  signal->clear();
  if (!completions.empty() || !notifications.empty() || !peer_events.empty()) return signal->set();
  if (options.progress != Progress::caller || !fd_given.load(std::memory_order_relaxed)) return;
  // The caller may sleep on the descriptor now: transports are told, as before a sleep in wait(), and the descriptor
  // wakes it for the workers' timers (deadlines, bounds, retries), which no other thread looks at.
  const Turn turn(stepping);
  if (!turn || stopped_.load(std::memory_order_acquire)) return;
  bool quiet = !work_left_;
  for (const auto& worker : workers) quiet = quiet && worker->prepare_sleep();
  if (quiet)
    signal->set_at(next_timer_);
  else
    signal->set();
}

}  // namespace fairway
