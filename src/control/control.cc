#include "control/control.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "control/acceptor.h"
#include "control/context.h"
#include "control/dialer.h"
#include "control/directory.h"
#include "control/directory_client.h"
#include "control/directory_server.h"
#include "control/session.h"
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

namespace {

constexpr Time kOpenBound = 30 * kSecond;  // listening on a host name waits for the resolver

Status check(const Options& options, Runtime& runtime) {
  const auto wrong = [](std::string text) { return Status(ErrorCode::invalid_argument, std::move(text)); };
  if (options.peer_timeout < kMinTimeout || options.peer_timeout > kMaxTimeout)
    return wrong(
        fmt::format("EngineOptions::peer_timeout must be between {} ms and 1 hour", kMinTimeout / kMillisecond));
  if (options.max_peers == 0 || options.max_peers > 65536)
    return wrong("EngineOptions::max_peers must be between 1 and 65536");
  if (options.max_queued_bytes < 2 * (kMaxMessage + kMessageOverhead))
    return wrong(fmt::format("Options::max_queued_bytes must be at least {}", 2 * (kMaxMessage + kMessageOverhead)));
  if (options.name.size() > kMaxName)
    return wrong(fmt::format("EngineOptions::name must have at most {} bytes", kMaxName));
  if (options.advertise.size() > kMaxName) return wrong("Options::advertise is too long for an address");
  if (Status status = check_directory(options.directory); !status) return status;
  const bool wildcard = options.listen.starts_with("0.0.0.0:") || options.listen.starts_with("[::]:");
  if (!options.directory.empty() && wildcard && options.advertise.empty())
    return wrong(
        "an engine that listens on every interface and publishes itself in a directory needs an address that "
        "peers can reach: listen on that address (EngineOptions::listen)");
  const auto local = runtime.network.is_loopback(options.listen);
  if (!local) return local.status().with_context("EngineOptions::listen");
  if (!local.value() && options.job_key.empty())
    return wrong(
        fmt::format("listening on {} lets other hosts connect, so a key must be set: give every engine of the job "
                    "the same EngineOptions::job_key (16 random bytes or more), or listen on 127.0.0.1",
                    options.listen));
  return {};
}

// Control's interface over a ControlLoop, for any thread. Its destructor closes the loop.
class LoopControl final : public Control {
 public:
  LoopControl(const Options& options, Runtime& runtime, Observer& observer)
      : runtime_(runtime), loop_(options, runtime, observer) {}
  ~LoopControl() override { close(); }

  Status open() {
    TaskOptions options;
    options.name = "fw-control";
    options.spin_ns = 0;  // no need to spin: waking the thread takes microseconds
    auto task = runtime_.executor.start(options, loop_);
    if (!task) return task.status().with_context("cannot start the control thread");
    task_ = std::move(task).value();
    loop_.begin(*task_);
    wait_while(ControlLoop::kStarting, kOpenBound);
    if (loop_.state().load(std::memory_order_acquire) == ControlLoop::kStarting)
      return {ErrorCode::timed_out, "the control thread did not start to listen in time"};
    return loop_.open_status();
  }

  std::string address() const override { return loop_.address(); }
  std::uint64_t incarnation() const override { return loop_.incarnation(); }

  Status connect(const std::string& address, std::uint64_t token, Time timeout) override {
    return post({Command::Kind::connect, token, after(runtime_.clock.now(), timeout), address});
  }
  Status resolve(const std::string& name, std::uint64_t token, Time timeout) override {
    return post({Command::Kind::resolve, token, after(runtime_.clock.now(), timeout), name});
  }
  Status send(SessionId session, std::span<const std::byte> bytes) override {
    if (closing_.load(std::memory_order_acquire)) return closed();
    Status status = loop_.mailbox().send(session, bytes);
    task_->wake();  // also when the queue is full: the loop then reports when there is room
    return status;
  }
  void disconnect(SessionId session, const Status& why) override {
    loop_.mailbox().disconnect(session, why);
    task_->wake();
  }

  // The loop limits how long it lingers, so this wait needs no limit of its own. The thread itself ends with this
  // object, because other threads may still wake it until then; after this wait it calls no observer.
  void close() override {
    if (!task_) return;
    closing_.store(true, std::memory_order_release);
    loop_.request_close();
    task_->wake();
    wait_while(ControlLoop::kOpen, kNever);
  }

 private:
  static Status closed() { return {ErrorCode::closed, "the engine is closed"}; }
  Status post(Command command) {
    if (closing_.load(std::memory_order_acquire)) return closed();
    Status status = loop_.mailbox().post(std::move(command));
    if (status) task_->wake();
    return status;
  }
  void wait_while(std::uint32_t state, Time bound) {
    const Time until = after(runtime_.clock.now(), bound);
    while (loop_.state().load(std::memory_order_acquire) == state && runtime_.clock.now() < until)
      runtime_.executor.wait(loop_.state(), state, until);
  }

  Runtime runtime_;
  ControlLoop loop_;
  std::unique_ptr<Task> task_;
  std::atomic<bool> closing_{false};
};

}  // namespace

Result<std::unique_ptr<Control>> open_control(const Options& options, Runtime& runtime, Observer& observer) {
  if (Status status = check(options, runtime); !status) return status;
  auto control = std::make_unique<LoopControl>(options, runtime, observer);
  if (Status status = control->open(); !status) return status;
  return std::unique_ptr<Control>(std::move(control));
}

}  // namespace fairway::control
