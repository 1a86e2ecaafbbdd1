#include "core/spsc_ring.h"

#include <vector>

#include "model/mutants.h"

namespace fairway::model {
namespace {

// Thread 1 produces 1, 2, ...; thread 2 consumes, by front() and pop() in turns.
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

TEST(SpscRingModel, OneCellLosesNothing) {
  EXPECT_EQ(explore("spsc: 1 cell, 5 pushes, 5 pops", {}, maker<Stream>(std::size_t{1}, 5, 5)).failure, "");
}

TEST(SpscRingModel, TwoCellsLoseNothing) {
  EXPECT_EQ(explore("spsc: 2 cells, 6 pushes, 6 pops", {}, maker<Stream>(std::size_t{2}, 6, 6)).failure, "");
}

TEST(SpscRingModel, EveryWeakerOrderIsCaught) {
  const auto make = maker<Stream>(std::size_t{1}, 3, 3);
  expect_caught({}, {"spsc: push publishes relaxed", by(1, stores(std::memory_order_release)), relax}, make);
  expect_caught({}, {"spsc: push looks for room relaxed", by(1, loads(std::memory_order_acquire)), relax}, make);
  expect_caught({}, {"spsc: front looks relaxed", by(2, loads(std::memory_order_acquire)), relax}, make);
  expect_caught({}, {"spsc: pop frees relaxed", by(2, stores(std::memory_order_release)), relax}, make);
}

}  // namespace
}  // namespace fairway::model
