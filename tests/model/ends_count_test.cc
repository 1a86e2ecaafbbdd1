#include "engine/tables/completions.h"
#include "model/mutants.h"

namespace fairway::model {
namespace {

// The first thread ends a transfer and tells who watches; the second waits for that. What ended is checked for data
// races.
struct Watched : Program {
  void run(unsigned thread) override { thread == 1 ? end() : wait(); }
  void end() {
    completion.set(1);
    ended.store(1, std::memory_order_seq_cst);
    if (ends.noted()) wake();
  }
  void wait() {
    ends.begin();
    for (;;) {
      const std::uint32_t seen = ends.seen();
      if (ended.load(std::memory_order_seq_cst) != 0) break;
      sleep(seen);
    }
    ends.end();
    require(completion.get() == 1, "woken without the completion");
  }
  // A futex, as in the tests of SleepGate: one step reads the newest value and queues the thread.
  void sleep(std::uint32_t seen) {
    if (ends.word().fetch_add(0, std::memory_order_relaxed) != seen) return;
    queued = true;
    kernel.wait();
  }
  void wake() {
    ends.word().fetch_add(0, std::memory_order_relaxed);
    if (std::exchange(queued, false)) kernel.set();
  }

  engine::EndsCount<ModelAtomics> ends;
  ModelAtomics::Atomic<std::uint32_t> ended{0};
  Tracked completion{0};
  bool queued = false;
  Event kernel;
};

TEST(EndsCountModel, NobodySleepsOverAnEnd) {
  EXPECT_EQ(explore("ends count: one that ends, one that waits", {}, maker<Watched>()).failure, "");
}

TEST(EndsCountModel, NeedsEachOrderThatItAsksFor) {
  // Without these two a processor may count the end before it stores it: the model has no stores that overtake others.
  EXPECT_EQ(orders_not_needed("completions.h", {{{}, maker<Watched>()}}),
            (std::vector<std::string>{"load #1 acquire", "fetch_add #1 release"}));
}

}  // namespace
}  // namespace fairway::model
