#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace fairway::nccl {

// Runs tasks that may block, because NCCL's calls must not: connecting, and asking a peer for a region. Tasks of one
// key (a peer, an address) run in order, and wait for no task of another key: there are as many threads as keys ever
// had tasks that ran at once, and they stay. Where the system starts no more threads, tasks wait for one of those there
// are. Any thread may add tasks. The destructor drops tasks that have not started.
class BackgroundTasks {
 public:
  using Key = std::size_t;

  ~BackgroundTasks() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      ready_.clear();
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void add(Key key, std::function<void()> job) {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    const auto [at, first] = tasks_.try_emplace(key);
    at->second.push_back(std::move(job));
    if (!first) return;  // the thread that runs the one before goes on with it
    ready_.push_back(key);
    if (idle_ < ready_.size()) start_thread();
    changed_.notify_one();
  }

 private:
  void start_thread() {
    try {
      threads_.emplace_back([this] { run(); });
    } catch (const std::system_error&) {
      if (threads_.empty()) throw;
    }
  }
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      changed_.wait(lock, [this] { return stopping_ || !ready_.empty(); });
      --idle_;
      if (stopping_) return;
      const Key key = ready_.front();
      ready_.pop_front();
      auto& tasks = tasks_[key];
      auto job = std::exchange(tasks.front(), nullptr);
      lock.unlock();
      job();
      job = nullptr;  // what it holds may take the lock when it is destroyed
      lock.lock();
      tasks.pop_front();
      if (tasks.empty())
        tasks_.erase(key);
      else
        ready_.push_back(key);  // behind the others'
    }
  }

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::map<Key, std::deque<std::function<void()>>> tasks_;  // the first of each key is ready or runs
  std::deque<Key> ready_;                                   // keys with a task of which none runs
  std::vector<std::thread> threads_;
  std::size_t idle_ = 0;
  bool stopping_ = false;
};

}  // namespace fairway::nccl
