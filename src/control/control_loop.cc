#include "control/control_loop.h"

#include <algorithm>

namespace fairway::control {
namespace {

constexpr Time kCloseBound = 250 * kMillisecond;  // a little more than a farewell lingers

}  // namespace

ControlLoop::ControlLoop(const Options& options, const Runtime& runtime, Observer& observer)
    : self_(options, runtime, observer),
      sessions_(self_),
      dialer_(self_, sessions_),
      server_(self_),
      naming_(self_),
      strangers_(self_, sessions_, dialer_, options.directory == "serve" ? &server_ : nullptr) {}

void ControlLoop::begin(Task& task) {
  begun_.store(&task, std::memory_order_release);
  task.wake();
}

void ControlLoop::set_state(State state) {
  state_.store(state, std::memory_order_release);
  self_.runtime.executor.wake_all(state_);
}

void ControlLoop::open() {
  self_.task = begun_.load(std::memory_order_acquire);
  if (!self_.task) return;
  const bool serves = self_.options.directory == "serve";
  open_status_ = strangers_.listen(self_.options.listen);
  if (open_status_) open_status_ = naming_.open(serves ? &server_.table() : nullptr);
  if (!open_status_) return set_state(kFailed);
  self_.address = self_.options.advertise.empty() ? strangers_.address() : self_.options.advertise;
  self_.name = self_.options.name.empty() ? self_.address : self_.options.name;
  set_state(kOpen);
}

Time ControlLoop::step(Time now) {
  if (state_.load(std::memory_order_relaxed) == kStarting) open();
  if (state_.load(std::memory_order_relaxed) != kOpen) return kNever;
  if (closed_by_ || close_requested_.load(std::memory_order_acquire)) return close(now);

  forgive_own_freeze(now);
  run_commands(now);
  Time next = strangers_.step(now);
  sessions_.receive(now);
  next = std::min(next, dialer_.step(now));
  next = std::min(next, server_.step(now));
  next = std::min(next, naming_.step(now));
  next = std::min(next, sessions_.transmit(now));
  next = std::min(next, self_.farewells.step(now));
  asked_for_ = std::max(next, now);
  return next;
}

// A step that comes much later than asked for means that this process stood still (SIGSTOP, a paused machine). Whatever
// peers sent meanwhile is read in this very step; the silence of those that stood still too is not held against them.
void ControlLoop::forgive_own_freeze(Time now) {
  if (asked_for_ != kNever && now > after(asked_for_, self_.options.peer_timeout / 8))
    sessions_.forgive(now, now - asked_for_);
}

void ControlLoop::run_commands(Time now) {
  const bool disconnects = self_.mailbox.take_disconnects();  // before the messages that were sent before it
  Command command;
  while (self_.mailbox.take(command)) {
    switch (command.kind) {
      case Command::Kind::connect: dialer_.connect(command.bytes, command.id, command.deadline, now); break;
      case Command::Kind::send: sessions_.send(command.id, std::move(command.bytes)); break;
      case Command::Kind::resolve: naming_.resolve(command.bytes, command.id, command.deadline, now); break;
      case Command::Kind::part: sessions_.part(command.id, {command.code, std::move(command.bytes)}); break;
    }
  }
  if (disconnects) sessions_.end_disconnected(now);
  if (self_.mailbox.take_overflow()) sessions_.tell_writable();
}

Time ControlLoop::close(Time now) {
  const Status reason(ErrorCode::closed, "this engine closed");
  if (!closed_by_) {
    closed_by_ = after(now, kCloseBound);
    run_commands(now);
    strangers_.close();
    dialer_.cancel_all(reason);
    sessions_.down_all({ErrorCode::closed, "the engine closed"}, Reason::closed, now);
    naming_.leave(reason, now);
    server_.close();
  }
  const Time next = std::min(naming_.step(now), self_.farewells.step(now));
  if ((!self_.farewells.empty() || !naming_.left()) && now < *closed_by_) return std::min(next, *closed_by_);
  self_.farewells.clear();
  set_state(kClosed);
  return kNever;
}

}  // namespace fairway::control
