#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "core/runtime.h"

namespace fairway::transport::cuda {

// A thread for the driver's calls that may take long. Any thread hands it work; destroying it does what is left first.
class Janitor final : public Stepper {
 public:
  explicit Janitor(Runtime& runtime) : runtime_(runtime) {}
  ~Janitor() override;
  void post(std::function<void()> job);
  void finish();  // does what is left, and returns once it is done

 private:
  Time step(Time now) override;
  bool work_one();

  Runtime& runtime_;
  std::mutex mutex_;  // guards jobs_ and the start of task_
  std::deque<std::function<void()>> jobs_;
  std::unique_ptr<Task> task_;
};

}  // namespace fairway::transport::cuda
