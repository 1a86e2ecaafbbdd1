#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "core/gates.h"
#include "core/runtime.h"
#include "sys/epoll_set.h"
#include "sys/fd.h"
#include "sys/thread.h"
#include "sys/thread_executor.h"

// An executor's tasks, on a thread or stepped by the caller, and the signal that wakes the latter.
namespace fairway::sys {

// An eventfd inside an epoll set. The user polls the set's descriptor, which also becomes readable for what a
// caller-stepped task watches. The eventfd is written only while someone may be sleeping on it. Any thread.
class EventSignal final : public Signal {
 public:
  static Result<std::unique_ptr<Signal>> make(Clock& clock);

  void set() override;
  void clear() override { clear_at(clock_.now()); }
  void clear_at(Time now) override;
  void wait(Time deadline) override;
  int fd() override;
  void set_at(Time when) override;

  const std::shared_ptr<EpollSet>& epoll() const { return epoll_; }

 private:
  EventSignal(Clock& clock, std::shared_ptr<EpollSet> epoll, Fd event)
      : clock_(clock), epoll_(std::move(epoll)), event_(std::move(event)) {}

  void ring();

  Clock& clock_;
  const std::shared_ptr<EpollSet> epoll_;
  const Fd event_;
  SignalGate gate_;  // sleepers: threads in wait(), and one that stands for all users of fd()
  std::atomic<bool> exported_{false};
  std::mutex alarm_mutex_;              // guards the next two
  Fd alarm_;                            // a timerfd, created by the first set_at()
  std::atomic<Time> alarm_at_{kNever};  // written under the mutex
  std::atomic<Time> looked_at_{0};      // for edges
};

// What TcpNetwork needs from the task that its channels wake: the epoll set.
class EpollTask : public Task {
 public:
  explicit EpollTask(std::shared_ptr<EpollSet> epoll) : epoll_(std::move(epoll)) {}
  Status watch(int fd) final { return epoll_->watch_level(fd); }
  void unwatch(int fd) final { epoll_->forget(fd); }
  const std::shared_ptr<EpollSet>& epoll() const { return epoll_; }

 protected:
  const std::shared_ptr<EpollSet> epoll_;
};

// A thread for one Stepper. It steps until there is nothing to do, spins for a while, then sleeps in epoll until woken
// or until the time that step() returned. Any thread may call wake(); the rest belongs to the task's thread.
class ThreadTask final : public EpollTask {
 public:
  static Result<std::unique_ptr<Task>> start(const TaskOptions& options, Stepper& stepper, Clock& clock,
                                             Oversubscription& oversubscription);
  ~ThreadTask() override { end(); }

  void wake() override;
  void end() override;

 private:
  ThreadTask(const TaskOptions& options, Stepper& stepper, Clock& clock, Oversubscription& oversubscription,
             std::shared_ptr<EpollSet> epoll, Fd event);
  void run();
  void sleep();

  const TaskOptions options_;
  Stepper& stepper_;
  Clock& clock_;
  Oversubscription& oversubscription_;
  const Fd event_;
  SleepGate gate_;
  std::atomic<bool> stop_{false};
  Thread thread_;
};

// A task without a thread: the owner calls step() from its own loop. wake() sets the signal, whose descriptor also
// becomes readable for watched descriptors and channels.
class CallerTask final : public EpollTask {
 public:
  static Result<std::unique_ptr<Task>> start(const TaskOptions& options);
  void wake() override {
    if (signal_) signal_->set();
  }
  void end() override {}

 private:
  CallerTask(std::shared_ptr<EpollSet> epoll, Signal* signal) : EpollTask(std::move(epoll)), signal_(signal) {}

  Signal* const signal_;
};

}  // namespace fairway::sys
