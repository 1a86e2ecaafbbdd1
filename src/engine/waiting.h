#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "fairway/engine.h"

#include "core/runtime.h"

namespace fairway::engine {

// What callers step with Progress::caller: an engine's workers.
class CallerStepped : public Stepper {
 public:
  virtual void slept(Time now) = 0;  // since the last step, on purpose: the caller was not away
};

// How the callers of one engine wait, and where its end is known. With worker threads callers sleep on a word. With
// Progress::caller one of them steps the workers and sleeps on the engine's descriptor; the others sleep on their word
// and look now and then whether the stepping has become free. A thread that polls without a pause takes the stepping
// from one that waits: it would find the turn taken, and each message would cross two threads. Any thread.
class Waiting {
 public:
  // `any_left`: whether something is left to poll. Everything given outlives it; nothing is stepped before open().
  Waiting(Runtime& runtime, Progress progress, CallerStepped& workers, std::function<bool()> any_left);
  Status open();

  void notice();  // something that somebody may wait for has changed
  // Sleeps while `word` holds `seen`, until somebody wakes `word`, or the deadline. May return early.
  void wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time deadline);
  void wait_for_notice(Time deadline) { wait(notices_, notices_.load(std::memory_order_acquire), deadline); }
  // Waits until `done()`, checked again at every notice. False: the deadline passed.
  template <class Done>
  bool wait_until(Time deadline, Done done) {
    for (;;) {
      const std::uint32_t seen = notices_.load(std::memory_order_acquire);
      if (done()) return true;
      if (runtime_.clock.now() >= deadline) return false;
      wait(notices_, seen, deadline);
    }
  }
  // Waits until `any()`. timed_out says `late`; closed: nothing comes any more.
  template <class Any>
  Status wait_for(Timeout timeout, const char* late, Any any) {
    if (!wait_until(deadline(timeout), [&] { return any() || closed(); })) return {ErrorCode::timed_out, late};
    return any() ? Status() : Status(ErrorCode::closed, "the engine is closed");
  }
  [[nodiscard]] Time now() const { return runtime_.clock.now(); }
  [[nodiscard]] Time deadline(Timeout timeout) const;  // kNever: forever

  // ---- polling ----
  void drive() {  // Progress::caller: one step of the workers, unless another thread steps them
    if (by_caller_) step_once();
  }
  void settle();  // after a poll that returned nothing: clears the descriptor unless something is left
  [[nodiscard]] int fd();
  [[nodiscard]] Signal& signal() { return *signal_; }

  // ---- the end ----
  [[nodiscard]] bool close() { return !closed_.exchange(true, std::memory_order_acq_rel); }  // false: it was
  [[nodiscard]] bool closed() const { return closed_.load(std::memory_order_acquire); }
  void stop();  // no caller steps the workers any more

 private:
  void step_once();
  // False: another thread steps the workers.
  bool step_until(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time until);
  [[nodiscard]] bool is_polled(Time now) const;  // without a pause, so that others need not step

  Runtime& runtime_;
  const bool by_caller_;
  CallerStepped& workers_;
  const std::function<bool()> any_left_;
  std::unique_ptr<Signal> signal_;  // from open() on
  std::atomic<std::uint32_t> notices_{0};
  std::atomic<bool> closed_{false};
  std::atomic<bool> stopped_{false};
  std::atomic<bool> fd_given_{false};  // somebody may sleep where we do not see it

  std::atomic<bool> stepping_{false};  // a thread steps the workers
  bool work_left_ = false;             // by its last step; belongs to that thread, as the next one
  Time next_timer_ = kNever;
  std::atomic<bool> sleeps_in_turn_{false};
  std::atomic<Time> polled_{0};          // the last step_once()
  std::atomic<std::uint32_t> polls_{0};  // of `poller_`, one after the other without a pause
  std::atomic<std::thread::id> poller_{};
};

}  // namespace fairway::engine
