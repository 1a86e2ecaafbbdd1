#include "sys/epoll_set.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>

#include <sys/epoll.h>

#include "sys/error.h"

namespace fairway::sys {

Result<std::shared_ptr<EpollSet>> EpollSet::make(bool harvested) {
  Fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return system_status(errno, "cannot create an epoll descriptor");
  return std::shared_ptr<EpollSet>(new EpollSet(std::move(epoll), harvested));
}

Status EpollSet::add(int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    return system_status(errno, "cannot watch a descriptor");
  return {};
}

Status EpollSet::watch_level(int fd) {
  return add(fd, EPOLLIN);
}

Status EpollSet::watch_edge(int fd, Readiness& readiness) {
  const std::lock_guard lock(mutex_);
  if (const Status status = add(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET); !status) return status;
  readiness_[fd] = &readiness;
  edges_.store(readiness_.size(), std::memory_order_relaxed);
  return {};
}

void EpollSet::forget(int fd) {
  const std::lock_guard lock(mutex_);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  readiness_.erase(fd);
  edges_.store(readiness_.size(), std::memory_order_relaxed);
}

int EpollSet::wait(Time duration) {
  std::array<epoll_event, 64> events;
  int count = -1;
  if (!coarse_) {
    timespec limit{};
    limit.tv_sec = static_cast<time_t>(duration / kSecond);
    limit.tv_nsec = static_cast<long>(duration % kSecond);
    count = ::epoll_pwait2(epoll_.get(), events.data(), static_cast<int>(events.size()),
                           duration == kNever ? nullptr : &limit, nullptr);
    // An old kernel, or a seccomp filter that does not know the call.
    coarse_ = count < 0 && (errno == ENOSYS || errno == EPERM);
  }
  if (coarse_) {
    const Time ms = duration / kMillisecond + (duration % kMillisecond != 0 ? 1 : 0);
    const int limit = duration == kNever ? -1 : static_cast<int>(std::min<Time>(ms, std::numeric_limits<int>::max()));
    count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), limit);
  }
  if (count <= 0) return 0;
  // Look it up by number under the lock: a forgotten descriptor has no Readiness any more. A new descriptor with the
  // same number gets a spurious hint, which costs one call that finds nothing.
  const std::lock_guard lock(mutex_);
  for (int i = 0; i < count; ++i) {
    const auto found = readiness_.find(events[static_cast<std::size_t>(i)].data.fd);
    if (found != readiness_.end()) found->second->on_ready(events[static_cast<std::size_t>(i)].events);
  }
  return count;
}

}  // namespace fairway::sys
