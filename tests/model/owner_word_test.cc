#include "core/gates.h"
#include "model/mutants.h"

namespace fairway::model {
namespace {

// The first thread is the owner and takes turns; the others visit. What they share is checked for data races, and each
// leaves it as it found it.
struct Shared : Program {
  explicit Shared(unsigned turns_in) : turns(turns_in) {}

  void run(unsigned thread) override {
    for (unsigned turn = 0; turn < turns; ++turn) {
      if (!(thread == 1 ? word.take() : word.visit())) continue;
      const int before = value.get();
      value.set(before + 1);
      require(value.get() == before + 1, "two at once");
      ++times[thread - 1];
      word.leave();
    }
  }
  void finish() override {
    require(value.get() == static_cast<int>(times[0] + times[1] + times[2]), "a turn was lost");
    require(word.take(), "it is free in the end");
  }

  BasicOwnerWord<ModelAtomics> word;
  Tracked value;
  const unsigned turns;
  unsigned times[3] = {};
};

TEST(OwnerWordModel, OneAtATimeAndEachSeesWhatWasDoneBefore) {
  EXPECT_EQ(explore("owner word: owner and visitor, 3 turns", {}, maker<Shared>(3u)).failure, "");
  EXPECT_EQ(explore("owner word: owner and two visitors", {.threads = 3}, maker<Shared>(1u)).failure, "");
}

TEST(OwnerWordModel, NeedsEachOrderThatItAsksFor) {
  EXPECT_EQ(orders_not_needed("gates.h", {{{}, maker<Shared>(2u)}}), std::vector<std::string>{});
}

}  // namespace
}  // namespace fairway::model
