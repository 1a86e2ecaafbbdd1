#pragma once

#include <atomic>
#include <memory>

#include "core/runtime.h"

namespace fairway::support {

// Wraps another executor and starts no thread while `none` is set. Any thread.
class FewThreads final : public Executor {
 public:
  explicit FewThreads(Executor& of) : of_(of) {}
  std::atomic<bool> none{true};

  Result<std::unique_ptr<Task>> start(const TaskOptions& options, Stepper& stepper) override {
    if (none) return Status(ErrorCode::resource_exhausted, "cannot start the thread " + options.name);
    return of_.start(options, stepper);
  }
  Result<std::unique_ptr<Signal>> make_signal() override { return of_.make_signal(); }
  void wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time deadline) override {
    of_.wait(word, seen, deadline);
  }
  void wake_all(std::atomic<std::uint32_t>& word) override { of_.wake_all(word); }

 private:
  Executor& of_;
};

}  // namespace fairway::support
