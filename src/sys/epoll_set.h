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

// Receives the epoll events of a descriptor, on the thread that calls EpollSet::wait.
class Readiness {
 public:
  virtual ~Readiness() = default;
  virtual void on_ready(std::uint32_t events) = 0;  // called with the set's lock held: set flags only, call nothing
};

// The descriptors that wake one task. The task and the objects it watches share it, so that a channel may outlive its
// task. Only the task's thread calls wait(); for a caller-stepped task, any thread that polls. Any thread may call the
// rest.
class EpollSet {
 public:
  static Result<std::shared_ptr<EpollSet>> make(bool harvested);

  Status watch_level(int fd);                       // level-triggered reads; whoever made it readable drains it
  Status watch_edge(int fd, Readiness& readiness);  // edge-triggered, both directions
  void forget(int fd);
  // Takes a descriptor of watch_edge() out of the kernel's set: a socket in there costs time for each packet. False: it
  // stays, because its owner or a sleeper that nobody sees depends on the set.
  bool pause(int fd);
  // Puts it back, and reports what came meanwhile. False: the system refused.
  bool resume(int fd);
  // The set's descriptor for those who sleep without a word to anybody: from now on nothing is paused.
  int fd_for_good();

  // Sleeps until a descriptor is ready or `duration` has passed (kNever: no limit), and notifies each Readiness.
  // Returns the number of ready descriptors. Precise to a nanosecond where the kernel has epoll_pwait2 (5.11),
  // otherwise rounded up to a millisecond.
  int wait(Time duration);

  int fd() const { return epoll_.get(); }  // to sleep on once nothing is paused
  // False when nobody is sure to call wait() before each step (the caller's own loop steps the task). Then readiness
  // flags are only hints and may be missing.
  bool harvested() const { return harvested_; }
  bool is_given() const { return given_.load(std::memory_order_relaxed); }  // by fd_for_good()
  bool has_edges() const { return edges_.load(std::memory_order_relaxed) != 0; }

 private:
  EpollSet(Fd epoll, bool harvested) : epoll_(std::move(epoll)), harvested_(harvested) {}
  struct Watched {
    Readiness* readiness = nullptr;
    bool paused = false;
  };
  Status add(int fd, std::uint32_t events);
  Status add_edge(int fd);
  bool resume(int fd, Watched& watched);

  const Fd epoll_;
  const bool harvested_;
  std::mutex mutex_;  // guards the next, and each Readiness during on_ready()
  std::unordered_map<int, Watched> watched_;
  std::atomic<bool> given_{false};     // written under the mutex
  std::atomic<std::size_t> edges_{0};  // in the kernel's set; written under the mutex
  std::atomic<bool> coarse_{false};    // the kernel lacks epoll_pwait2
};

}  // namespace fairway::sys
