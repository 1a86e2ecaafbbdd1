#include <vector>

#include "core/gates.h"
#include "core/queues.h"
#include "model/mutants.h"

namespace fairway::model {
namespace {

// How a worker takes what threads submit: through its queue, or at once in its place where nothing submitted before is
// left (Worker::start_now). Thread 1 submits `each` values. Of the threads behind it each submits one: so the first may
// find its own earlier value hidden behind one that another is still putting there. The last is the worker, if it takes
// a turn before the end.
struct Submitters : Program {
  Submitters(int each_in, unsigned beside_in, bool asks_whether_empty_in)
      : each(each_in), beside(beside_in), asks_whether_empty(asks_whether_empty_in) {}

  void run(unsigned thread) override {
    if (thread == 1) {
      for (int value = 1; value <= each; ++value) submit(value);
    } else if (thread <= 1 + beside) {
      require(queue.push(static_cast<int>(10 * thread)), "full");
    } else if (word.take()) {
      take_all();
      word.leave();
    }
  }
  void finish() override {
    require(word.take(), "it is free in the end");
    take_all();
    int before = 0;
    for (const int value : started) {
      if (value >= 10) continue;
      require(value == before + 1, "a thread's second submission started before its first");
      before = value;
    }
    require(before == each && started.size() == static_cast<std::size_t>(each) + beside, "one was lost");
  }

 private:
  void submit(int value) {
    if (word.visit()) {
      const bool now = asks_whether_empty ? queue.empty() : queue.none_claimed();
      if (now) started.push_back(value);
      word.leave();
      if (now) return;
    }
    require(queue.push(std::move(value)), "full");
  }
  void take_all() {
    for (int value = 0; queue.pop(value);) started.push_back(value);
  }

  const int each;
  const unsigned beside;
  const bool asks_whether_empty;
  BasicOwnerWord<ModelAtomics> word;
  MpscQueue<int, ModelAtomics> queue{4};
  std::vector<int> started;  // by who has the word
};

TEST(ShortWayModel, KeepsTheOrderOfEachThreadBesideOthersThatSubmit) {
  EXPECT_EQ(explore("short way: a worker, 2 values, 1 beside", {.threads = 3, .stale_reads = 1},
                    maker<Submitters>(2, 1u, false))
                .failure,
            "");
}

TEST(ShortWayModel, KeepsTheOrderAmongThreeSubmitters) {
  EXPECT_EQ(explore("short way: 2 values, 2 beside", {.threads = 3, .stale_reads = 1}, maker<Submitters>(2, 2u, false))
                .failure,
            "");
}

TEST(ShortWayModel, AQueueThatSeemsEmptyIsNotEnough) {
  EXPECT_NE(explore("short way: asks whether the queue is empty", {.threads = 3, .stale_reads = 1},
                    maker<Submitters>(2, 1u, true))
                .failure,
            "");
}

}  // namespace
}  // namespace fairway::model
