#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

// The stand-in driver's streams: work in order, on one thread each, so that code which does not wait fails.
namespace standin {

// What a captured stream does, in order: streams that fork and join within a capture are not offered.
struct Graph {
  std::vector<std::function<bool()>> work;
};

class Stream {
 public:
  explicit Stream(int device) : device_(device), id_(++made()), thread_([this] { run(); }) {}
  ~Stream() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  int device() const { return device_; }
  unsigned long long id() const { return id_; }  // never reused
  void post(std::function<bool()> work) {        // returns false: it failed, and so does all later work
    {
      const std::lock_guard lock(mutex_);
      if (capture_ != nullptr) return capture_->work.push_back(std::move(work));
      queue_.push_back(std::move(work));
    }
    changed_.notify_all();
  }
  // From here on work is kept, not done. `number`: of the capture.
  bool begin_capture(unsigned long long number) {
    const std::lock_guard lock(mutex_);
    if (capture_ != nullptr) return false;
    capture_ = std::make_unique<Graph>();
    capture_number_ = number;
    return true;
  }
  std::unique_ptr<Graph> end_capture() {
    const std::lock_guard lock(mutex_);
    return std::exchange(capture_, nullptr);
  }
  unsigned long long capture() {  // 0: it does not capture
    const std::lock_guard lock(mutex_);
    return capture_ == nullptr ? 0 : capture_number_;
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

  static std::atomic<unsigned long long>& made() {
    static std::atomic<unsigned long long> streams{0};
    return streams;
  }

  const int device_;
  const unsigned long long id_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<std::function<bool()>> queue_;
  bool running_ = false, failed_ = false, ends_ = false;
  std::unique_ptr<Graph> capture_;  // null: it does not capture
  unsigned long long capture_number_ = 0;
  std::thread thread_;
};

}  // namespace standin
