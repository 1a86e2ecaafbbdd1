#pragma once

#include "core/runtime.h"
#include "sys/futex_table.h"
#include "sys/oversubscription.h"

namespace fairway::sys {

// Runs each stepper on its own thread. Any thread; must outlive its tasks and signals.
class ThreadExecutor final : public Executor {
 public:
  explicit ThreadExecutor(Clock& clock) : clock_(clock), futexes_(clock, oversubscription_) {}

  Result<std::unique_ptr<Task>> start(const TaskOptions& options, Stepper& stepper) override;
  Result<std::unique_ptr<Signal>> make_signal() override;
  void wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time deadline) override {
    futexes_.wait(word, seen, deadline);
  }
  void wake_all(std::atomic<std::uint32_t>& word) override { futexes_.wake_all(word); }
  [[nodiscard]] unsigned cores() const override { return oversubscription_.cores(); }
  void run_all(std::size_t count, const std::function<void(std::size_t)>& job) override;

 private:
  Clock& clock_;
  Oversubscription oversubscription_;
  FutexTable futexes_;
};

}  // namespace fairway::sys
