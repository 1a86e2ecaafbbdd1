#include "engine/tables/completions.h"
#include "model/mutants.h"

namespace fairway::model {
namespace {

using Table = engine::AtOnceTable<ModelAtomics, 1>;

// The first thread adds completions to a table of one place, the others collect each of them if they can.
struct Collecting : Program {
  explicit Collecting(std::uint32_t adds_in) : adds(adds_in) {}

  void run(unsigned thread) override {
    if (thread == 1) {
      for (std::uint32_t i = 0; i < adds; ++i) {
        Table::Past* const past = table.space();
        if (past == nullptr) continue;
        past->bytes = 10 * (++added);
        (void)table.add(nullptr, false);
      }
      return;
    }
    for (std::uint32_t generation = 1; generation <= adds; ++generation) {
      std::uint64_t bytes = 0;
      void* user_data = nullptr;
      if (!table.collect(0, generation, false, bytes, user_data)) continue;
      require(bytes == 10u * generation, "another's completion");
      require(!table.collect(0, generation, false, bytes, user_data), "collected twice by one");
      ++collected[thread - 2][generation];
    }
  }
  void finish() override {
    for (std::uint32_t generation = 1; generation <= adds; ++generation)
      require(collected[0][generation] + collected[1][generation] <= 1, "collected twice");
  }

  Table table;
  const std::uint32_t adds;
  std::uint32_t added = 0;
  int collected[2][4] = {};
};

TEST(AtOnceTableModel, EachCompletionIsCollectedOnceAndWhole) {
  EXPECT_EQ(explore("at once: 1 added, 2 collect", {.threads = 3}, maker<Collecting>(1u)).failure, "");
  EXPECT_EQ(explore("at once: 2 added, 1 collects", {}, maker<Collecting>(2u)).failure, "");
  EXPECT_EQ(explore("at once: 2 added, 2 collect", {.threads = 3}, maker<Collecting>(2u)).failure, "");
}

TEST(AtOnceTableModel, WithoutItsReleaseAnotherCompletionIsSeen) {
  const Mutant relaxed{"at once: the word is published relaxed", by(1, stores(std::memory_order_release)),
                       [](Operation& op) { op.order = std::memory_order_relaxed; }};
  expect_caught({}, relaxed, maker<Collecting>(2u));
}

TEST(AtOnceTableModel, WithoutItsCompareAndSwapOneIsCollectedTwice) {
  const Mutant blind{"at once: the word is taken without a look",
                     [](const Operation& op) { return op.kind == Kind::compare_exchange; },
                     [](Operation& op) { op.always_succeeds = true; }};
  expect_caught({.threads = 3}, blind, maker<Collecting>(1u));
}

}  // namespace
}  // namespace fairway::model
