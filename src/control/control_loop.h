#pragma once

#include <atomic>
#include <optional>
#include <string>

#include "control/acceptor.h"
#include "control/context.h"
#include "control/dialer.h"
#include "control/directory_client.h"
#include "control/directory_server.h"
#include "control/sessions.h"
#include "core/runtime.h"

namespace fairway::control {

// The control thread: all that happens in one step, in order. Other threads reach it through begin(), the mailbox and
// request_close(), and wait on state().
class ControlLoop final : public Stepper {
 public:
  enum State : std::uint32_t { kStarting, kOpen, kFailed, kClosed };

  ControlLoop(const Options& options, const Runtime& runtime, Observer& observer);

  // Any thread may call these.
  void begin(Task& task);  // called once; listening starts at the next step
  void request_close() { close_requested_.store(true, std::memory_order_release); }
  std::atomic<std::uint32_t>& state() { return state_; }
  Mailbox& mailbox() { return context_.mailbox; }
  // Valid and constant once state() is no longer kStarting.
  const Status& open_status() const { return open_status_; }
  const std::string& address() const { return context_.address; }
  std::uint64_t incarnation() const { return context_.incarnation; }

  Time step(Time now) override;
  bool prepare_sleep() override { return context_.mailbox.idle(); }

 private:
  void open();
  void set_state(State state);
  void allow_for_own_pause(Time now);
  void run_commands(Time now);
  Time close(Time now);

  ControlContext context_;
  Sessions sessions_;
  Dialer dialer_;
  DirectoryServer server_;  // unused unless Options::directory is "serve"
  DirectoryClient directory_client_;
  Acceptor acceptor_;
  std::atomic<Task*> begun_{nullptr};
  std::atomic<bool> close_requested_{false};
  std::atomic<std::uint32_t> state_{kStarting};
  Status open_status_;
  Time asked_for_ = kNever;  // the time at which the last step asked to run again
  std::optional<Time> closed_by_;
};

}  // namespace fairway::control
