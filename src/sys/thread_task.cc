#include "sys/thread_task.h"

#include <cerrno>
#include <utility>

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include "sys/error.h"
#include "sys/event_signal.h"
#include "sys/futex_table.h"

namespace fairway::sys {

// Why no wake-up is lost. A waker publishes its work (or nothing, for a bare wake()), then reads the gate after a full
// fence. The thread announces its sleep to the gate with a full fence, then steps once more, then sleeps in epoll.
//   - The waker reads "awake": its fence came before the thread's fence. So the step after the announcement sees the
//     work and begins after the wake().
//   - The waker reads "asleep": it claims the announcement and writes the eventfd. The eventfd is watched
//     edge-triggered, and epoll keeps an edge that comes before epoll_wait. Exactly one waker per announcement writes.
// So a wake() of an awake thread costs a fence and a load, and no system call.

Result<std::unique_ptr<Task>> ThreadTask::start(const TaskOptions& options, Stepper& stepper, Clock& clock,
                                                Oversubscription& oversubscription) {
  auto epoll = EpollSet::make(true);
  if (!epoll) return epoll.status();
  Fd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return system_status(errno, "cannot create an eventfd");
  epoll_event interest{};
  interest.events = EPOLLIN | EPOLLET;  // never read: each write is an edge, and 64 bits do not overflow
  interest.data.fd = event.get();
  if (::epoll_ctl(epoll.value()->fd(), EPOLL_CTL_ADD, event.get(), &interest) != 0)
    return system_status(errno, "cannot watch an eventfd");

  std::unique_ptr<ThreadTask> task(
      new ThreadTask(options, stepper, clock, oversubscription, std::move(epoll).value(), std::move(event)));
  // Signal handlers must run on the application's threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  auto thread = Thread::start(options.name, [raw = task.get()] { raw->run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!thread) return thread.status();
  task->thread_ = std::move(*thread);
  return std::unique_ptr<Task>(std::move(task));
}

ThreadTask::ThreadTask(const TaskOptions& options, Stepper& stepper, Clock& clock, Oversubscription& oversubscription,
                       std::shared_ptr<EpollSet> epoll, Fd event)
    : EpollTask(std::move(epoll)),
      options_(options),
      stepper_(stepper),
      clock_(clock),
      oversubscription_(oversubscription),
      event_(std::move(event)) {}

void ThreadTask::end() {
  stop_.store(true, std::memory_order_release);
  wake();
  thread_.join();
}

void ThreadTask::wake() {
  if (!gate_.claim_wake()) return;
  [[maybe_unused]] const int result = ::eventfd_write(event_.get(), 1);
}

void ThreadTask::run() {
  pthread_setname_np(pthread_self(), options_.name.substr(0, 15).c_str());
  // 1 us instead of the default 50: timers are few and must be precise.
  ::prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
  bool idle = false;
  Time spin_until = 0;
  while (!stop_.load(std::memory_order_acquire)) {
    const Time now = clock_.now();
    if (stepper_.step(now) <= now) {
      idle = false;
      if (epoll_->has_edges()) epoll_->wait(0);
      continue;
    }
    if (!idle) {
      idle = true;
      spin_until = options_.spin_ns == 0 || oversubscription_.detected(now) ? 0 : after(clock_.now(), options_.spin_ns);
    }
    if (clock_.now() < spin_until) {
      if (epoll_->has_edges() && epoll_->wait(0) > 0) idle = false;
      relax();
      continue;
    }
    sleep();
    idle = false;
  }
}

void ThreadTask::sleep() {
  gate_.announce();
  const Time now = clock_.now();
  const Time next = stepper_.step(now);
  if (next > now && stepper_.prepare_sleep() && !stop_.load(std::memory_order_acquire)) {
    if (next == kNever) {
      epoll_->wait(kNever);
    } else if (const Time later = clock_.now(); next > later) {
      epoll_->wait(next - later);
    }
  }
  gate_.awake();
}

Result<std::unique_ptr<Task>> CallerTask::start(const TaskOptions& options) {
  if (!options.signal) {
    auto epoll = EpollSet::make(false);
    if (!epoll) return epoll.status();
    return std::unique_ptr<Task>(new CallerTask(std::move(epoll).value(), nullptr));
  }
  auto* signal = dynamic_cast<EventSignal*>(options.signal);
  if (!signal)
    return Status(ErrorCode::invalid_argument, "TaskOptions::signal must come from this executor's make_signal()");
  return std::unique_ptr<Task>(new CallerTask(signal->epoll(), signal));
}

}  // namespace fairway::sys
