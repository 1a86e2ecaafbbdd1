#include <vector>

#include "core/queues.h"
#include "model/mutants.h"

namespace fairway::model {
namespace {

// Thread 1 produces 1, 2, ...; thread 2 consumes, alternating between front() and pop().
struct Stream : Program {
  Stream(std::size_t capacity, int pushes_in, int pops_in) : ring(capacity), pushes(pushes_in), pops(pops_in) {}

  void run(unsigned thread) override {
    if (thread == 1) {
      for (int i = 0; i < pushes; ++i) {
        Tracked value(pushed + 1);
        if (ring.push(std::move(value))) ++pushed;
      }
      require(pushed >= static_cast<int>(ring.capacity()) || pushed == pushes, "refused while there was room");
    } else {
      for (int i = 0; i < pops; ++i) take();
      require(ring.size() <= ring.capacity(), "a size beyond the capacity");
    }
  }
  void finish() override {
    while (take()) {
    }
    require(popped == pushed, "lost or doubled");
  }
  bool take() {
    if (popped % 2 == 0) {
      Tracked* front = ring.front();
      if (!front) return false;
      require(front->get() == popped + 1, "out of order");
      ring.pop();
    } else {
      Tracked out(-7);
      if (!ring.pop(out)) return false;
      require(out.get() == popped + 1, "out of order");
    }
    ++popped;
    return true;
  }

  SpscRing<Tracked, ModelAtomics> ring;
  int pushes;
  int pops;
  int pushed = 0;
  int popped = 0;
};

// A third thread asks for the size while one value passes through.
struct Onlooker : Program {
  void run(unsigned thread) override {
    if (thread == 1) ring.push(Tracked(1));
    if (thread == 2) ring.pop();
    if (thread == 3) require(ring.size() <= 1, "more than ever was inside");
  }
  SpscRing<Tracked, ModelAtomics> ring{2};
};

TEST(SpscRingModel, AnOnlookerNeverSeesMoreThanWasInside) {
  EXPECT_EQ(explore("spsc: onlooker", {.threads = 3}, maker<Onlooker>()).failure, "");
}

TEST(SpscRingModel, OneCellLosesNothing) {
  EXPECT_EQ(explore("spsc: 1 cell, 5 pushes, 5 pops", {}, maker<Stream>(std::size_t{1}, 5, 5)).failure, "");
}

TEST(SpscRingModel, TwoCellsLoseNothing) {
  EXPECT_EQ(explore("spsc: 2 cells, 5 pushes, 6 pops", {}, maker<Stream>(std::size_t{2}, 5, 6)).failure, "");
}

TEST(SpscRingModel, NeedsEachOrderThatItAsksFor) {
  EXPECT_EQ(
      orders_not_needed("queues.h", {{{}, maker<Stream>(std::size_t{1}, 3, 3)}, {{.threads = 3}, maker<Onlooker>()}}),
      std::vector<std::string>{});
}

}  // namespace
}  // namespace fairway::model
