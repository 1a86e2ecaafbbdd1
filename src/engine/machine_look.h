#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "core/runtime.h"
#include "engine/expectation.h"

namespace fairway::engine {

// The look at the machine that an engine takes once somebody wants to know what its links should reach: on a thread of
// its own, since it reads files and asks drivers for up to a second.
class MachineLook final : public Stepper {
 public:
  using Source = std::function<Result<predict::Model>()>;
  // Without a source nothing is ever known. `known` is called once, on that thread, when the look has ended.
  MachineLook(Executor& executor, Source source, std::function<void()> known);

  void want();                                                                         // begins; any thread
  [[nodiscard]] bool ended() const { return ended_.load(std::memory_order_acquire); }  // or will never begin
  [[nodiscard]] const Expectation* found() const {
    return ended() ? found_.get() : nullptr;
  }  // for as long as this lives
  [[nodiscard]] Status problem() const { return ended() ? problem_ : Status(); }
  void close();  // waits for it

  Time step(Time now) override;

 private:
  Executor& executor_;
  const Source source_;
  const std::function<void()> known_;
  std::mutex mutex_;  // guards task_ and wanted_
  bool wanted_ = false;
  std::unique_ptr<Task> task_;
  std::unique_ptr<const Expectation> found_;  // written before ended_ is set
  Status problem_;
  std::atomic<bool> ended_;
};

}  // namespace fairway::engine
