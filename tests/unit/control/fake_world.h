#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/runtime.h"

namespace fairway::control {

// A few machines in virtual time on the test's own thread, with a network that the test can cut, slow and change.
// Seeded: the same test runs the same way each time.
class FakeWorld {
 public:
  class Node;

  explicit FakeWorld(std::uint64_t seed = 1) : random_(seed) {}
  ~FakeWorld();

  Node& add_node();
  Time now() const { return now_; }
  void run(Time duration) {
    run_until([] { return false; }, duration);
  }
  // False when `duration` passed first.
  bool run_until(const std::function<bool()>& condition, Time duration);

  Time latency = 20 * kMicrosecond;
  std::size_t segment = 1 << 20;  // the most that one send() takes
  // Sees, and may change, all bytes on their way; false: that connection is reset.
  std::function<bool(const std::string& to, std::vector<std::byte>& bytes)> on_the_way;
  // Every connection between a and b (or all) is reset.
  void cut_connections();
  std::uint64_t steps = 0;
  std::size_t dials = 0;      // ever
  std::size_t open_ends = 0;  // channels that exist
  std::size_t most_half_open = 0;

 private:
  friend class FakeTask;
  friend class FakeChannel;
  friend class FakeListener;
  struct Pipe;
  struct Link;
  struct Entry;

  void schedule(class FakeTask* task, Time at);

  Time now_ = kSecond;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<class FakeTask*> tasks_;
  std::vector<std::weak_ptr<Link>> links_;
  std::map<std::string, class FakeListener*> listeners_;
  std::uint16_t next_port_ = 40000;
};

// One machine: what a control runs on.
class FakeWorld::Node final : private Clock, private Rng, private Executor, private Network {
 public:
  explicit Node(FakeWorld& world) : world_(world) {}
  Runtime runtime() { return {*this, *this, *this, *this}; }

  bool frozen = false;    // its tasks do not run; the system below keeps taking bytes
  bool dead = false;      // use kill()
  bool isolated = false;  // nothing it sends arrives, and nothing reaches it
  Time clock_skew = 0;
  void kill();  // as kill -9 does: connections and listeners are gone at once

 private:
  friend class FakeWorld;
  friend class FakeTask;
  friend class FakeChannel;
  friend class FakeListener;

  Time now() override { return world_.now_; }
  std::uint64_t unix_ns() override { return 1'700'000'000'000'000'000U + world_.now_ + clock_skew; }
  void fill(std::span<std::byte> out) override;
  Result<std::unique_ptr<Task>> start(const TaskOptions& options, Stepper& stepper) override;
  Result<std::unique_ptr<Signal>> make_signal() override;
  void wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, Time deadline) override;
  void wake_all(std::atomic<std::uint32_t>&) override {}
  Result<std::unique_ptr<Channel>> dial(const std::string& address, Task& wakes) override;
  Result<std::unique_ptr<Listener>> listen(const std::string& address, Task& wakes) override;
  Result<bool> is_loopback(const std::string& address) override;

  FakeWorld& world_;
};

}  // namespace fairway::control
