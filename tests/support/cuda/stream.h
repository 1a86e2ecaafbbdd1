#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

// The stand-in driver's streams: work in order, on one thread each, so that code which does not wait fails.
namespace standin {

class Stream {
 public:
  explicit Stream(int device) : device_(device), thread_([this] { run(); }) {}
  ~Stream() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  int device() const { return device_; }
  void post(std::function<bool()> work) {  // returns false: it failed, and so does all later work
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
    }
    changed_.notify_all();
  }
  enum class State { idle, busy, failed };
  State state() {
    const std::lock_guard lock(mutex_);
    return failed_ ? State::failed : queue_.empty() && !running_ ? State::idle : State::busy;
  }
  bool synchronize() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return (queue_.empty() && !running_) || failed_; });
    return !failed_;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !queue_.empty() || ends_; });
      if (queue_.empty()) return;
      const auto work = std::move(queue_.front());
      queue_.pop_front();
      if (failed_) continue;
      running_ = true;
      lock.unlock();
      const bool ok = work();
      lock.lock();
      running_ = false;
      failed_ |= !ok;
      changed_.notify_all();
    }
  }

  const int device_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<std::function<bool()>> queue_;
  bool running_ = false, failed_ = false, ends_ = false;
  std::thread thread_;
};

}  // namespace standin
