#include "control/control.h"

#include <fmt/format.h>

#include "control/control_loop.h"
#include "control/directory.h"
#include "control/keepalive.h"
#include "control/outbox.h"

namespace fairway::control {
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
