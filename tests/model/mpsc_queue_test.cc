#include <vector>

#include "core/queues.h"
#include "model/mutants.h"

namespace fairway::model {
namespace {

// The first threads are producers, the last one is the owner. A value is 10 * producer + its index.
struct Traffic : Program {
  Traffic(unsigned producers_in, int each_in, int pops_in) : producers(producers_in), each(each_in), pops(pops_in) {}

  void run(unsigned thread) override {
    if (thread <= producers) {
      for (int i = 0; i < each; ++i) {
        Tracked value(static_cast<int>(10 * thread) + i);
        if (queue.push(std::move(value))) {
          pushed[thread].push_back(static_cast<int>(10 * thread) + i);
        } else {
          require(value.get() == static_cast<int>(10 * thread) + i, "a refused value was taken from its owner");
          require(each * static_cast<int>(producers) > static_cast<int>(queue.capacity()),
                  "refused while there was room");
        }
      }
    } else {
      for (int i = 0; i < pops; ++i) take();
    }
  }
  void finish() override {
    while (take()) {
    }
    require(queue.empty(), "a queue drained is not empty");
    for (unsigned p = 1; p <= producers; ++p) require(popped[p] == pushed[p], "lost, doubled or out of order");
  }
  bool take() {
    Tracked out(-7);
    if (!queue.pop(out)) return false;
    const int value = out.get();
    require(value > 0, "a value that nobody pushed");
    popped[static_cast<std::size_t>(value / 10)].push_back(value);
    return true;
  }

  unsigned producers;
  int each;
  int pops;
  MpscQueue<Tracked, ModelAtomics> queue{2};
  std::vector<int> pushed[3];
  std::vector<int> popped[3];
};

// Two values for two cells: thread 1 pushes its value again after the owner returned it, thread 2 pushes its value
// once. Neither may ever see a full queue.
struct GiveBack : Program {
  void run(unsigned thread) override {
    if (thread == 3) {
      Tracked out(-7);
      if (queue.pop(out) && out.get() == 1) given_back.store(1, std::memory_order_release);
      return;
    }
    require(queue.push(Tracked(static_cast<int>(thread))), "no room for the first time");
    if (thread == 1 && given_back.load(std::memory_order_acquire) == 1)
      require(queue.push(Tracked(1)), "no room for what was given back");
  }
  MpscQueue<Tracked, ModelAtomics> queue{2};
  ModelAtomics::Atomic<int> given_back{0};
};

TEST(MpscQueueModel, WhatTheOwnerGaveBackAlwaysHasRoom) {
  EXPECT_EQ(explore("mpsc: 2 things, 2 cells, given back", {.threads = 3}, maker<GiveBack>()).failure, "");
}

TEST(MpscQueueModel, TwoProducersAndTheOwnerLoseNothing) {
  EXPECT_EQ(explore("mpsc: 2 producers x 1, 5 pops", {.threads = 3}, maker<Traffic>(2u, 1, 5)).failure, "");
}

TEST(MpscQueueModel, FullAndRoundTheEndLosesNothing) {
  EXPECT_EQ(explore("mpsc: 1 producer x 6, 6 pops, 2 cells", {.threads = 2}, maker<Traffic>(1u, 6, 6)).failure, "");
}

TEST(MpscQueueModel, TwoProducersOnAFullQueueLoseNothing) {
  const Options options{.threads = 3, .stale_reads = 1};
  EXPECT_EQ(explore("mpsc: 2 producers x 2, 2 pops, 2 cells", options, maker<Traffic>(2u, 2, 2)).failure, "");
}

TEST(MpscQueueModel, AClaimWithoutComparingIsCaught) {
  const Mutant mutant{"mpsc: tail is claimed without comparing",
                      [](const Operation& op) { return op.kind == Kind::compare_exchange; },
                      [](Operation& op) { op.always_succeeds = true; }};
  expect_caught({.threads = 3}, mutant, maker<Traffic>(2u, 1, 2));
}

TEST(MpscQueueModel, NeedsEachOrderThatItAsksFor) {
  EXPECT_EQ(
      orders_not_needed("queues.h", {{{.threads = 2}, maker<Traffic>(1u, 4, 3)}, {{.threads = 3}, maker<GiveBack>()}}),
      std::vector<std::string>{});
}

}  // namespace
}  // namespace fairway::model
