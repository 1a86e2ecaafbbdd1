#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "control/dialer.h"
#include "control/directory_server.h"
#include "control/naming.h"
#include "control/self.h"
#include "control/sessions.h"
#include "control/strangers.h"
#include "core/runtime.h"

namespace fairway::control {

// Control's thread: everything that happens in one step, in its order. Other threads reach it by begin(), the mailbox
// and request_close(), and wait on state().
class ControlLoop final : public Stepper {
 public:
  enum State : std::uint32_t { kStarting, kOpen, kFailed, kClosed };

  ControlLoop(const Options& options, const Runtime& runtime, Observer& observer);

  // Any thread.
  void begin(Task& task);  // once: listening starts at the next step
  void request_close() { close_requested_.store(true, std::memory_order_release); }
  std::atomic<std::uint32_t>& state() { return state_; }
  Mailbox& mailbox() { return self_.mailbox; }
  // Once state() is not kStarting; they do not change after.
  const Status& open_status() const { return open_status_; }
  const std::string& address() const { return self_.address; }
  std::uint64_t incarnation() const { return self_.incarnation; }

  Time step(Time now) override;
  bool prepare_sleep() override { return self_.mailbox.idle(); }

 private:
  void open();
  void set_state(State state);
  void forgive_own_freeze(Time now);
  void run_commands(Time now);
  Time close(Time now);

  Self self_;
  Sessions sessions_;
  Dialer dialer_;
  DirectoryServer server_;  // idle unless Options::directory is "serve"
  Naming naming_;
  Strangers strangers_;
  std::atomic<Task*> begun_{nullptr};
  std::atomic<bool> close_requested_{false};
  std::atomic<std::uint32_t> state_{kStarting};
  Status open_status_;
  Time asked_for_ = kNever;  // when the last step wanted the next one
  std::optional<Time> closed_by_;
};

}  // namespace fairway::control
