#include "core/gates.h"
#include "core/queues.h"
#include "model/mutants.h"

namespace fairway::model {
namespace {

using Gate = BasicSleepGate<ModelAtomics>;

// The bugs to plant.
enum class SleepBug { none, check_then_announce, no_second_look, wake_then_publish, always_clear };

// The last thread takes one value from each producer and sleeps on an eventfd when there is none. As in production,
// only a queue cell's sequence number tells it of work.
struct Sleeper : Program {
  Sleeper(unsigned producers_in, SleepBug bug_in) : producers(producers_in), bug(bug_in) {}

  void run(unsigned thread) override { thread <= producers ? produce(static_cast<int>(thread)) : consume(); }
  void produce(int value) {
    if (bug == SleepBug::wake_then_publish) wake();
    require(queue.push(Tracked(value)), "no room");
    if (bug != SleepBug::wake_then_publish) wake();
  }
  void wake() {
    if (gate.claim_wake()) event.set();
  }
  void consume() {
    unsigned taken = 0;
    for (Tracked out(0); taken < producers;) {
      if (queue.pop(out)) {
        ++taken;
        continue;
      }
      if (bug == SleepBug::check_then_announce) {
        if (!queue.empty()) continue;
        gate.announce();
        event.wait();
      } else {
        gate.announce();
        if (bug == SleepBug::always_clear) gate.awake();
        if (bug == SleepBug::no_second_look || queue.empty()) event.wait();
      }
      gate.awake();
    }
  }

  unsigned producers;
  SleepBug bug;
  MpscQueue<Tracked, ModelAtomics> queue{2};
  Gate gate;
  Event event;
};

// A futex: sleeps only while the word holds the expected value, which the kernel checks under its lock.
struct FutexSleeper : Program {
  void run(unsigned thread) override {
    if (thread == 1) {
      data.set(1);
      ready.store(1, std::memory_order_release);
      if (gate.claim_wake()) wake();
      return;
    }
    while (ready.load(std::memory_order_acquire) == 0) {
      gate.announce();
      if (ready.load(std::memory_order_acquire) == 0) wait(Gate::kAsleep);
      gate.awake();
    }
    require(data.get() == 1, "woken without the data");
  }
  void wait(std::uint32_t seen) {
    // One step of the model: reads the newest value and queues the thread.
    if (gate.word().fetch_add(0, std::memory_order_relaxed) != seen) return;
    queued = true;
    kernel.wait();
  }
  void wake() {
    gate.word().fetch_add(0, std::memory_order_relaxed);
    if (std::exchange(queued, false)) kernel.set();
  }

  ModelAtomics::Atomic<int> ready{0};
  Tracked data{0};
  Gate gate;
  bool queued = false;  // in the kernel; changes together with the step before it
  Event kernel;
};

// Two producers after one announcement: exactly one must be told to wake the consumer.
struct Claims : Program {
  void run(unsigned thread) override {
    if (gate.claim_wake()) claimed[thread - 1] = true;
  }
  void finish() override { require(claimed[0] + claimed[1] == 1, "not exactly one producer wakes"); }
  Claims() { gate.announce(); }
  Gate gate;
  bool claimed[2] = {};
};

TEST(SleepGateModel, AProducerNeverLeavesTheConsumerAsleepOnWork) {
  EXPECT_EQ(explore("gate: 1 producer, eventfd", {}, maker<Sleeper>(1u, SleepBug::none)).failure, "");
}

TEST(SleepGateModel, TwoProducersNeverLeaveTheConsumerAsleepOnWork) {
  EXPECT_EQ(explore("gate: 2 producers, eventfd", {.threads = 3, .stale_reads = 1}, maker<Sleeper>(2u, SleepBug::none))
                .failure,
            "");
}

TEST(SleepGateModel, AFutexNeverSleepsOnWork) {
  EXPECT_EQ(explore("gate: 1 producer, futex", {}, maker<FutexSleeper>()).failure, "");
}

TEST(SleepGateModel, ExactlyOneProducerWakes) {
  EXPECT_EQ(explore("gate: 2 claims", {}, maker<Claims>()).failure, "");
}

TEST(SleepGateModel, EveryWeakerFenceIsCaught) {
  const auto fence = fences(std::memory_order_seq_cst);
  const auto make = maker<Sleeper>(1u, SleepBug::none);
  expect_caught({}, {"gate: the producer's fence is acq_rel", by(1, fence), weaken_to_acq_rel}, make);
  expect_caught({}, {"gate: the consumer's fence is acq_rel", by(2, fence), weaken_to_acq_rel}, make);
  expect_caught({}, {"gate: both fences are acq_rel", fence, weaken_to_acq_rel}, maker<FutexSleeper>());
}

TEST(SleepGateModel, EverySwappedOrMissingStepIsCaught) {
  const auto caught = [](const char* name, SleepBug bug) { expect_caught({}, swapped(name), maker<Sleeper>(1u, bug)); };
  caught("gate: looks, then announces", SleepBug::check_then_announce);
  caught("gate: does not look again", SleepBug::no_second_look);
  caught("gate: wakes, then publishes", SleepBug::wake_then_publish);
  caught("gate: takes the announcement back before sleeping", SleepBug::always_clear);
  Mutant blind{"gate: claims by a load only", [](const Operation& op) { return op.kind == Kind::exchange; },
               [](Operation& op) { op.kind = Kind::load; }};
  expect_caught({}, blind, maker<Claims>());
}

TEST(SleepGateModel, NeedsEachOrderThatItAsksFor) {
  EXPECT_EQ(orders_not_needed("gates.h", {{{}, maker<Sleeper>(1u, SleepBug::none)}, {{}, maker<Claims>()}}),
            std::vector<std::string>{});
}

}  // namespace
}  // namespace fairway::model
