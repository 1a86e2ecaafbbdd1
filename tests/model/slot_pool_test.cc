#include "core/slot_pool.h"

#include <optional>
#include <vector>

#include "model/mutants.h"

namespace fairway::model {
namespace {

// Each thread follows a script: 'a' acquires a slot and writes to it; 'r' releases the slot it has held longest. Two
// users of one slot show as a data race on its content, or as another user's mark in it.
struct Tenants : Program {
  Tenants(std::uint32_t capacity, std::vector<const char*> scripts_in)
      : pool(capacity), scripts(std::move(scripts_in)) {}

  void run(unsigned thread) override {
    std::vector<std::uint32_t> held;
    for (const char* action = scripts[thread - 1]; *action; ++action) {
      if (*action == 'a') {
        const std::optional<std::uint32_t> index = pool.acquire();
        if (!index) continue;
        require(*index < pool.capacity(), "an index that does not exist");
        pool[*index].set(static_cast<int>(thread));
        held.push_back(*index);
      } else if (!held.empty()) {
        require(pool[held.front()].get() == static_cast<int>(thread), "two tenants in one slot");
        pool.release(held.front());
        held.erase(held.begin());
      }
    }
    for (const std::uint32_t index : held)
      require(pool[index].get() == static_cast<int>(thread), "two tenants in one slot");
    kept += held.size();
  }
  void finish() override {
    std::size_t free = 0;
    while (pool.acquire()) require(++free <= pool.capacity(), "more slots than there are");
    require(free + kept == pool.capacity(), "a slot was lost");
    for (std::uint32_t i = 0; i < pool.capacity(); ++i)
      require(pool.generation(i) % 2 == 1, "a lent slot has an even generation");
  }

  SlotPool<Tracked, ModelAtomics> pool;
  std::vector<const char*> scripts;
  std::size_t kept = 0;
};

auto tenants(std::uint32_t capacity, std::vector<const char*> scripts) {
  return maker<Tenants>(capacity, scripts);
}

TEST(SlotPoolModel, TwoThreadsNeverShareASlot) {
  EXPECT_EQ(explore("slots: 2, scripts arar and ar", {}, tenants(2, {"arar", "ar"})).failure, "");
  EXPECT_EQ(explore("slots: 3, scripts aar and aara", {}, tenants(3, {"aar", "aara"})).failure, "");
}

TEST(SlotPoolModel, ThreeThreadsNeverShareASlot) {
  EXPECT_EQ(explore("slots: 1, three scripts ar", {.threads = 3}, tenants(1, {"ar", "ar", "ar"})).failure, "");
  EXPECT_EQ(explore("slots: 2, scripts ar, a and a", {.threads = 3}, tenants(2, {"ar", "a", "a"})).failure, "");
}

TEST(SlotPoolModel, AHeadThatCameBackIsNotTakenForUnchanged) {
  EXPECT_EQ(explore("slots: 2, scripts aa and aar (ABA)", {}, tenants(2, {"aa", "aar"})).failure, "");
}

TEST(SlotPoolModel, WithoutItsTagTheAbaIsCaught) {
  const Mutant untagged{"slots: the head has no tag",
                        [](const Operation& op) { return op.kind == Kind::compare_exchange; },
                        [](Operation& op) { op.operand &= 0xffffffff; }};
  expect_caught({}, untagged, tenants(2, {"aa", "aar"}));
}

// All but the order of a successful acquire(); its comment says why.
TEST(SlotPoolModel, NeedsEachOrderThatItAsksFor) {
  EXPECT_EQ(orders_not_needed("slot_pool.h", {{{}, tenants(1, {"ar", "ar"})}, {{}, tenants(2, {"ara", "ar"})}}),
            std::vector<std::string>{"compare_exchange #2 acquire"});
}

}  // namespace
}  // namespace fairway::model
