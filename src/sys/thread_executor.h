#pragma once

#include "core/runtime.h"
#include "sys/crowd.h"
#include "sys/waiting.h"

namespace fairway::sys {

// One thread per stepper. Any thread; outlives its tasks and signals.
class ThreadExecutor final : public Executor {
 public:
  explicit ThreadExecutor(Clock& clock) : clock_(clock), waiting_(clock, crowd_) {}

  Result<std::unique_ptr<Task>> start(const TaskOptions& options, Stepper& stepper) override;
  Result<std::unique_ptr<Signal>> make_signal() override;
  void wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time deadline) override {
    waiting_.wait(word, seen, deadline);
  }
  void wake_all(std::atomic<std::uint32_t>& word) override { waiting_.wake_all(word); }
  void run_all(std::size_t count, const std::function<void(std::size_t)>& job) override;

 private:
  Clock& clock_;
  Crowd crowd_;
  Waiting waiting_;
};

}  // namespace fairway::sys
