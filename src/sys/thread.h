#pragma once

#include <functional>
#include <string>
#include <utility>

#include <pthread.h>

#include "fairway/status.h"

namespace fairway::sys {

// A thread whose stack is long enough, whatever `ulimit -s` says: that limit is the usual length of a thread's, too. A
// resource: joins at its end, unless it was detached.
class Thread {
 public:
  // `body` throws nothing. The error names the thread.
  static Result<Thread> start(const std::string& name, std::function<void()> body);
  Thread() = default;
  Thread(Thread&& other) noexcept : thread_(other.thread_), runs_(std::exchange(other.runs_, false)) {}
  Thread& operator=(Thread&& other) noexcept {
    join();
    thread_ = other.thread_;
    runs_ = std::exchange(other.runs_, false);
    return *this;
  }
  ~Thread() { join(); }

  void join() {
    if (std::exchange(runs_, false)) ::pthread_join(thread_, nullptr);
  }
  void detach() {
    if (std::exchange(runs_, false)) ::pthread_detach(thread_);
  }

 private:
  pthread_t thread_ = {};
  bool runs_ = false;
};

}  // namespace fairway::sys
