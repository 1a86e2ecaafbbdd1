#include "sys/cuda_closing.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "sys/cuda_memory.h"

namespace fairway::sys {
namespace {

constexpr std::chrono::milliseconds kPatience{100};

}  // namespace

// Shared with the thread, which may outlive the object.
struct CudaClosing::State {
  explicit State(std::shared_ptr<const CudaDriver> of) : driver(std::move(of)) {}

  const std::shared_ptr<const CudaDriver> driver;
  std::mutex mutex;  // guards all below
  std::condition_variable changed;
  std::deque<std::function<void()>> jobs;
  std::uint64_t posted = 0, done = 0;
  std::thread::id thread;  // that runs them; none: not started
  bool ends = false, ended = false;

  void run() {
    const RelaxedCapture relaxed(*driver);
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return !jobs.empty() || ends; });
      if (jobs.empty()) break;
      auto job = std::move(jobs.front());
      jobs.pop_front();
      lock.unlock();
      job();
      job = nullptr;  // what it owned goes here too
      lock.lock();
      ++done;
      changed.notify_all();
    }
    ended = true;
    changed.notify_all();
  }
  // Under the lock. False: the system gives no thread.
  bool start(const std::shared_ptr<State>& self) {
    if (thread != std::thread::id()) return true;
    try {
      std::thread runs([self] { self->run(); });
      thread = runs.get_id();
      runs.detach();
    } catch (const std::system_error&) {
      return false;
    }
    return true;
  }
};

CudaClosing::CudaClosing(std::shared_ptr<const CudaDriver> driver)
    : state_(std::make_shared<State>(std::move(driver))) {}

CudaClosing::~CudaClosing() {
  std::unique_lock lock(state_->mutex);
  state_->ends = true;
  state_->changed.notify_all();
  // Its own thread: a job owned the object.
  if (state_->thread == std::thread::id() || state_->thread == std::this_thread::get_id()) return;
  state_->changed.wait_for(lock, kPatience, [this] { return state_->ended; });
}

void CudaClosing::post(std::function<void()> job) {
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->start(state_)) {
      state_->jobs.push_back(std::move(job));
      ++state_->posted;
      state_->changed.notify_all();
      return;
    }
  }
  const RelaxedCapture relaxed(*state_->driver);
  job();
}

void CudaClosing::wait() {
  std::unique_lock lock(state_->mutex);
  const std::uint64_t all = state_->posted;
  state_->changed.wait(lock, [&] { return state_->done >= all; });
}

}  // namespace fairway::sys
