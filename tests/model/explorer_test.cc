#include "model/explorer.h"

#include <set>
#include <utility>

#include "model/mutants.h"

// Tests the explorer itself, on litmus tests with known outcomes from the C++ standard and the literature.
namespace fairway::model {
namespace {

using Seen = std::set<std::pair<int, int>>;
constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kAcquire = std::memory_order_acquire;
constexpr auto kRelease = std::memory_order_release;
constexpr auto kSeqCst = std::memory_order_seq_cst;

// Each thread writes its own variable and reads the other's.
struct StoreBuffer : Program {
  StoreBuffer(Seen* seen_in, std::memory_order store, std::memory_order load, std::memory_order fence)
      : seen(seen_in), store_order(store), load_order(load), fence_order(fence) {}
  void run(unsigned thread) override {
    auto& mine = thread == 1 ? x : y;
    auto& other = thread == 1 ? y : x;
    mine.store(1, store_order);
    if (fence_order != kRelaxed) ModelAtomics::fence(fence_order);
    (thread == 1 ? first : second) = other.load(load_order);
  }
  void finish() override { seen->insert({first, second}); }

  Seen* seen;
  std::memory_order store_order, load_order, fence_order;
  ModelAtomics::Atomic<int> x{0}, y{0};
  int first = -1, second = -1;
};

Seen store_buffer(std::memory_order store, std::memory_order load, std::memory_order fence) {
  Seen seen;
  EXPECT_TRUE(Explorer({}).run(maker<StoreBuffer>(&seen, store, load, fence)).ok());
  return seen;
}

TEST(Explorer, StoreBuffersDelayStoresUnlessSequentiallyConsistent) {
  const std::pair<int, int> both_old{0, 0};
  EXPECT_TRUE(store_buffer(kRelaxed, kRelaxed, kRelaxed).contains(both_old));
  EXPECT_TRUE(store_buffer(kRelease, kAcquire, kRelaxed).contains(both_old));
  EXPECT_TRUE(store_buffer(kRelaxed, kRelaxed, std::memory_order_acq_rel).contains(both_old));
  EXPECT_TRUE(store_buffer(kSeqCst, kAcquire, kRelaxed).contains(both_old));
  EXPECT_EQ(store_buffer(kSeqCst, kSeqCst, kRelaxed), (Seen{{0, 1}, {1, 0}, {1, 1}}));
  EXPECT_EQ(store_buffer(kRelaxed, kRelaxed, kSeqCst), (Seen{{0, 1}, {1, 0}, {1, 1}}));
}

// One thread writes data, then a flag; the other reads the flag, then the data.
struct Message : Program {
  Message(Seen* seen_in, std::memory_order store, std::memory_order load, bool fences_in)
      : seen(seen_in), store_order(store), load_order(load), fences(fences_in) {}
  void run(unsigned thread) override {
    if (thread == 1) {
      data.store(1, kRelaxed);
      if (fences) ModelAtomics::fence(kRelease);
      flag.store(1, store_order);
    } else {
      first = flag.load(load_order);
      if (fences) ModelAtomics::fence(kAcquire);
      second = data.load(kRelaxed);
    }
  }
  void finish() override { seen->insert({first, second}); }

  Seen* seen;
  std::memory_order store_order, load_order;
  bool fences;
  ModelAtomics::Atomic<int> data{0}, flag{0};
  int first = -1, second = -1;
};

Seen message(std::memory_order store, std::memory_order load, bool fences) {
  Seen seen;
  EXPECT_TRUE(Explorer({}).run(maker<Message>(&seen, store, load, fences)).ok());
  return seen;
}

TEST(Explorer, AFlagCarriesItsDataOnlyFromReleaseToAcquire) {
  const Seen ordered{{0, 0}, {0, 1}, {1, 1}};
  EXPECT_TRUE(message(kRelaxed, kRelaxed, false).contains({1, 0}));
  EXPECT_TRUE(message(kRelease, kRelaxed, false).contains({1, 0}));
  EXPECT_TRUE(message(kRelaxed, kAcquire, false).contains({1, 0}));
  EXPECT_EQ(message(kRelease, kAcquire, false), ordered);
  EXPECT_EQ(message(kRelaxed, kRelaxed, true), ordered);
}

// Two readers of two independent writers may disagree on their order, unless all is sequentially consistent.
struct IndependentReads : Program {
  IndependentReads(bool* disagreed_in, std::memory_order store, std::memory_order load)
      : disagreed(disagreed_in), store_order(store), load_order(load) {}
  void run(unsigned thread) override {
    if (thread <= 2) return (thread == 1 ? x : y).store(1, store_order);
    auto& first = thread == 3 ? x : y;
    auto& second = thread == 3 ? y : x;
    const int saw = first.load(load_order);
    only_first[thread - 3] = second.load(load_order) == 0 && saw == 1;
  }
  void finish() override { *disagreed = *disagreed || (only_first[0] && only_first[1]); }

  bool* disagreed;
  std::memory_order store_order, load_order;
  ModelAtomics::Atomic<int> x{0}, y{0};
  bool only_first[2] = {};
};

TEST(Explorer, ReadersAgreeOnAnOrderOnlyWhenSequentiallyConsistent) {
  for (const bool strong : {false, true}) {
    bool disagreed = false;
    const auto make = maker<IndependentReads>(&disagreed, strong ? kSeqCst : kRelease, strong ? kSeqCst : kAcquire);
    EXPECT_TRUE(Explorer({.threads = 4}).run(make).ok());
    EXPECT_EQ(disagreed, !strong);
  }
}

// A relaxed read-modify-write between a release and an acquire passes the release on; a relaxed store does not.
struct ReleaseSequence : Program {
  explicit ReleaseSequence(bool store_in) : store(store_in) {}
  void run(unsigned thread) override {
    if (thread == 1) {
      data.set(1);
      flag.store(1, kRelease);
    } else if (thread == 2) {
      if (store && flag.load(kRelaxed) == 1) flag.store(2, kRelaxed);
      if (!store) flag.fetch_add(1, kRelaxed);
    } else if (flag.load(kAcquire) == 2) {
      require(data.get() == 1, "old data");
    }
  }
  bool store;
  ModelAtomics::Atomic<int> flag{0};
  Tracked data{0};
};

TEST(Explorer, OnlyReadModifyWritesContinueAReleaseSequence) {
  EXPECT_EQ(Explorer({.threads = 3}).run(maker<ReleaseSequence>(false)).failure, "");
  EXPECT_NE(Explorer({.threads = 3}).run(maker<ReleaseSequence>(true)).failure.find("data race"), std::string::npos);
}

// Each thread does `steps` writes, to one variable or to its own.
struct Writers : Program {
  Writers(bool shared_in, int steps_in) : shared(shared_in), steps(steps_in) {}
  void run(unsigned thread) override {
    for (int i = 0; i < steps; ++i) (shared || thread == 1 ? x : y).store(i, kRelaxed);
  }
  bool shared;
  int steps;
  ModelAtomics::Atomic<int> x{0}, y{0};
};

TEST(Explorer, RunsEachOrderOfDependentOperationsExactlyOnce) {
  EXPECT_EQ(Explorer({}).run(maker<Writers>(true, 2)).executions, 6u);                 // 4! / (2! 2!)
  EXPECT_EQ(Explorer({}).run(maker<Writers>(true, 5)).executions, 252u);               // 10! / (5! 5!)
  EXPECT_EQ(Explorer({.threads = 3}).run(maker<Writers>(true, 3)).executions, 1680u);  // 9! / (3! 3! 3!)
  EXPECT_EQ(Explorer({}).run(maker<Writers>(false, 5)).executions, 1u);
}

TEST(Explorer, LeavesOutNoOutcome) {
  for (const auto store : {kRelaxed, kRelease, kSeqCst})
    for (const auto load : {kRelaxed, kAcquire, kSeqCst})
      for (const bool buffer : {false, true}) {
        Seen all, reduced;
        for (Seen* seen : {&all, &reduced}) {
          const auto make =
              buffer ? maker<StoreBuffer>(seen, store, load, kRelaxed) : maker<Message>(seen, store, load, false);
          EXPECT_TRUE(Explorer({.reduce = seen == &reduced}).run(make).ok());
        }
        EXPECT_EQ(all, reduced);
      }
}

struct Unordered : Program {
  void run(unsigned thread) override { thread == 1 ? data.set(1) : static_cast<void>(data.get()); }
  Tracked data{0};
};

TEST(Explorer, FindsADataRaceInEveryOrder) {
  EXPECT_NE(Explorer({}).run(maker<Unordered>()).failure.find("data race"), std::string::npos);
}

struct BothWait : Program {
  void run(unsigned thread) override {
    (thread == 1 ? a : b).wait();
    (thread == 1 ? b : a).set();
  }
  Event a, b;
};

TEST(Explorer, FindsThreadsThatWaitForEver) {
  EXPECT_NE(Explorer({}).run(maker<BothWait>()).failure.find("waits for ever"), std::string::npos);
}

struct Swap : Program {
  void run(unsigned thread) override {
    int expected = 0;
    if (x.compare_exchange_strong(expected, static_cast<int>(thread), kRelaxed, kRelaxed))
      winners.set(winners.get() + 1);
  }
  void finish() override { require(winners.get() == 1, "not one winner"); }
  ModelAtomics::Atomic<int> x{0};
  Tracked winners{0};
};

TEST(Explorer, ACompareExchangeHasOneWinner) {
  EXPECT_EQ(Explorer({.threads = 3}).run(maker<Swap>()).failure, "");
  Mutant mutant{"compare_exchange does not compare",
                [](const Operation& op) { return op.kind == Kind::compare_exchange; },
                [](Operation& op) { op.always_succeeds = true; }};
  expect_caught({}, mutant, maker<Swap>());
}

}  // namespace
}  // namespace fairway::model
