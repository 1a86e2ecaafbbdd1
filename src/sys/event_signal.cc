#include "sys/event_signal.h"

#include <cerrno>

#include <sys/eventfd.h>

#include "sys/error.h"

namespace fairway::sys {

Result<std::unique_ptr<Signal>> EventSignal::make() {
  auto epoll = EpollSet::make(false);
  if (!epoll) return epoll.status();
  Fd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return system_status(errno, "cannot create an eventfd");
  if (Status status = epoll.value()->watch_level(event.get()); !status) return status;
  return std::unique_ptr<Signal>(new EventSignal(std::move(epoll).value(), std::move(event)));
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

}  // namespace fairway::sys
