#include <algorithm>
#include <map>

#include "conformance/world.h"

// Links that break, epochs that close, and what may no longer happen afterwards.
namespace fairway::conformance {

FAIRWAY_CLAIMS(Fence);

namespace {

bool has(const std::vector<Seen>& log, EventKind kind, LinkId link) {
  return std::any_of(log.begin(), log.end(),
                     [&](const Seen& seen) { return seen.event.kind == kind && seen.event.link == link; });
}

bool wait_for(Side& side, EventKind kind, LinkId link) {
  return side.wait([&](const std::vector<Seen>& log) { return has(log, kind, link); });
}

void in_flight(World& world, Op op, const UpLink& link, const Memory& local, std::uint64_t handle, std::uint32_t count,
               std::size_t size, std::uint32_t& taken) {
  std::vector<Slice> slices;
  for (std::uint32_t i = 0; i < count; ++i)
    slices.push_back(slice(op, link, i, local, i * size, handle, i * size, size));
  taken = static_cast<std::uint32_t>(world.a().post(slices));
}

// Both ends of the link in the order of posting.
struct Ends {
  explicit Ends(World& world)
      : a(world.a().wait_links(world.links()).front()), b(world.b().wait_links(world.links()).front()) {}
  UpLink a, b;
};

}  // namespace

// Each side looks at what a poll lent once more before its next poll (own_side.cc).
TEST_P(Fence, WhatAPollLentStaysWhileTheLinkIsFenced) {
  connected([&](World& world, std::uint64_t seed) {
    const Ends link(world);
    const auto& can = world.a().can(link.a);
    if (!native(can, Op::message)) GTEST_SKIP() << "the device has no messages";
    std::vector<std::byte> near(can.max_message_bytes);
    for (std::size_t k = 0; k < near.size(); ++k) near[k] = Buffer::pattern(seed, k);
    std::vector<Slice> messages(64);
    for (std::uint32_t i = 0; i < messages.size(); ++i) {
      messages[i].op = Op::message;
      messages[i].token = i;
      messages[i].link = link.a.id;
      messages[i].local = near.data();
      messages[i].length = near.size();
    }
    world.b().pause(true);
    ASSERT_TRUE(world.a().post_all(std::span(messages).first(1)));
    const std::size_t taken = 1 + world.a().post(std::span<const Slice>(messages).subspan(1));
    world.b().pause(false);
    ASSERT_TRUE(world.b().wait([](const std::vector<Seen>& log) {
      return std::ranges::any_of(log, [](const Seen& seen) { return seen.event.kind == EventKind::message; });
    }));
    world.b().fence(link.b.id);
    ASSERT_TRUE(wait_for(world.b(), EventKind::fenced, link.b.id));
    world.a().fence(link.a.id);
    ASSERT_TRUE(wait_for(world.a(), EventKind::fenced, link.a.id));
    ASSERT_TRUE(world.a().wait_ended(taken));
    for (const Seen& seen : world.b().seen())
      if (seen.event.kind == EventKind::message) {
        EXPECT_EQ(seen.bytes, near);
      }
  });
}

TEST_P(Fence, AfterItNoByteLandsAtTheTarget) {
  connected([&](World& world, std::uint64_t seed) {
    const Ends link(world);
    const auto& can = world.a().can(link.a);
    if (!native(can, Op::write)) GTEST_SKIP() << "the device does not write";
    const std::size_t size = std::min<std::size_t>(can.max_slice_bytes, 100'000);
    Buffer near(size * 8), far(size * 8);
    near.fill(seed);
    far.poison();
    const Memory local = world.a().remember(near, Access::none), remote = world.b().remember(far, Access::write);
    std::uint32_t taken = 0;
    in_flight(world, Op::write, link.a, local, world.a().import(remote), 8, size, taken);
    if (!world.break_link(link.a.name)) GTEST_SKIP() << "nothing here can break a link";
    world.b().fence(link.b.id);
    ASSERT_TRUE(wait_for(world.b(), EventKind::fenced, link.b.id));
    far.poison();  // the memory has a new use
    world.b().rest(100 * kMillisecond);
    EXPECT_EQ(far.untouched(0, far.size()), "") << "a late frame landed after the fence";
    // At the initiator all is undecided until its own fence; then each slice has its one event.
    world.a().fence(link.a.id);
    ASSERT_TRUE(wait_for(world.a(), EventKind::fenced, link.a.id));
    ASSERT_TRUE(world.a().wait_ended(taken));
    EXPECT_EQ(far.untouched(0, far.size()), "");
  });
}

TEST_P(Fence, AfterItNoByteOfAReadLandsAtTheInitiator) {
  connected([&](World& world, std::uint64_t seed) {
    const Ends link(world);
    const auto& can = world.a().can(link.a);
    if (!native(can, Op::read)) GTEST_SKIP() << "the device does not read";
    const std::size_t size = std::min<std::size_t>(can.max_slice_bytes, 100'000);
    Buffer near(size * 8), far(size * 8);
    near.poison();
    far.fill(seed);
    const Memory local = world.a().remember(near, Access::none), remote = world.b().remember(far, Access::read);
    std::uint32_t taken = 0;
    in_flight(world, Op::read, link.a, local, world.a().import(remote), 8, size, taken);
    world.a().fence(link.a.id);
    ASSERT_TRUE(wait_for(world.a(), EventKind::fenced, link.a.id));
    near.poison();
    world.a().rest(100 * kMillisecond);
    EXPECT_EQ(near.untouched(0, near.size()), "");
    ASSERT_TRUE(world.a().wait_ended(taken));
  });
}

TEST_P(Fence, ABrokenLinkSaysDownThenFailsItsSlicesThenIsFenced) {
  connected([&](World& world, std::uint64_t seed) {
    const Ends link(world);
    const auto& can = world.a().can(link.a);
    if (!native(can, Op::write)) GTEST_SKIP() << "the device does not write";
    Buffer near(8192), far(8192);
    near.fill(seed);
    const Memory local = world.a().remember(near, Access::none), remote = world.b().remember(far, Access::write);
    world.b().pause(true);
    std::uint32_t taken = 0;
    in_flight(world, Op::write, link.a, local, world.a().import(remote), 8, 1024, taken);
    if (!world.break_link(link.a.name)) GTEST_SKIP() << "nothing here can break a link";
    ASSERT_TRUE(wait_for(world.a(), EventKind::link_down, link.a.id));
    const Slice late = slice(Op::write, link.a, 500, local, 0, 0, 0, 8);
    world.b().pause(false);
    world.a().rest(5 * kMillisecond);
    for (const Seen& seen : world.a().seen()) EXPECT_NE(seen.event.kind, EventKind::failed) << "undecided until fenced";
    world.a().fence(link.a.id);
    ASSERT_TRUE(wait_for(world.a(), EventKind::fenced, link.a.id));
    EXPECT_EQ(world.a().post({&late, 1}), 0u) << "a fenced epoch takes nothing";
    std::map<std::uint32_t, int> events;
    bool fenced = false;
    for (const Seen& seen : world.a().seen()) {
      fenced = fenced || seen.event.kind == EventKind::fenced;
      if (seen.event.kind != EventKind::done && seen.event.kind != EventKind::failed) continue;
      EXPECT_FALSE(fenced) << "a slice's event after `fenced`";
      ++events[seen.event.token];
    }
    EXPECT_EQ(events.size(), taken);
    for (const auto& [token, count] : events) EXPECT_EQ(count, 1);
    ASSERT_TRUE(wait_for(world.b(), EventKind::link_down, link.b.id));
  });
}

TEST_P(Fence, TheFenceCountsTheImmediatesOfItsEpoch) {
  connected([&](World& world, std::uint64_t seed) {
    const Ends link(world);
    const auto& can = world.a().can(link.a);
    if (!native(can, Op::write_immediate)) GTEST_SKIP() << "the device has no immediates";
    Buffer near(4096), far(4096);
    near.fill(seed);
    const Memory local = world.a().remember(near, Access::none), remote = world.b().remember(far, Access::write);
    const std::uint64_t handle = world.a().import(remote);
    std::vector<Slice> slices;
    for (std::uint32_t i = 0; i < 12; ++i)
      slices.push_back(slice(Op::write_immediate, link.a, i, local, 0, handle, 0, 64));
    ASSERT_TRUE(world.a().post_all(slices));
    ASSERT_TRUE(world.b().wait([&](const std::vector<Seen>& log) { return log.size() > seed % 6; }));
    if (!world.break_link(link.a.name)) GTEST_SKIP() << "nothing here can break a link";
    world.b().fence(link.b.id);
    ASSERT_TRUE(wait_for(world.b(), EventKind::fenced, link.b.id));
    std::uint64_t heard = 0, told = ~0ull;
    for (const Seen& seen : world.b().seen()) {
      if (seen.event.link != link.b.id) continue;
      if (seen.event.kind == EventKind::immediate) ++heard;
      if (seen.event.kind == EventKind::fenced) told = seen.event.value;
    }
    EXPECT_EQ(told, heard);
    world.b().rest(50 * kMillisecond);
    EXPECT_EQ(world.b().count(EventKind::immediate), heard) << "an immediate after the fence";
    // Whoever got `done` was heard: the initiator's count can only be smaller.
    world.a().fence(link.a.id);
    ASSERT_TRUE(world.a().wait_ended(12));
    EXPECT_LE(world.a().count(EventKind::done), heard);
  });
}

TEST_P(Fence, ALinkComesBackWithAHigherEpochAndANewName) {
  connected([&](World& world, std::uint64_t seed) {
    Ends link(world);
    Buffer near(4096), far(4096);
    const Memory local = world.a().remember(near, Access::none), remote = world.b().remember(far, Access::write);
    const std::uint64_t handle = world.a().import(remote);
    const bool writes = native(world.a().can(link.a), Op::write);
    for (std::uint32_t round = 0; round < 3; ++round) {
      SCOPED_TRACE("round " + std::to_string(round));
      if (!world.break_link(link.a.name)) GTEST_SKIP() << "nothing here can break a link";
      // Either side may be the first to fence and to want it again.
      for (int turn = 0; turn < 2; ++turn) {
        const bool a_now = (turn == 0) == ((seed + round) % 2 == 0);
        Side& side = a_now ? world.a() : world.b();
        const LinkId id = a_now ? link.a.id : link.b.id;
        side.fence(id);
        ASSERT_TRUE(wait_for(side, EventKind::fenced, id));
        side.reconnect(id);
      }
      ASSERT_EQ(world.a().wait_links(world.links()).size(), world.links());
      ASSERT_EQ(world.b().wait_links(world.links()).size(), world.links());
      const auto up_a = world.a().wait_links(world.links()), up_b = world.b().wait_links(world.links());
      const UpLink again_a = up_a.back(), again_b = up_b.back();  // the newest name
      EXPECT_EQ(again_a.name, again_b.name);
      EXPECT_NE(again_a.name, link.a.name);
      EXPECT_EQ(again_a.id.slot, link.a.id.slot);
      EXPECT_GT(again_a.id.epoch, link.a.id.epoch);
      if (writes) {
        near.fill(seed + round);
        far.poison();
        const Slice stale = slice(Op::write, link.a, 90 + round, local, 0, handle, 0, 8);
        EXPECT_EQ(world.a().post({&stale, 1}), 0u) << "the old epoch takes nothing";
        const Slice made = slice(Op::write, again_a, round, local, 0, handle, 0, 4096);
        ASSERT_TRUE(world.a().post_all({&made, 1}));
        ASSERT_EQ(world.a().wait_token(round).event.kind, EventKind::done);
        EXPECT_EQ(far.holds(seed + round, 0, 4096, 0), "");
      }
      link.a = again_a;
      link.b = again_b;
    }
  });
}

}  // namespace fairway::conformance
