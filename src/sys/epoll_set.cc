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

Status EpollSet::add_edge(int fd) {
  const Status status = add(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  if (status) edges_.fetch_add(1, std::memory_order_relaxed);
  return status;
}

Status EpollSet::watch_edge(int fd, Readiness& readiness) {
  const std::lock_guard lock(mutex_);
  if (const Status status = add_edge(fd); !status) return status;
  watched_[fd] = {&readiness};
  return {};
}

void EpollSet::forget(int fd) {
  const std::lock_guard lock(mutex_);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  const auto found = watched_.find(fd);
  if (found == watched_.end()) return;
  if (!found->second.paused) edges_.fetch_sub(1, std::memory_order_relaxed);
  watched_.erase(found);
}

bool EpollSet::pause(int fd) {
  if (harvested_) return false;
  const std::lock_guard lock(mutex_);
  const auto found = watched_.find(fd);
  if (given_ || found == watched_.end()) return false;
  if (found->second.paused) return true;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr) != 0) return false;
  edges_.fetch_sub(1, std::memory_order_relaxed);
  return found->second.paused = true;
}

bool EpollSet::resume(int fd) {
  const std::lock_guard lock(mutex_);
  const auto found = watched_.find(fd);
  return found != watched_.end() && resume(fd, found->second);
}

// No wake-up is lost: the kernel reports an edge for what is there when the descriptor is added.
bool EpollSet::resume(int fd, Watched& watched) {
  if (watched.paused) watched.paused = !add_edge(fd);
  return !watched.paused;
}

int EpollSet::fd_for_good() {
  const std::lock_guard lock(mutex_);
  given_.store(true, std::memory_order_relaxed);
  for (auto& [fd, watched] : watched_) (void)resume(fd, watched);  // one that is refused its owner still reads
  return epoll_.get();
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
    const auto found = watched_.find(events[static_cast<std::size_t>(i)].data.fd);
    if (found != watched_.end()) found->second.readiness->on_ready(events[static_cast<std::size_t>(i)].events);
  }
  return count;
}

}  // namespace fairway::sys
