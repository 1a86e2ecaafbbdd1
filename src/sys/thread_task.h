#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "core/runtime.h"
#include "core/sleep_gate.h"
#include "sys/crowd.h"
#include "sys/epoll_set.h"
#include "sys/fd.h"

namespace fairway::sys {

// What a SystemNetwork needs of the task that its channels wake.
class EpollTask : public Task {
 public:
  explicit EpollTask(std::shared_ptr<EpollSet> epoll) : epoll_(std::move(epoll)) {}
  Status watch(int fd) final { return epoll_->watch_level(fd); }
  void unwatch(int fd) final { epoll_->forget(fd); }
  const std::shared_ptr<EpollSet>& epoll() const { return epoll_; }

 protected:
  const std::shared_ptr<EpollSet> epoll_;
};

// A thread that steps one Stepper: it steps until there is nothing to do, spins for a while, then sleeps in epoll until
// woken or until the time that step() asked for. wake() is for any thread; the rest belongs to the task's thread.
class ThreadTask final : public EpollTask {
 public:
  static Result<std::unique_ptr<Task>> start(const TaskOptions& options, Stepper& stepper, Clock& clock, Crowd& crowd);
  ~ThreadTask() override;  // not from step()

  void wake() override;

 private:
  ThreadTask(const TaskOptions& options, Stepper& stepper, Clock& clock, Crowd& crowd, std::shared_ptr<EpollSet> epoll,
             Fd event);
  void run();
  void sleep();

  const TaskOptions options_;
  Stepper& stepper_;
  Clock& clock_;
  Crowd& crowd_;
  const Fd event_;
  SleepGate gate_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// A task without a thread: its owner calls step() from its own loop. wake() sets the signal, whose descriptor also
// turns readable for watched descriptors and channels.
class CallerTask final : public EpollTask {
 public:
  static Result<std::unique_ptr<Task>> start(const TaskOptions& options);
  void wake() override {
    if (signal_) signal_->set();
  }

 private:
  CallerTask(std::shared_ptr<EpollSet> epoll, Signal* signal) : EpollTask(std::move(epoll)), signal_(signal) {}

  Signal* const signal_;
};

}  // namespace fairway::sys
