#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "core/runtime.h"

namespace fairway::transport {

// A thread for slow calls of drivers and the kernel. Any thread may post jobs; they run in order, and the destructor
// runs those that are left. The thread starts with the first job; if it cannot start, post() fails and takes no job.
class Janitor final : public Stepper {
 public:
  Janitor(Runtime& runtime, std::string name) : runtime_(runtime), name_(std::move(name)) {}
  ~Janitor() override;
  [[nodiscard]] Status post(std::function<void()> job);
  // For a job that must run, such as freeing something: the caller runs it itself if there is no thread.
  void end(std::function<void()> job);
  void finish();  // runs the jobs that are left, then returns

 private:
  Time step(Time now) override;
  Status take(std::function<void()>& job);
  bool work_one();

  Runtime& runtime_;
  const std::string name_;   // of the thread
  std::mutex mutex_;         // guards jobs_ and the start of task_
  std::mutex finish_mutex_;  // guards the end of the thread: one finish() at a time
  std::deque<std::function<void()>> jobs_;
  std::unique_ptr<Task> task_;
};

}  // namespace fairway::transport
