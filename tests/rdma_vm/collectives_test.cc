#include <csignal>
#include <cstdio>
#include <map>
#include <mutex>
#include <set>

#include <gtest/gtest.h>

#include "process/collectives/case.h"
#include "process/collectives/group.h"
#include "process/collectives/switches.h"
#include "rdma_vm/ends.h"

// Collectives over real queue pairs: ranks take turns at the two devices, so half of the messages cross the cable.
namespace fairway::rdma {
namespace {

constexpr std::size_t kFew = 1000;          // elements
constexpr std::uint64_t kMost = 160 << 10;  // bytes; the guest is emulated

GroupOptions over_verbs(int size) {
  GroupOptions options;
  options.size = size;
  options.transports = {"verbs"};
  options.change = [](EngineOptions& engine, int rank) {
    engine.rdma.devices = {device_for(rank % 2 == 0 ? "rxe0" : "rxe1")};
  };
  return options;
}

struct OverVerbs : testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, OverVerbs, testing::Values(2, 3, 4));
struct AroundSwitches : OverVerbs {};  // minutes; 3 ranks have the algorithms of 4
INSTANTIATE_TEST_SUITE_P(Ranks, AroundSwitches, testing::Values(2, 4));

// Each kind below, at and above each size at which it takes another algorithm or has a message more; then without
// anybody waiting for all.
TEST_P(AroundSwitches, EveryValueIsRight) {
  std::once_flag once;
  std::map<CollectiveKind, std::set<std::size_t>> all;
  run_group(over_verbs(GetParam()), [&](Engine& engine, Communicator& group) {
    for (const LinkMetrics& link : engine.metrics().links) EXPECT_TRUE(link.name.starts_with("verbs")) << link.name;
    std::call_once(once, [&] {
      for (const CollectiveKind kind : kMoving) all[kind] = Finder(group, kind, {}, false, kMost).counts();
    });
    for (const auto& [kind, counts] : all)
      for (const std::size_t count : counts)
        for (const bool local : {false, true})
          if (!local || count <= kFew)
            if (!run_case(group,
                          {kind, Algorithm::automatic, DataType::f32, Reduction::sum, count, 1, false, 0, local}))
              return;
  });
}

TEST_P(OverVerbs, EveryAlgorithmIsRight) {
  run_group(over_verbs(GetParam()), [](Engine&, Communicator& group) {
    for (const CollectiveKind kind : kMoving)
      for (const Algorithm algorithm : collectives::algorithms_of(kind))
        for (const std::size_t count : {0U, 1U, 1000U, 20'000U})
          if (count <= kFew || group.size() == 2)
            if (!run_case(group, {kind, algorithm, DataType::f32, Reduction::sum, count, 0, false, 1})) return;
  });
}

int complain(const char* what, const Status& status) {
  std::fprintf(stderr, "%s: %s\n", what, status.to_string().c_str());
  return 1;
}

Status sum(Communicator& group, float& value) {
  return group.run(
      {.kind = CollectiveKind::all_reduce, .input = &value, .output = &value, .count = 1, .type = DataType::f32});
}

TEST(OverVerbsToo, AKilledRankIsNamedAndTheOthersGoOn) {
  const auto ends = run_processes(over_verbs(4), [](Engine&, Communicator& group) {
    float value = 1;
    if (const Status status = sum(group, value); !status) return complain("before", status);
    if (group.rank() == 2) ::raise(SIGKILL);
    const Status status = sum(group, value);
    if (status || group.failure().rank != 2) return complain("who", status);
    auto rest = group.shrink();
    if (!rest) return complain("shrink", rest.status());
    float one = 1;
    if (const Status again = sum(*rest, one); !again) return complain("after", again);
    return rest->size() == 3 && one == 3 ? 0 : 2;
  });
  ASSERT_EQ(ends.size(), 4U);
  for (std::size_t rank = 0; rank < 4; ++rank)
    EXPECT_EQ(ends[rank].well, rank != 2) << "rank " << rank << ": " << ends[rank].said;
}

}  // namespace
}  // namespace fairway::rdma
