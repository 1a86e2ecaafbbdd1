#include "sys/event_signal.h"

#include <algorithm>
#include <cerrno>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>

#include "sys/error.h"

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

}  // namespace fairway::sys
