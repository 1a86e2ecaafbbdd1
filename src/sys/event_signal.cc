#include "sys/event_signal.h"

#include <cerrno>

#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>

#include "sys/error.h"

namespace fairway::sys {

Result<std::unique_ptr<Signal>> EventSignal::make(Clock& clock) {
  auto epoll = EpollSet::make(false);
  if (!epoll) return epoll.status();
  Fd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return system_status(errno, "cannot create an eventfd");
  if (Status status = epoll.value()->watch_level(event.get()); !status) return status;
  return std::unique_ptr<Signal>(new EventSignal(clock, std::move(epoll).value(), std::move(event)));
}

void EventSignal::set() {
  if (set_.exchange(true, std::memory_order_acq_rel)) return;
  [[maybe_unused]] const int result = ::eventfd_write(event_.get(), 1);
}

// Emptied before the flag falls: a set() in between leaves the flag to this exchange, which synchronizes with it, so
// the caller's look after clear() finds what that set() announced.
void EventSignal::clear() {
  eventfd_t count;
  [[maybe_unused]] const int result = ::eventfd_read(event_.get(), &count);
  set_.exchange(false, std::memory_order_acq_rel);
  epoll_->wait(0);
}

// ppoll, not the set's own wait(): several threads may sleep here at once, and none of them harvests the set.
void EventSignal::wait(Time deadline) {
  const Time now = clock_.now();
  if (deadline <= now) return;
  timespec duration{};
  if (deadline != kNever) {
    duration.tv_sec = static_cast<time_t>((deadline - now) / kSecond);
    duration.tv_nsec = static_cast<long>((deadline - now) % kSecond);
  }
  pollfd interest{epoll_->fd(), POLLIN, 0};
  ::ppoll(&interest, 1, deadline == kNever ? nullptr : &duration, nullptr);
}

}  // namespace fairway::sys
