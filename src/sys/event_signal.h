#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "core/runtime.h"
#include "core/signal_gate.h"
#include "sys/epoll_set.h"
#include "sys/fd.h"

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

}  // namespace fairway::sys
