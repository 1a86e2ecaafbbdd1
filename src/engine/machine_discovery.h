#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "core/runtime.h"
#include "engine/expectation.h"

namespace fairway::engine {

// Reads the machine once, when the first expected rate is needed. It runs on a thread of its own, because it reads
// files and asks drivers for up to a second.
class MachineDiscovery final : public Stepper {
 public:
  using Source = std::function<Result<predict::Model>()>;
  // Without a source there are no expected rates. `known` is called once, on that thread, when the machine has been
  // read.
  MachineDiscovery(Executor& executor, Source source, std::function<void()> known);

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
