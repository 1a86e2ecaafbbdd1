#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "core/runtime.h"

namespace fairway::transport {

// A thread for calls of drivers and the kernel that may take long. Any thread hands it work, which is done in order;
// destroying it does what is left first. The thread starts with the first work: where none is to be had, post() says so
// and has not taken it.
class Janitor final : public Stepper {
 public:
  Janitor(Runtime& runtime, std::string name) : runtime_(runtime), name_(std::move(name)) {}
  ~Janitor() override;
  [[nodiscard]] Status post(std::function<void()> job);
  // What has to happen, as the end of something has: by the caller itself where there is no thread.
  void end(std::function<void()> job);
  void finish();  // does what is left, and returns once it is done

 private:
  Time step(Time now) override;
  Status take(std::function<void()>& job);
  bool work_one();

  Runtime& runtime_;
  const std::string name_;  // of the thread
  std::mutex mutex_;        // guards jobs_ and the start of task_
  std::deque<std::function<void()>> jobs_;
  std::unique_ptr<Task> task_;
};

}  // namespace fairway::transport
