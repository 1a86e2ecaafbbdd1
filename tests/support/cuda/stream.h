#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

// The stand-in driver's streams: work in order, on one thread each, so that code which does not wait fails.
namespace standin {

// What captured streams do, one after the other in the order of the calls.
struct Graph {
  std::vector<std::function<bool()>> work;
  std::vector<std::shared_ptr<void>> objects;  // of users, which end with the last graph that has them
};
// Of the stream that began it, and of those that have waited for an event of it since.
struct Capture {
  unsigned long long number = 0;
  bool global = false;              // unsafe calls of any thread end it
  std::atomic<bool> failed{false};  // one has
  std::mutex mutex;                 // guards the graph
  Graph graph;
  std::atomic<bool> ended{false};
};

// Whether the driver refuses this thread's call, which a capture does not allow, and which ends that capture.
bool refuses_unsafe_call();
void keep_global(const std::shared_ptr<Capture>& capture);

class Stream {
 public:
  explicit Stream(int device) : device_(device), id_(++made()), thread_([this] { run(); }) {
    const std::lock_guard lock(all_mutex());
    all().insert(this);
  }
  // What the streams of a device have been given is over.
  static void synchronize_all(int device) {
    const std::lock_guard lock(all_mutex());
    for (Stream* const each : all())
      if (each->device_ == device && each->capture() == nullptr) each->synchronize();
  }
  ~Stream() {
    {
      const std::lock_guard lock(all_mutex());
      all().erase(this);
    }
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
      if (const auto capture = capturing()) {
        const std::lock_guard all(capture->mutex);
        return capture->graph.work.push_back(std::move(work));
      }
      queue_.push_back(std::move(work));
    }
    changed_.notify_all();
  }
  // From here on work is kept, not done. `number`: of the capture.
  bool begin_capture(unsigned long long number, bool global) {
    const std::lock_guard lock(mutex_);
    if (capturing()) return false;
    capture_ = std::make_shared<Capture>();
    capture_->number = number;
    capture_->global = global;
    if (global) keep_global(capture_);
    return true;
  }
  // The stream takes part in that capture until its end. False: in another one already.
  bool join(const std::shared_ptr<Capture>& capture) {
    const std::lock_guard lock(mutex_);
    if (capturing() && capture_ != capture) return false;
    capture_ = capture;
    return true;
  }
  std::unique_ptr<Graph> end_capture() {
    const std::lock_guard lock(mutex_);
    const auto capture = std::exchange(capture_, nullptr);
    if (capture == nullptr || capture->ended.exchange(true) || capture->failed) return nullptr;
    const std::lock_guard all(capture->mutex);
    return std::make_unique<Graph>(std::move(capture->graph));
  }
  std::shared_ptr<Capture> capture() {  // null: it does not capture
    const std::lock_guard lock(mutex_);
    return capturing();
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
  std::shared_ptr<Capture> capturing() {  // under the lock
    if (capture_ != nullptr && capture_->ended) capture_ = nullptr;
    return capture_;
  }
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

  static std::mutex& all_mutex() {  // guards all()
    static std::mutex mutex;
    return mutex;
  }
  static std::set<Stream*>& all() {
    static auto* const streams = new std::set<Stream*>;
    return *streams;
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
  std::shared_ptr<Capture> capture_;  // null, or ended: it does not capture
  std::thread thread_;
};

}  // namespace standin
