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
  if (gate_.set()) ring();
}

void EventSignal::ring() {
  [[maybe_unused]] const int result = ::eventfd_write(event_.get(), 1);
}

void EventSignal::clear() {
  gate_.clear([this] {
    eventfd_t count = 0;
    return ::eventfd_read(event_.get(), &count) == 0 ? count : 0;
  });
  // What a channel announced is told to the channel here, and the descriptor forgets it: whoever goes to sleep next
  // would miss it, so it stays set and the caller looks once more.
  if (epoll_->has_edges() && epoll_->wait(0) > 0) set();
}

int EventSignal::fd() {
  if (!exported_.exchange(true, std::memory_order_relaxed) && gate_.enter_for_good()) ring();
  return epoll_->fd();
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
  gate_.enter();
  if (!gate_.is_set()) {
    pollfd interest{epoll_->fd(), POLLIN, 0};
    ::ppoll(&interest, 1, deadline == kNever ? nullptr : &duration, nullptr);
  }
  gate_.leave();
}

}  // namespace fairway::sys
