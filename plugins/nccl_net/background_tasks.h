#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace fairway::nccl {

// Runs tasks that may block, because NCCL's calls must not: connecting, and asking a peer for a region. Any thread may
// add tasks. A few worker threads run them, started on demand. The destructor drops tasks that have not started.
class BackgroundTasks {
 public:
  ~BackgroundTasks() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      waiting_.clear();
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void add(std::function<void()> job) {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    waiting_.push_back(std::move(job));
    if (idle_ < waiting_.size() && threads_.size() < kMost) threads_.emplace_back([this] { run(); });
    changed_.notify_one();
  }

 private:
  static constexpr std::size_t kMost = 4;
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      --idle_;
      if (waiting_.empty()) return;
      const auto job = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      job();
      lock.lock();
    }
  }

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  std::vector<std::thread> threads_;
  std::size_t idle_ = 0;
  bool stopping_ = false;
};

}  // namespace fairway::nccl
