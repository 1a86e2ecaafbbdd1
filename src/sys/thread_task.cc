#include "sys/thread_task.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/timerfd.h>
#include <time.h>

#include "sys/error.h"
#include "sys/thread_executor.h"

namespace fairway::sys {
namespace {

// Of a poller: a call costs as much as what a short message takes, and a socket in use is read without it.
constexpr Time kLookEvery = 4 * kMicrosecond;

timespec spec(Time time) {
  return {static_cast<time_t>(time / kSecond), static_cast<long>(time % kSecond)};
}

}  // namespace

Result<std::unique_ptr<Signal>> EventSignal::make(Clock& clock) {
  auto epoll = EpollSet::make(false);
  if (!epoll) return epoll.status();
  Fd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return system_status(errno, "cannot create an eventfd");
  if (Status status = epoll.value()->watch_level(event.get()); !status) return status;
  return std::unique_ptr<Signal>(new EventSignal(clock, std::move(epoll).value(), std::move(event)));
}

void EventSignal::set() {
  if (gate_.set()) ring();
}

void EventSignal::ring() {
  [[maybe_unused]] const int result = ::eventfd_write(event_.get(), 1);
}

void EventSignal::clear_at(Time now) {
  gate_.clear([this] {
    eventfd_t count = 0;
    return ::eventfd_read(event_.get(), &count) == 0 ? count : 0;
  });
  if (alarm_at_.load(std::memory_order_relaxed) <= now) set_at(kNever);
  // Deliver pending channel edges to their channels. epoll forgets an edge once reported, so the next sleeper would
  // miss it: keep the signal set, and the caller looks once more. An edge that is left for later keeps the descriptor
  // readable.
  if (!epoll_->has_edges() || now < after(looked_at_.load(std::memory_order_relaxed), kLookEvery)) return;
  looked_at_.store(now, std::memory_order_relaxed);
  if (epoll_->wait(0) > 0) set();
}

int EventSignal::fd() {
  if (!exported_.exchange(true, std::memory_order_relaxed) && gate_.enter_for_good()) ring();
  return epoll_->fd_for_good();
}

// Timer and `when` both use CLOCK_MONOTONIC. Setting the timer also clears an earlier expiration.
void EventSignal::set_at(Time when) {
  if (alarm_at_.load(std::memory_order_relaxed) == when) return;
  const std::lock_guard lock(alarm_mutex_);
  if (!alarm_) {
    alarm_ = Fd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (!alarm_ || !epoll_->watch_level(alarm_.get())) return set();  // without a timer, wake the caller at once
  }
  itimerspec timer{};
  if (when != kNever) timer.it_value = spec(std::max<Time>(when, 1));
  if (::timerfd_settime(alarm_.get(), TFD_TIMER_ABSTIME, &timer, nullptr) != 0) return set();
  alarm_at_.store(when, std::memory_order_relaxed);
}

// Uses ppoll and not the set's wait(): several threads may sleep here at once, and none of them may consume edges.
void EventSignal::wait(Time deadline) {
  const Time now = clock_.now();
  if (deadline <= now) return;
  const timespec duration = spec(deadline == kNever ? 0 : deadline - now);
  gate_.enter();
  if (!gate_.is_set()) {
    pollfd interest{epoll_->fd(), POLLIN, 0};
    ::ppoll(&interest, 1, deadline == kNever ? nullptr : &duration, nullptr);
  }
  gate_.leave();
}

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
