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

// The one who sets announces first and then looks for sleepers; a sleeper counts itself first and then looks whether it
// is set. Both sequentially consistent, so one sees the other.
void EventSignal::set() {
  if (set_.exchange(true, std::memory_order_seq_cst)) return;
  if (watchers_.load(std::memory_order_seq_cst) != 0) raise();
}

// Written before the flag rises: a clear() that comes in between leaves both to the next one.
void EventSignal::raise() {
  [[maybe_unused]] const int result = ::eventfd_write(event_.get(), 1);
  raised_.store(true, std::memory_order_release);
}

// Emptied before the flag falls: a set() in between leaves the flag to this exchange, which synchronizes with it, so
// the caller's look after clear() finds what that set() announced.
void EventSignal::clear() {
  if (raised_.load(std::memory_order_relaxed) && raised_.exchange(false, std::memory_order_acq_rel)) {
    eventfd_t count;
    [[maybe_unused]] const int result = ::eventfd_read(event_.get(), &count);
  }
  if (set_.load(std::memory_order_relaxed)) set_.exchange(false, std::memory_order_seq_cst);
  // What a channel announced is told to the channel here, and the descriptor forgets it: whoever goes to sleep next
  // would miss it, so it stays set and the caller looks once more.
  if (epoll_->has_edges() && epoll_->wait(0) > 0) set();
}

int EventSignal::fd() {
  if (!exported_.exchange(true, std::memory_order_seq_cst)) {
    watchers_.fetch_add(1, std::memory_order_seq_cst);
    if (set_.load(std::memory_order_seq_cst)) raise();
  }
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
  watchers_.fetch_add(1, std::memory_order_seq_cst);
  if (!set_.load(std::memory_order_seq_cst)) {
    pollfd interest{epoll_->fd(), POLLIN, 0};
    ::ppoll(&interest, 1, deadline == kNever ? nullptr : &duration, nullptr);
  }
  watchers_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace fairway::sys
