#include <algorithm>
#include <map>

#include "conformance/world.h"

// Cancel, deregister, disconnect and close while slices are in flight: each keeps its one event, and memory is its
// owner's.
namespace fairway::conformance {

FAIRWAY_CLAIMS(Leave);

namespace {

struct Traffic {
  Traffic(World& world, std::uint64_t seed, Op op) : near(kSize * kCount), far(kSize * kCount) {
    (op == Op::read ? far : near).fill(seed);
    const auto links = world.a().wait_links(world.links());
    local = world.a().remember(near, Access::none);
    remote = world.b().remember(far, Access::all);
    const std::uint64_t handle = world.a().import(remote);
    std::vector<Slice> slices;
    for (std::uint32_t i = 0; i < kCount; ++i)
      slices.push_back(slice(op, links[i % links.size()], i, local, i * kSize, handle, i * kSize, kSize));
    taken = world.a().post(slices);
  }
  static constexpr std::size_t kSize = 4096, kCount = 32;
  Buffer near, far;
  Memory local, remote;
  std::size_t taken = 0;
};

bool told(Side& side, EventKind kind) {
  return side.wait([kind](const std::vector<Seen>& log) {
    return std::any_of(log.begin(), log.end(), [kind](const Seen& seen) { return seen.event.kind == kind; });
  });
}

void one_event_each(Side& side, std::size_t taken) {
  std::map<std::uint32_t, int> events;
  for (const Seen& seen : side.seen())
    if (seen.event.kind == EventKind::done || seen.event.kind == EventKind::failed) ++events[seen.event.token];
  EXPECT_EQ(events.size(), taken);
  for (const auto& [token, count] : events) EXPECT_EQ(count, 1) << "slice " << token;
}

// A NIC refuses by ending its link. What it had carried out before is undecided until the fence, where its answer does
// not say that the target's memory shows it.
bool fence_what_went_down(Side& side, std::size_t slices) {
  std::vector<LinkId> down;
  (void)side.wait([&](const std::vector<Seen>& log) {
    std::size_t ended = 0;
    down.clear();
    for (const Seen& seen : log) {
      ended += seen.event.kind == EventKind::done || seen.event.kind == EventKind::failed;
      if (seen.event.kind == EventKind::link_down) down.push_back(seen.event.link);
    }
    return ended == slices || !down.empty();
  });
  for (const LinkId link : down) side.fence(link);
  return !down.empty();
}

bool writes_and_reads(World& world) {
  const auto& can = world.a().devices().front().capabilities;
  return native(can, Op::write) && native(can, Op::read);
}

}  // namespace

TEST_P(Leave, CancelEndsSlicesOnceEach) {
  connected([&](World& world, std::uint64_t seed) {
    if (!writes_and_reads(world)) GTEST_SKIP() << "messages only";
    if (seed % 2 == 0) world.b().pause(true);
    Traffic traffic(world, seed, seed % 3 == 0 ? Op::read : Op::write);
    for (std::uint32_t i = 0; i < traffic.taken; i += 2) world.a().cancel(i);
    world.a().rest(kMillisecond);
    world.b().pause(false);
    ASSERT_TRUE(world.a().wait_ended(traffic.taken));
    world.a().rest(5 * kMillisecond);
    one_event_each(world.a(), traffic.taken);
    for (const Seen& seen : world.a().seen()) {
      if (seen.event.kind != EventKind::failed) continue;
      EXPECT_EQ(seen.event.status.code(), ErrorCode::cancelled);
    }
  });
}

TEST_P(Leave, DeregisteredLocalMemoryIsNoLongerTouched) {
  connected([&](World& world, std::uint64_t seed) {
    if (!writes_and_reads(world)) GTEST_SKIP() << "messages only";
    Traffic traffic(world, seed, Op::read);
    world.a().deregister(traffic.local);
    ASSERT_TRUE(told(world.a(), EventKind::deregistered));
    traffic.near.poison();
    world.a().rest(100 * kMillisecond);
    EXPECT_EQ(traffic.near.untouched(0, traffic.near.size()), "");
    ASSERT_TRUE(world.a().wait_ended(traffic.taken));
    one_event_each(world.a(), traffic.taken);
  });
}

TEST_P(Leave, DeregisteredTargetMemoryIsNoLongerTouched) {
  connected([&](World& world, std::uint64_t seed) {
    if (!writes_and_reads(world)) GTEST_SKIP() << "messages only";
    Traffic traffic(world, seed, Op::write);
    world.b().deregister(traffic.remote);
    ASSERT_TRUE(told(world.b(), EventKind::deregistered));
    traffic.far.poison();
    world.b().rest(100 * kMillisecond);
    EXPECT_EQ(traffic.far.untouched(0, traffic.far.size()), "");
    const bool ended_links = fence_what_went_down(world.a(), traffic.taken);
    ASSERT_TRUE(world.a().wait_ended(traffic.taken));
    one_event_each(world.a(), traffic.taken);
    bool refused = false, failed = false;
    for (const Seen& seen : world.a().seen()) {
      if (seen.event.kind != EventKind::failed) continue;
      failed = true;
      const ErrorCode code = seen.event.status.code();
      EXPECT_TRUE(code == ErrorCode::revoked || (ended_links && code == ErrorCode::link_failed))
          << seen.event.status.to_string();
      refused |= code == ErrorCode::revoked;
    }
    EXPECT_EQ(refused, failed) << "what ended the link is told as such";
  });
}

TEST_P(Leave, DisconnectGivesEverySliceItsEvent) {
  connected([&](World& world, std::uint64_t seed) {
    if (!writes_and_reads(world)) GTEST_SKIP() << "messages only";
    Traffic traffic(world, seed, Op::read);
    Side& leaver = seed % 2 == 0 ? world.a() : world.b();
    Side& stays = seed % 2 == 0 ? world.b() : world.a();
    leaver.disconnect();
    ASSERT_TRUE(told(stays, EventKind::link_down));
    stays.disconnect();
    ASSERT_TRUE(world.a().wait_ended(traffic.taken));
    ASSERT_TRUE(told(world.a(), EventKind::fenced));
    traffic.near.poison();
    world.a().rest(50 * kMillisecond);
    EXPECT_EQ(traffic.near.untouched(0, traffic.near.size()), "");
    one_event_each(world.a(), traffic.taken);
    // The number is free again.
    ASSERT_TRUE(world.connect());
  });
}

// Its initiator was told that it is done: a target that has not polled meanwhile still finds its immediate.
TEST_P(Leave, AnImmediateThatIsDoneComesThoughItsTargetDisconnects) {
  connected([&](World& world, std::uint64_t seed) {
    const UpLink link = world.a().wait_links(world.links()).front();
    if (!native(world.a().can(link), Op::write_immediate)) GTEST_SKIP() << "the device has no immediates";
    if (!world.a().can(link).visible_when_done) GTEST_SKIP() << "with its end alone nothing is known to be there";
    Buffer near(64), far(64);
    near.fill(seed);
    const Memory local = world.a().remember(near, Access::none), remote = world.b().remember(far, Access::write);
    Slice made = slice(Op::write_immediate, link, 1, local, 0, world.a().import(remote), 0, 64);
    ASSERT_TRUE(world.a().post_all({&made, 1}));  // what the first one takes of both sides is there then
    ASSERT_TRUE(world.a().wait_ended(1));
    ASSERT_TRUE(told(world.b(), EventKind::immediate));
    made.token = 2;
    made.immediate = 5;
    world.b().pause(true);
    ASSERT_TRUE(world.a().post_all({&made, 1}));
    const auto count = [](const std::vector<Seen>& log, EventKind kind) {
      return std::count_if(log.begin(), log.end(), [kind](const Seen& seen) { return seen.event.kind == kind; });
    };
    const bool done = world.a().wait([&](const std::vector<Seen>& log) { return count(log, EventKind::done) == 2; },
                                     20 * kMillisecond);
    world.b().disconnect();
    world.b().pause(false);
    if (done) {  // else it takes a step of its target, which has left
      EXPECT_TRUE(world.b().wait([&](const std::vector<Seen>& log) { return count(log, EventKind::immediate) == 2; }));
    }
  });
}

TEST_P(Leave, CloseUnderTrafficLeavesMemoryAlone) {
  connected([&](World& world, std::uint64_t seed) {
    if (!writes_and_reads(world)) GTEST_SKIP() << "messages only";
    Traffic traffic(world, seed, seed % 2 == 0 ? Op::read : Op::write);
    Side& closes = seed % 4 < 2 ? world.a() : world.b();
    Side& stays = seed % 4 < 2 ? world.b() : world.a();
    Buffer& memory = &closes == &world.a() ? traffic.near : traffic.far;
    closes.close();  // at once: on return nothing touches its regions
    memory.poison();
    ASSERT_TRUE(told(stays, EventKind::link_down));
    stays.rest(50 * kMillisecond);
    EXPECT_EQ(memory.untouched(0, memory.size()), "");
    stays.disconnect();
    ASSERT_TRUE(world.a().wait_ended(traffic.taken));
    one_event_each(world.a(), traffic.taken);
  });
}

}  // namespace fairway::conformance
