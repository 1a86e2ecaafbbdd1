#include "model/mutants.h"
#include "transport/region_table.h"

namespace fairway::model {
namespace {

using Slot = transport::RegionSlot<ModelAtomics>;

// Regions of generation 1 and 3 differ in every field; the slot must never show a mixture of both.
constexpr std::uint64_t kSizes[] = {0, 100, 0, 300};
std::byte memory[4];

bool is_whole(const Region& region, std::uint32_t generation) {
  return region.address == &memory[generation] && region.size_bytes == kSizes[generation] &&
         region.access == (generation == 1 ? Access::read : Access::write);
}

std::uint32_t publish(Slot& slot, std::uint32_t generation) {
  return slot.publish(&memory[generation], kSizes[generation], MemoryKind::host,
                      generation == 1 ? Access::read : Access::write);
}

// Thread 1 registers, deregisters and registers again. Thread 2 looks up the first region and then the second.
struct Reuse : Program {
  void run(unsigned thread) override {
    if (thread == 1) {
      require(publish(slot, 1) == 1, "not generation 1");
      slot.revoke();
      require(publish(slot, 3) == 3, "not generation 3");
    } else {
      Region region;
      for (const std::uint32_t generation : {1u, 3u})
        if (slot.read(generation, region)) require(is_whole(region, generation), "fields of two regions");
    }
  }
  void finish() override {
    Region region;
    require(!slot.read(1, region) && slot.read(3, region) && is_whole(region, 3), "the last region is not there");
  }
  Slot slot;
};

// How memory returns to its owner (promise 5). Thread 1 revokes the region, asks the worker, waits until it has begun
// another step, and reuses the memory. Thread 2, the worker, acknowledges at the beginning of a step and resolves the
// region within it.
enum class Bug { none, asks_before_revoking, acknowledges_in_the_middle };

struct Deregister : Program {
  explicit Deregister(Bug bug_in) : bug(bug_in) { publish(slot, 1); }

  void run(unsigned thread) override {
    if (thread == 1) {
      if (bug != Bug::asks_before_revoking) slot.revoke();
      asked.store(1, std::memory_order_release);
      if (bug == Bug::asks_before_revoking) slot.revoke();
      if (passed.load(std::memory_order_acquire) == 1) bytes.set(1);
      return;
    }
    for (int step = 0; step < 2; ++step) {
      if (bug != Bug::acknowledges_in_the_middle) acknowledge();
      Region region;
      const bool resolved = slot.read(1, region);
      if (bug == Bug::acknowledges_in_the_middle) acknowledge();
      if (resolved) bytes.set(2);
    }
  }

  void acknowledge() {
    if (asked.load(std::memory_order_acquire) == 1) passed.store(1, std::memory_order_release);
  }

  Bug bug;
  Slot slot;
  ModelAtomics::Atomic<int> asked{0};
  ModelAtomics::Atomic<int> passed{0};
  Tracked bytes{0};
};

TEST(RegionSlotModel, AReaderNeverSeesFieldsOfTwoRegions) {
  EXPECT_EQ(explore("region: publish, revoke, publish", {}, maker<Reuse>()).failure, "");
}

TEST(RegionSlotModel, NoWorkerTouchesMemoryAfterItAcknowledgedTheRevocation) {
  EXPECT_EQ(explore("region: revoke, ask, wait, reuse", {}, maker<Deregister>(Bug::none)).failure, "");
}

TEST(RegionSlotModel, TheWorkersAnswerMustBeAcquired) {
  const auto again = maker<Deregister>(Bug::none);
  expect_caught({}, {"region: asks relaxed", by(1, stores(std::memory_order_release)), relax}, again);
  expect_caught({}, {"region: acknowledges relaxed", by(2, stores(std::memory_order_release)), relax}, again);
}

TEST(RegionSlotModel, EverySwappedStepIsCaught) {
  expect_caught({}, swapped("region: asks the worker, then revokes"), maker<Deregister>(Bug::asks_before_revoking));
  expect_caught({}, swapped("region: acknowledges before its last use"),
                maker<Deregister>(Bug::acknowledges_in_the_middle));
}

// All but the order of the revocation; its comment says why.
TEST(RegionSlotModel, NeedsEachOrderThatItAsksFor) {
  EXPECT_EQ(orders_not_needed("region_table.h", {{{}, maker<Reuse>()}, {{}, maker<Deregister>(Bug::none)}}),
            std::vector<std::string>{"store #0 seq_cst"});
}

}  // namespace
}  // namespace fairway::model
