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
// destroying it does what is left first.
class Janitor final : public Stepper {
 public:
  Janitor(Runtime& runtime, std::string name) : runtime_(runtime), name_(std::move(name)) {}
  ~Janitor() override;
  void post(std::function<void()> job);
  void finish();  // does what is left, and returns once it is done

 private:
  Time step(Time now) override;
  bool work_one();

  Runtime& runtime_;
  const std::string name_;  // of the thread
  std::mutex mutex_;        // guards jobs_ and the start of task_
  std::deque<std::function<void()>> jobs_;
  std::unique_ptr<Task> task_;
};

}  // namespace fairway::transport
