#include "engine/state.h"

// How callers wait. With worker threads they sleep on a word; with Progress::caller one of them steps the workers and
// sleeps on the engine's descriptor, the others sleep on their word and look now and then whether the stepping has
// become free.
namespace fairway {
namespace {

constexpr Time kTakeOver = kMillisecond;

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
  const Turn turn(stepping);
  if (!turn || stopped_.load(std::memory_order_acquire)) return;
  const Time now = runtime.clock.now();
  Time next = kNever;
  for (const auto& worker : workers) next = std::min(next, worker->step(now));
  work_left_ = next <= now;
}

void Engine::State::wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time until) {
  if (options.progress == Progress::threads || stopped_.load(std::memory_order_acquire))
    return runtime.executor.wait(word, seen, until);
  const Turn turn(stepping);
  if (!turn) return runtime.executor.wait(word, seen, std::min(until, after(runtime.clock.now(), kTakeOver)));
  while (word.load(std::memory_order_acquire) == seen) {
    signal->clear();
    const Time now = runtime.clock.now();
    Time next = kNever;
    for (const auto& worker : workers) next = std::min(next, worker->step(now));
    if (word.load(std::memory_order_acquire) != seen || now >= until) return signal->set();
    if (next <= now) continue;
    bool quiet = true;
    for (const auto& worker : workers) quiet = worker->prepare_sleep() && quiet;
    if (quiet) signal->wait(std::min(until, next));
  }
  signal->set();
}

void Engine::State::settle_signal() {
  signal->clear();
  if (!completions.empty() || !notifications.empty() || !peer_events.empty()) return signal->set();
  if (options.progress != Progress::caller || !fd_given.load(std::memory_order_relaxed)) return;
  // The caller may sleep on the descriptor now: transports are told, as before a sleep in wait().
  const Turn turn(stepping);
  if (!turn || stopped_.load(std::memory_order_acquire)) return;
  bool quiet = !work_left_;
  for (const auto& worker : workers) quiet = quiet && worker->prepare_sleep();
  if (!quiet) signal->set();
}

}  // namespace fairway
