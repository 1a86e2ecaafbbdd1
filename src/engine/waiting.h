#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "fairway/engine.h"
#include "fairway/request.h"

#include "core/queues.h"
#include "core/runtime.h"

namespace fairway::engine {

// A queue from workers, which push without a lock, to callers of the API, which share a lock and take it only if there
// is something. Polling an empty queue costs one load.
template <class T>
class PolledQueue {
 public:
  explicit PolledQueue(std::uint32_t capacity) : queue_(capacity) {}

  bool push(T&& value) {  // workers; false when full
    if (!queue_.push(std::move(value))) return false;
    pushed_.fetch_add(1, std::memory_order_seq_cst);
    return true;
  }
  bool pop(T& value) {  // any thread
    return pop_if(value, [] { return true; });
  }
  template <class Allowed>
  bool pop_if(T& value, const Allowed& allowed) {
    if (empty()) return false;
    std::lock_guard lock(consumers_);
    if (!allowed() || !queue_.pop(value)) return false;
    popped_.store(popped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return true;
  }
  // Runs `act` while no thread is between allowed() and its pop.
  template <class Act>
  void while_nobody_pops(const Act& act) {
    std::lock_guard lock(consumers_);
    act();
  }
  // After a notice() this finds what was pushed before it. In the middle of a push it may say no: its notice follows.
  [[nodiscard]] bool empty() const {
    return pushed_.load(std::memory_order_seq_cst) == popped_.load(std::memory_order_relaxed);
  }

 private:
  MpscQueue<T> queue_;
  std::atomic<std::uint32_t> pushed_{0};  // counted after the push
  std::atomic<std::uint32_t> popped_{0};  // written under the lock
  std::mutex consumers_;                  // guards the popping end, among pollers
};

// Completions for poll(), by slot of the transfer. Never full: a slot is in it at most once. With Progress::caller who
// polls makes the step in which most transfers end: their completions go straight to where it wants them, unless an
// earlier one waits in the queue.
class CompletionQueue : public PolledQueue<std::uint32_t> {
 public:
  using PolledQueue::PolledQueue;

  // ---- whose turn it is to step the workers, around its step ----
  void offer(std::span<Completion> room) {
    room_ = room;
    filled_ = 0;
  }
  std::size_t filled() {  // of the room, which is the caller's own again
    room_ = {};
    return filled_;
  }
  // ---- within that step ----
  Completion* place() { return filled_ < room_.size() && empty() ? &room_[filled_++] : nullptr; }  // null: push it

 private:
  std::span<Completion> room_;
  std::size_t filled_ = 0;
};

// What callers step with Progress::caller: an engine's workers.
class CallerStepped : public Stepper {
 public:
  // A step whose completions for poll() may go straight to `room`; `filled`: how many did.
  virtual Time step_for(std::span<Completion> room, std::size_t& filled, Time now) = 0;
  virtual void slept(Time now) = 0;                     // since the last step, on purpose: the caller was not away
  [[nodiscard]] virtual bool stepped_here() const = 0;  // by this thread, which is in a callback
  [[nodiscard]] virtual bool any_left() const = 0;      // something is there that the caller may poll
};

// The right to step the workers, if it is free. Not a mutex: a callback that runs inside a step may ask again.
class SteppersTurn {
 public:
  explicit SteppersTurn(std::atomic<bool>& taken)
      : taken_(taken), mine_(!taken.exchange(true, std::memory_order_acquire)) {}
  ~SteppersTurn() {
    if (mine_) taken_.store(false, std::memory_order_release);
  }
  SteppersTurn(const SteppersTurn&) = delete;
  SteppersTurn& operator=(const SteppersTurn&) = delete;
  explicit operator bool() const { return mine_; }

 private:
  std::atomic<bool>& taken_;
  const bool mine_;
};

// A thread that sleeps, or looks for the last time before it does.
class Asleep {
 public:
  explicit Asleep(std::atomic<std::uint32_t>& count) : count_(count) { count_.fetch_add(1, std::memory_order_seq_cst); }
  ~Asleep() { count_.fetch_sub(1, std::memory_order_relaxed); }
  Asleep(const Asleep&) = delete;
  Asleep& operator=(const Asleep&) = delete;

 private:
  std::atomic<std::uint32_t>& count_;
};

// How the callers of one engine wait, and how they learn that it closed. With worker threads callers sleep on a word.
// With Progress::caller one of them steps the workers and sleeps on the engine's descriptor; the others sleep on their
// word and check now and then whether they can take over. A thread that polls without a pause takes the stepping from
// one that waits; otherwise each message would cross two threads. Any thread.
class Waiting {
 public:
  // Everything given outlives it; nothing is stepped before open().
  Waiting(Runtime& runtime, Progress progress, CallerStepped& workers)
      : runtime_(runtime), by_caller_(progress == Progress::caller), workers_(workers) {}
  Status open();

  void notice();                                 // something that somebody may wait for has changed
  void wake(std::atomic<std::uint32_t>& word) {  // changed outside the workers: who waits for it
    runtime_.executor.wake_all(word);
    signal_->set();
  }
  // A completion for poll(): who waits for one does so on the descriptor. All of it is sequentially consistent, as the
  // push before: either this sees that the descriptor was given out, or who got it sees what was pushed.
  void completed() {
    if (fd_given_.load(std::memory_order_seq_cst)) signal_->set();
  }
  // Sleeps while `word` holds `seen`, until somebody wakes `word`, or the deadline. May return early.
  void wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time deadline);
  void wait_for_notice(Time deadline) { wait(notices_, notices_.load(std::memory_order_acquire), deadline); }
  // Waits until `done()`, checked again at every notice. False: the deadline passed.
  template <class Done>
  bool wait_until(Time deadline, Done done) {
    for (;;) {
      const std::uint32_t seen = notices_.load(std::memory_order_acquire);
      if (done()) return true;
      if (runtime_.clock.now() >= deadline) {
        found_nothing();
        return false;
      }
      wait(notices_, seen, deadline);
    }
  }
  // Waits until `any()`. timed_out says `late`; closed: nothing comes any more.
  template <class Any>
  Status wait_for(Timeout timeout, const char* late, Any any) {
    const auto any_or_last = [&] {
      const bool last = nothing_comes();  // before the last look
      return any() || last;
    };
    if (!wait_until(deadline(timeout), any_or_last)) return {ErrorCode::timed_out, late};
    return any() ? Status() : Status(ErrorCode::closed, "the engine is closed");
  }
  [[nodiscard]] Time now() const { return runtime_.clock.now(); }
  [[nodiscard]] Time deadline(Timeout timeout) const;  // kNever: forever

  [[nodiscard]] bool by_caller() const { return by_caller_; }  // Progress::caller

  // ---- polling ----
  void drive() {  // Progress::caller: one step of the workers, unless another thread steps them
    if (by_caller_) (void)step_once({});
  }
  // The same before a poll. `any`: there is something to take already: then only one poll in a few makes a step, so
  // that the workers go on as well. How many completions that step put into `room`.
  std::size_t drive_before_poll(bool any, std::span<Completion> room = {}) {
    const std::uint32_t calls = undriven_.load(std::memory_order_relaxed);
    const bool steps = !any || calls >= kPollsToAStep;
    undriven_.store(steps ? 0 : calls + 1, std::memory_order_relaxed);
    return steps && by_caller_ ? step_once(room) : 0;
  }
  // Progress::caller: runs `act` in the workers' place, unless another thread steps them, or too many calls went so
  // without a step. False: it did not run.
  template <class Act>
  bool in_their_place(const Act& act) {
    const SteppersTurn turn(stepping_);
    const std::uint32_t calls = unstepped_.load(std::memory_order_relaxed);
    if (!turn || calls >= kMostUnstepped || stopped_.load(std::memory_order_acquire)) return false;
    unstepped_.store(calls + 1, std::memory_order_relaxed);
    act();
    return true;
  }
  // For a call that may step the workers but need not: a step, if so many calls went without.
  void drive_if_due() {
    if (by_caller_ && unstepped_.load(std::memory_order_relaxed) >= kMostUnstepped / 2) (void)step_once({});
  }
  // A call had no time left to wait. One in so many makes a step, so that a caller of nothing else gets on.
  void found_nothing() {
    if (!by_caller_) return;
    unstepped_.store(unstepped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    drive_if_due();
  }
  void settle() {  // after a poll that returned nothing: clears the descriptor unless something is left
    if (fd_given_.load(std::memory_order_relaxed))
      settle_fd();
    else
      runtime_.executor.polled_in_vain();
  }
  [[nodiscard]] int fd();
  [[nodiscard]] Signal& signal() { return *signal_; }

  // ---- the end ----
  [[nodiscard]] bool close() { return !closed_.exchange(true, std::memory_order_acq_rel); }  // false: it was
  [[nodiscard]] bool closed() const { return closed_.load(std::memory_order_acquire); }
  void stop();   // no caller steps the workers any more, nor is in a step
  void ended();  // what close() began is over: nothing of the engine is at work any more
  [[nodiscard]] bool ended_already() const { return ended_.load(std::memory_order_acquire) != 0; }
  // Then nothing comes any more that a caller could wait for. A callback that close() waits for does not wait for it.
  [[nodiscard]] bool nothing_comes() const { return ended_already() || (closed() && workers_.stepped_here()); }
  // For those who come meanwhile. False: the deadline passed before that.
  bool wait_for_end(Time deadline);

 private:
  static constexpr std::uint32_t kMostUnstepped = 64;
  static constexpr std::uint32_t kPollsToAStep = 16;  // of those that find something

  void settle_fd();
  std::size_t step_once(std::span<Completion> room);  // how many completions it put there
  // False: another thread steps the workers.
  bool step_until(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time until);
  [[nodiscard]] bool is_polled(Time now) const;  // without a pause, so that others need not step

  Runtime& runtime_;
  const bool by_caller_;
  CallerStepped& workers_;
  std::unique_ptr<Signal> signal_;  // from open() on
  std::atomic<std::uint32_t> notices_{0};
  std::atomic<std::uint32_t> sleepers_{0};  // Progress::caller
  std::atomic<bool> closed_{false};
  std::atomic<bool> stopped_{false};
  std::atomic<std::uint32_t> ended_{0};
  std::atomic<bool> fd_given_{false};  // somebody may sleep where we do not see it

  std::atomic<bool> stepping_{false};  // a thread steps the workers
  bool work_left_ = false;             // by its last step; belongs to that thread, as the next two
  Time next_timer_ = kNever;
  Clock::Reading read_;  // by step_once()
  std::atomic<std::uint32_t> unstepped_{
      0};                                   // calls without a step since that one; about so many where threads share it
  std::atomic<std::uint32_t> undriven_{0};  // polls without a step, in a row
  std::atomic<bool> sleeps_in_turn_{false};
  std::atomic<Time> polled_{0};          // the last step_once()
  std::atomic<std::uint32_t> polls_{0};  // of `poller_`, one after the other without a pause
  std::atomic<std::thread::id> poller_{};
};

}  // namespace fairway::engine
