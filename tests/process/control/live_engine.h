#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "control/control.h"
#include "sys/system_runtime.h"

namespace fairway::control {

// One control on the operating system, and all that it told. Any thread.
class LiveEngine final : public Observer {
 public:
  struct Down {
    SessionId session;
    Status reason;
    Time at;
  };
  struct Seen {
    std::map<SessionId, PeerInfo> up;
    std::vector<Down> down;
    std::vector<std::pair<SessionId, std::string>> messages;
    std::map<std::uint64_t, Result<SessionId>> answers;
    std::map<std::uint64_t, Result<std::string>> resolved;
    std::vector<Status> refusals;
    std::vector<Status> publications;
    std::size_t ups = 0;
    std::size_t wrong = 0;  // calls that break the observer's contract
  };

  explicit LiveEngine(const Options& options = {}) {
    Runtime runtime = system_.runtime();
    auto opened = open_control(options, runtime, *this);
    open_status = opened.status();
    if (opened) control_ = std::move(opened).value();
  }
  ~LiveEngine() override { control_.reset(); }

  Control& control() { return *control_; }
  std::string address() const { return control_->address(); }
  Clock& clock() { return runtime_.clock; }
  Status open_status;

  std::uint64_t start_connect(const std::string& address, Time timeout) {
    std::uint64_t token = 0;
    {
      const std::lock_guard lock(mutex_);
      token = next_token_++;
    }
    if (Status status = control_->connect(address, token, timeout); !status) connect_done(token, status);
    return token;
  }
  Result<SessionId> connect(const std::string& address, Time timeout = 5 * kSecond) {
    const auto token = start_connect(address, timeout);
    until([&](const Seen& seen) { return seen.answers.contains(token); }, timeout + 5 * kSecond);
    const std::lock_guard lock(mutex_);
    return seen_.answers.contains(token) ? seen_.answers.at(token) : Status(ErrorCode::timed_out, "no connect_done");
  }
  Result<std::string> resolve(const std::string& name, Time timeout = 5 * kSecond) {
    std::uint64_t token = 0;
    {
      const std::lock_guard lock(mutex_);
      token = next_token_++;
    }
    if (Status status = control_->resolve(name, token, timeout); !status) return status;
    until([&](const Seen& seen) { return seen.resolved.contains(token); }, timeout + 5 * kSecond);
    const std::lock_guard lock(mutex_);
    return seen_.resolved.contains(token) ? seen_.resolved.at(token) : Status(ErrorCode::timed_out, "no resolve_done");
  }
  Status send(SessionId session, const std::string& text) {
    return control_->send(session, std::as_bytes(std::span(text.data(), text.size())));
  }
  bool until(const std::function<bool(const Seen&)>& condition, Time limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::nanoseconds(limit), [&] { return condition(seen_); });
  }
  Seen seen() {
    const std::lock_guard lock(mutex_);
    return seen_;
  }
  Progress progress_now;

 private:
  void note(const std::function<void()>& change) {
    {
      const std::lock_guard lock(mutex_);
      change();
    }
    changed_.notify_all();
  }
  void session_up(SessionId session, const PeerInfo& peer) override {
    note([&] {
      seen_.wrong += seen_.up.emplace(session, peer).second ? 0 : 1;
      ++seen_.ups;
    });
  }
  void session_down(SessionId session, const Status& reason) override {
    note([&] {
      seen_.wrong += seen_.up.erase(session) == 1 ? 0 : 1;
      seen_.down.push_back({session, reason, runtime_.clock.now()});
    });
  }
  void message(SessionId session, std::span<const std::byte> bytes) override {
    note([&] {
      seen_.wrong += seen_.up.contains(session) ? 0 : 1;
      seen_.messages.emplace_back(session, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
    });
  }
  void connect_done(std::uint64_t token, Result<SessionId> session) override {
    note([&] { seen_.wrong += seen_.answers.emplace(token, std::move(session)).second ? 0 : 1; });
  }
  void resolve_done(std::uint64_t token, Result<std::string> address) override {
    note([&] { seen_.wrong += seen_.resolved.emplace(token, std::move(address)).second ? 0 : 1; });
  }
  Progress progress() override { return progress_now; }
  void refused(const std::string&, const Status& why) override {
    note([&] { seen_.refusals.push_back(why); });
  }
  void published(const Status& status) override {
    note([&] { seen_.publications.push_back(status); });
  }

  std::mutex mutex_;  // guards seen_ and next_token_
  std::condition_variable changed_;
  Seen seen_;
  std::uint64_t next_token_ = 1;
  sys::SystemRuntime system_;
  Runtime runtime_ = system_.runtime();
  std::unique_ptr<Control> control_;
};

}  // namespace fairway::control
