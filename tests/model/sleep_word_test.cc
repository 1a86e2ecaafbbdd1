#include "collectives/host/sleep_word.h"

#include <array>

#include "model/mutants.h"

// How ranks of a communicator whose zones are mapped sleep and are woken.
namespace fairway::model {
namespace {

using Word = collectives::BasicSleepWord<ModelAtomics>;

// The bugs to plant.
enum class WordBug { none, look_then_announce, no_second_look, claim_then_publish, no_fence };

// Ranks 0 and 1 (threads 1 and 2) each publish a message by its sequence word; the last thread takes rank 0's, then
// rank 1's, and sleeps on that rank's bell while it has not come.
struct Ranks : Program {
  Ranks(unsigned publishers_in, WordBug bug_in) : publishers(publishers_in), bug(bug_in) {}

  void run(unsigned thread) override { thread <= publishers ? publish(thread - 1) : take(); }
  void publish(std::uint32_t self) {
    payload[self].set(7);
    if (bug == WordBug::claim_then_publish) wake(self);
    sequence[self].store(1, std::memory_order_release);
    if (bug != WordBug::claim_then_publish) wake(self);
  }
  void wake(std::uint32_t self) {
    if (bug != WordBug::no_fence) Word::published();
    if (word.claim(self)) bell[self].set();
  }
  bool has_come(std::uint32_t peer) { return sequence[peer].load(std::memory_order_acquire) != 0; }
  void take() {
    for (std::uint32_t peer = 0; peer < publishers; ++peer) {
      while (!has_come(peer)) {
        if (bug == WordBug::look_then_announce) {
          if (has_come(peer)) continue;
          word.announce(peer);
          bell[peer].wait();
        } else {
          word.announce(peer);
          if (bug == WordBug::no_second_look || !has_come(peer)) bell[peer].wait();
        }
        word.awake();
      }
      require(payload[peer].get() == 7, "a message without its bytes");
    }
  }

  unsigned publishers;
  WordBug bug;
  std::array<ModelAtomics::Atomic<int>, 2> sequence;
  std::array<Tracked, 2> payload{Tracked{0}, Tracked{0}};
  Word word;
  std::array<Event, 2> bell;
};

const Options kTwo{.threads = 3, .stale_reads = 1};

TEST(SleepWordModel, APublisherNeverLeavesTheSleeperAsleepOnAMessage) {
  EXPECT_EQ(explore("word: 1 publisher", {}, maker<Ranks>(1U, WordBug::none)).failure, "");
}

TEST(SleepWordModel, ARankThatIsNotWaitedForTakesNobodysAnnouncement) {
  EXPECT_EQ(explore("word: 2 publishers", kTwo, maker<Ranks>(2U, WordBug::none)).failure, "");
  const Mutant blind{"word: claims whatever is announced",
                     [](const Operation& op) { return op.kind == Kind::compare_exchange; },
                     [](Operation& op) { op.always_succeeds = true; }};
  expect_caught(kTwo, blind, maker<Ranks>(2U, WordBug::none));
}

TEST(SleepWordModel, EveryWeakerFenceIsCaught) {
  const auto fence = fences(std::memory_order_seq_cst);
  const auto make = maker<Ranks>(1U, WordBug::none);
  expect_caught({}, {"word: the publisher's fence is acq_rel", by(1, fence), weaken_to_acq_rel}, make);
  expect_caught({}, {"word: the sleeper's fence is acq_rel", by(2, fence), weaken_to_acq_rel}, make);
}

TEST(SleepWordModel, EverySwappedOrMissingStepIsCaught) {
  const auto caught = [](const char* name, WordBug bug) { expect_caught({}, swapped(name), maker<Ranks>(1U, bug)); };
  caught("word: looks, then announces", WordBug::look_then_announce);
  caught("word: does not look again", WordBug::no_second_look);
  caught("word: claims, then publishes", WordBug::claim_then_publish);
  caught("word: publishes without a fence", WordBug::no_fence);
}

TEST(SleepWordModel, NeedsEachOrderThatItAsksFor) {
  EXPECT_EQ(orders_not_needed("sleep_word.h", {{{}, maker<Ranks>(1U, WordBug::none)}}), std::vector<std::string>{});
}

}  // namespace
}  // namespace fairway::model
