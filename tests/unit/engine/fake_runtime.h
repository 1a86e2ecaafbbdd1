#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "core/runtime.h"
#include "engine/waiting.h"

namespace fairway::engine {

// A runtime without threads or a network: time stands still but while somebody sleeps, and who sleeps does what the
// test says, or sleeps until its deadline.
class FakeRuntime final : private Clock, private Rng, private Executor, private Network {
 public:
  Time time = kSecond;
  std::function<void(Time deadline)> on_sleep = [this](Time deadline) { time = std::max(time, deadline); };
  std::vector<Time> sleeps;  // their deadlines
  int wakes = 0;             // calls that wake who sleeps

  struct Descriptor final : Signal {
    explicit Descriptor(FakeRuntime& on) : runtime(on) {}
    void set() override { is_set = true; }
    void clear() override {
      is_set = false;
      timer = kNever;
    }
    void wait(Time deadline) override {
      waits.push_back(deadline);
      if (is_set) return;
      if (on_wait) return on_wait(deadline);
      runtime.time = std::max(runtime.time, deadline);
    }
    int fd() override { return 7; }
    void set_at(Time when) override { timer = when; }

    FakeRuntime& runtime;
    bool is_set = false;
    Time timer = kNever;
    std::vector<Time> waits;
    std::function<void(Time deadline)> on_wait;
  };
  Descriptor* descriptor = nullptr;  // the last that was made

  Runtime& runtime() { return runtime_; }

 private:
  Time now() override { return time; }
  std::uint64_t unix_ns() override { return time; }
  void fill(std::span<std::byte> out) override { std::fill(out.begin(), out.end(), std::byte{1}); }
  Result<std::unique_ptr<Task>> start(const TaskOptions&, Stepper&) override { return no("threads"); }
  Result<std::unique_ptr<Signal>> make_signal() override {
    auto made = std::make_unique<Descriptor>(*this);
    descriptor = made.get();
    return std::unique_ptr<Signal>(std::move(made));
  }
  void wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time deadline) override {
    if (word.load() != seen) return;
    sleeps.push_back(deadline);
    on_sleep(deadline);
  }
  void wake_all(std::atomic<std::uint32_t>&) override { ++wakes; }
  Result<std::unique_ptr<Channel>> dial(const std::string&, Task&) override { return no("network"); }
  Result<std::unique_ptr<Listener>> listen(const std::string&, Task&) override { return no("network"); }
  Result<bool> is_loopback(const std::string&) override { return no("network"); }
  static Status no(const std::string& what) { return {ErrorCode::unsupported, "no " + what + " here"}; }

  Runtime runtime_{*this, *this, *this, *this};
};

// Workers of an engine, for those who step them.
struct FakeWorkers final : CallerStepped {
  Time step(Time now) override {
    ++steps;
    if (on_step) on_step();
    return next == 0 ? now : next;
  }
  Time step_for(std::span<Completion> room, std::size_t& filled, Time now) override {
    for (filled = 0; filled < room.size() && to_poll > 0; --to_poll) room[filled++].bytes = 8;
    return step(now);
  }
  bool any_left() const override { return left; }
  bool prepare_sleep() override {
    ++prepared;
    return quiet;
  }
  void slept(Time) override { ++woken; }
  bool stepped_here() const override { return here; }

  int steps = 0, prepared = 0, woken = 0;
  int to_poll = 0;     // completions that a step has for who polls
  Time next = kNever;  // when they want to be stepped again; 0: at once
  bool quiet = true;
  bool here = false;
  bool left = false;  // something to poll
  std::function<void()> on_step;
};

}  // namespace fairway::engine
