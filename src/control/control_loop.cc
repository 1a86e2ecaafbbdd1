#include "control/control_loop.h"

#include <algorithm>

namespace fairway::control {
namespace {

constexpr Time kCloseBound = 250 * kMillisecond;  // a little more than a closing connection lingers

}  // namespace

ControlLoop::ControlLoop(const Options& options, const Runtime& runtime, Observer& observer)
    : context_(options, runtime, observer),
      sessions_(context_),
      dialer_(context_, sessions_),
      server_(context_),
      directory_client_(context_),
      acceptor_(context_, sessions_, dialer_, options.directory == "serve" ? &server_ : nullptr) {}

void ControlLoop::begin(Task& task) {
  begun_.store(&task, std::memory_order_release);
  task.wake();
}

void ControlLoop::set_state(State state) {
  state_.store(state, std::memory_order_release);
  context_.runtime.executor.wake_all(state_);
}

void ControlLoop::open() {
  context_.task = begun_.load(std::memory_order_acquire);
  if (!context_.task) return;
  const bool serves = context_.options.directory == "serve";
  open_status_ = acceptor_.listen(context_.options.listen);
  if (open_status_) open_status_ = directory_client_.open(serves ? &server_.table() : nullptr);
  if (!open_status_) return set_state(kFailed);
  context_.address = context_.options.advertise.empty() ? acceptor_.address() : context_.options.advertise;
  context_.name = context_.options.name.empty() ? context_.address : context_.options.name;
  set_state(kOpen);
}

Time ControlLoop::step(Time now) {
  if (state_.load(std::memory_order_relaxed) == kStarting) open();
  if (state_.load(std::memory_order_relaxed) != kOpen) return kNever;
  if (closed_by_ || close_requested_.load(std::memory_order_acquire)) return close(now);

  allow_for_own_pause(now);
  run_commands(now);
  Time next = acceptor_.step(now);
  sessions_.receive(now);
  next = std::min(next, dialer_.step(now));
  next = std::min(next, server_.step(now));
  next = std::min(next, directory_client_.step(now));
  next = std::min(next, sessions_.transmit(now));
  next = std::min(next, context_.closing.step(now));
  asked_for_ = std::max(next, now);
  return next;
}

// A step that runs much later than planned means that this process was stopped (SIGSTOP, a paused VM). This same step
// reads what peers sent meanwhile. Peers may have been stopped too, so their silence does not count against them.
void ControlLoop::allow_for_own_pause(Time now) {
  if (asked_for_ != kNever && now > after(asked_for_, context_.options.peer_timeout / 8))
    sessions_.allow_for_pause(now, now - asked_for_);
}

void ControlLoop::run_commands(Time now) {
  // Read this before the commands: messages sent before disconnect() must go out first.
  const bool disconnects = context_.mailbox.take_disconnects();
  Command command;
  while (context_.mailbox.take(command)) {
    switch (command.kind) {
      case Command::Kind::connect: dialer_.connect(command.bytes, command.id, command.deadline, now); break;
      case Command::Kind::send: sessions_.send(command.id, std::move(command.bytes)); break;
      case Command::Kind::resolve: directory_client_.resolve(command.bytes, command.id, command.deadline, now); break;
      case Command::Kind::disconnect_reason:
        sessions_.set_disconnect_reason(command.id, {command.code, std::move(command.bytes)});
        break;
    }
  }
  if (disconnects) sessions_.end_disconnected(now);
  if (context_.mailbox.take_overflow()) sessions_.tell_writable();
}

Time ControlLoop::close(Time now) {
  const Status reason(ErrorCode::closed, "this engine closed");
  if (!closed_by_) {
    closed_by_ = after(now, kCloseBound);
    run_commands(now);
    acceptor_.close();
    dialer_.cancel_all(reason);
    sessions_.down_all({ErrorCode::closed, "the engine closed"}, Reason::closed, now);
    directory_client_.leave(reason, now);
    server_.close();
  }
  const Time next = std::min(directory_client_.step(now), context_.closing.step(now));
  if ((!context_.closing.empty() || !directory_client_.left()) && now < *closed_by_) return std::min(next, *closed_by_);
  context_.closing.clear();
  set_state(kClosed);
  return kNever;
}

}  // namespace fairway::control
