#include "core/gates.h"
#include "model/mutants.h"

namespace fairway::model {
namespace {

using Signal = BasicSignalGate<ModelAtomics>;

// The bugs to plant.
enum class SignalBug { none, flag_after_write, looks_then_clears, sets_then_publishes };

// The kernel's counter, as a level-triggered sleeper sees it: readable until it is read.
class Counter {
 public:
  void write() { count_.fetch_add(1, std::memory_order_acq_rel); }
  std::uint64_t read() { return std::exchange(seen_, 0) + count_.exchange(0, std::memory_order_acq_rel); }
  void wait() {
    if (seen_ == 0) seen_ = count_.await_nonzero();
  }

 private:
  ModelAtomics::Atomic<std::uint64_t> count_{0};
  std::uint64_t seen_ = 0;  // the sleeper has woken for it and not read it yet
};

// The former design of the gate: a flag that says that the counter was written, raised after the write.
class FlagGate {
 public:
  template <class Write>
  void set(Write write) {
    if (set_.exchange(true, std::memory_order_seq_cst)) return;
    write();
    raised_.store(true, std::memory_order_release);
  }
  template <class Read>
  void clear(Read read) {
    if (raised_.load(std::memory_order_relaxed) && raised_.exchange(false, std::memory_order_acq_rel)) (void)read();
    if (set_.load(std::memory_order_relaxed)) set_.exchange(false, std::memory_order_seq_cst);
  }

 private:
  ModelAtomics::Atomic<bool> set_{false};
  ModelAtomics::Atomic<bool> raised_{false};
};

// The last thread sleeps on the counter. On each wake-up it takes everything that the others published, as users of
// Engine::fd() do.
struct Loop : Program {
  Loop(unsigned producers_in, SignalBug bug_in) : producers(producers_in), bug(bug_in) {
    if (gate.enter_for_good()) counter.write();
  }

  void run(unsigned thread) override {
    if (thread > producers) return consume();
    if (bug == SignalBug::sets_then_publishes) set();
    ready[thread - 1].store(1, std::memory_order_relaxed);
    if (bug != SignalBug::sets_then_publishes) set();
  }
  void set() {
    if (bug == SignalBug::flag_after_write) return flag.set([this] { counter.write(); });
    if (gate.set()) counter.write();
  }
  void clear() {
    if (bug == SignalBug::flag_after_write) return flag.clear([this] { return counter.read(); });
    gate.clear([this] { return counter.read(); });
  }
  bool take() {
    bool any = false;
    for (unsigned i = 0; i < producers; ++i)
      if (!taken[i] && ready[i].load(std::memory_order_relaxed) != 0) any = taken[i] = true;
    return any;
  }
  [[nodiscard]] bool all() const { return taken[0] && (producers < 2 || taken[1]); }
  void consume() {
    for (unsigned wakes = 0; !all();) {
      counter.wait();
      require(++wakes <= producers, "woken more than once for each event");
      if (bug == SignalBug::looks_then_clears) {
        (void)take();
        clear();
        continue;
      }
      do {
        clear();
      } while (take());
    }
  }

  unsigned producers;
  SignalBug bug;
  ModelAtomics::Atomic<int> ready[2];
  bool taken[2] = {};
  Signal gate;
  FlagGate flag;
  Counter counter;
};

// A sleeper inside the engine, as Engine::wait() with Progress::caller: it is registered only while it sleeps.
struct Waiter : Program {
  void run(unsigned thread) override {
    if (thread == 1) {
      ready.store(1, std::memory_order_relaxed);
      if (gate.set()) counter.write();
      return;
    }
    for (;;) {
      gate.clear([this] { return counter.read(); });
      if (ready.load(std::memory_order_relaxed) != 0) return;
      gate.enter();
      if (!gate.is_set()) counter.wait();
      gate.leave();
    }
  }

  ModelAtomics::Atomic<int> ready{0};
  Signal gate;
  Counter counter;
};

TEST(SignalGateModel, ASleeperTakesEachEventAndWakesAtMostOnceForIt) {
  EXPECT_EQ(explore("signal: 1 sets", {}, maker<Loop>(1u, SignalBug::none)).failure, "");
  EXPECT_EQ(explore("signal: 2 set", {.threads = 3, .stale_reads = 1}, maker<Loop>(2u, SignalBug::none)).failure, "");
}

TEST(SignalGateModel, OneThatSleepsNowAndThenIsWoken) {
  EXPECT_EQ(explore("signal: a waiter", {}, maker<Waiter>()).failure, "");
}

TEST(SignalGateModel, TheFlagThatFollowsTheWriteIsCaught) {
  expect_caught({.threads = 3, .stale_reads = 1}, swapped("signal: a flag after the write"),
                maker<Loop>(2u, SignalBug::flag_after_write));
}

TEST(SignalGateModel, EverySwappedOrMissingStepIsCaught) {
  const auto caught = [](const char* name, SignalBug bug, unsigned producers) {
    expect_caught({.threads = producers + 1, .stale_reads = 1}, swapped(name), maker<Loop>(producers, bug));
  };
  caught("signal: looks, then clears", SignalBug::looks_then_clears, 2);
  caught("signal: sets, then publishes", SignalBug::sets_then_publishes, 1);
}

TEST(SignalGateModel, NeedsEachOrderThatItAsksFor) {
  EXPECT_EQ(orders_not_needed("gates.h", {{{}, maker<Loop>(1u, SignalBug::none)},
                                          {{.threads = 3, .stale_reads = 1}, maker<Loop>(2u, SignalBug::none)},
                                          {{}, maker<Waiter>()}}),
            std::vector<std::string>{});
}

}  // namespace
}  // namespace fairway::model
