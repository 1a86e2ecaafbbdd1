#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "fairway/status.h"

#include "core/time.h"
#include "sys/fd.h"

namespace fairway::sys {

// Told what epoll saw of its descriptor, on the thread that called EpollSet::wait.
class Readiness {
 public:
  virtual ~Readiness() = default;
  virtual void on_ready(std::uint32_t events) = 0;  // called with the set's lock held: sets flags, calls nothing
};

// The descriptors that wake one task: shared by the task and by what it watches, so that a channel may outlive its
// task. wait() is the task's thread's, and where callers step any that polls; everything else is for any thread.
class EpollSet {
 public:
  static Result<std::shared_ptr<EpollSet>> make(bool harvested);

  Status watch_level(int fd);                       // readable; the one who made it readable drains it
  Status watch_edge(int fd, Readiness& readiness);  // both directions
  void forget(int fd);

  // Sleeps until a descriptor is ready or `duration` has passed (kNever: no limit), and tells each Readiness. Returns
  // how many were ready. Exact to a nanosecond where the kernel has epoll_pwait2 (5.11); else to the next millisecond.
  int wait(Time duration);

  int fd() const { return epoll_.get(); }
  // False when nobody is sure to call wait() before each step (the caller's own loop steps the task): flags are then
  // hints that may be missing.
  bool harvested() const { return harvested_; }
  bool has_edges() const { return edges_.load(std::memory_order_relaxed) != 0; }

 private:
  EpollSet(Fd epoll, bool harvested) : epoll_(std::move(epoll)), harvested_(harvested) {}
  Status add(int fd, std::uint32_t events);

  const Fd epoll_;
  const bool harvested_;
  std::mutex mutex_;  // guards readiness_, and what they point at while they are told
  std::unordered_map<int, Readiness*> readiness_;
  std::atomic<std::size_t> edges_{0};
  std::atomic<bool> coarse_{false};  // the kernel lacks epoll_pwait2
};

}  // namespace fairway::sys
