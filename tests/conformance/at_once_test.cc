#include <algorithm>

#include "conformance/world.h"

// Small slices that are over when the call returns (transport/optional_calls.h), and when they must not be.
namespace fairway::conformance {

FAIRWAY_CLAIMS(AtOnce);

namespace {

using transport::SmallMove;
using Answer = transport::AtOnce;

// Two memories between which an ordinary slice has opened the way.
struct Way {
  Way(World& world, std::uint64_t seed) : near(8192), far(8192), link(world.a().wait_links(world.links()).front()) {
    near.fill(seed);
    far.poison();
    local = world.a().remember(near, Access::none);
    remote = world.b().remember(far, Access::all);
    handle = world.a().import(remote);
    const Op op = native(world.a().can(link), Op::write) ? Op::write : Op::message;
    const Slice first = slice(op, link, 900, local, 0, handle, 0, 8);
    EXPECT_TRUE(world.a().post_all({&first, 1}));
    EXPECT_EQ(world.a().wait_token(900).event.kind, EventKind::done);
  }
  SmallMove move(Op op, std::uint64_t at, std::uint64_t length) const {
    return {op, 0xabcd, link.id, near.data() + at, handle, at, length};
  }
  mutable Buffer near, far;
  UpLink link;
  Memory local, remote;
  std::uint64_t handle = 0;
};

bool can(World& world, const Way& way, Op op) {
  return native(world.a().can(way.link), op) && world.a().move_now(way.move(op, 0, 8)) == Answer::done;
}

}  // namespace

TEST_P(AtOnce, WhatIsDoneIsThereAndNothingBesideIt) {
  connected([&](World& world, std::uint64_t seed) {
    const Way way(world, seed);
    if (!can(world, way, Op::write)) GTEST_SKIP() << "nothing is done within the call here";
    for (const std::size_t size : {1u, 8u, 64u, 1000u, 4096u}) {
      way.far.poison();
      ASSERT_EQ(world.a().move_now(way.move(Op::write, 100, size)), Answer::done);
      EXPECT_EQ(way.far.holds(seed, 100, size, 100), "");
      EXPECT_EQ(way.far.untouched(0, 100), "");
      EXPECT_EQ(way.far.untouched(100 + size, way.far.size() - 100 - size), "");
    }
    ASSERT_EQ(world.a().move_now(way.move(Op::write, 0, 0)), Answer::done);
    way.far.fill(seed + 1);
    ASSERT_EQ(world.a().move_now(way.move(Op::read, 0, 4096)), Answer::done);
    EXPECT_EQ(way.near.holds(seed + 1, 0, 4096, 0), "");
    if (!can(world, way, Op::write_immediate)) return;
    ASSERT_TRUE(world.b().wait([](const std::vector<Seen>& log) {
      return std::ranges::any_of(
          log, [](const Seen& seen) { return seen.event.kind == EventKind::immediate && seen.event.value == 0xabcd; });
    }));
  });
}

TEST_P(AtOnce, BoundsAndPermissionsHold) {
  connected([&](World& world, std::uint64_t seed) {
    const Way way(world, seed);
    if (!can(world, way, Op::write)) GTEST_SKIP() << "nothing is done within the call here";
    way.far.poison();
    for (SmallMove each : {way.move(Op::write, way.far.size() - 8, 9), way.move(Op::write, 0, 8)}) {
      if (each.length == 8) each.remote_offset = ~std::uint64_t{0} - 3;
      EXPECT_NE(world.a().move_now(each), Answer::done);
    }
    Buffer shown(4096);
    shown.poison();
    const Memory readable = world.b().remember(shown, Access::read);
    SmallMove denied = way.move(Op::write, 0, 8);
    denied.remote_handle = world.a().import(readable);
    for (int tries = 0; tries < 100; ++tries) {
      EXPECT_NE(world.a().move_now(denied), Answer::done);
    }
    EXPECT_EQ(shown.untouched(0, shown.size()), "");
    EXPECT_EQ(way.far.untouched(0, way.far.size()), "");
  });
}

TEST_P(AtOnce, NotIntoWhatItsOwnerHasRevoked) {
  connected([&](World& world, std::uint64_t seed) {
    const Way way(world, seed);
    if (!can(world, way, Op::write)) GTEST_SKIP() << "nothing is done within the call here";
    way.far.poison();
    world.b().revoke(way.remote);
    EXPECT_NE(world.a().move_now(way.move(Op::write, 0, 8)), Answer::done);
    EXPECT_EQ(way.far.untouched(0, way.far.size()), "");
  });
}

// This side has not heard of it: the word that both share says so.
TEST_P(AtOnce, NotOnceTheTargetHasClosedTheEpoch) {
  connected([&](World& world, std::uint64_t seed) {
    const Way way(world, seed);
    if (!can(world, way, Op::write)) GTEST_SKIP() << "nothing is done within the call here";
    way.far.poison();
    world.a().pause(true);
    const UpLink there = world.b().wait_links(world.links()).front();
    world.b().fence(there.id);
    EXPECT_TRUE(world.b().wait([&](const std::vector<Seen>& log) {
      return std::ranges::any_of(log, [](const Seen& seen) { return seen.event.kind == EventKind::fenced; });
    }));
    EXPECT_NE(world.a().move_now(way.move(Op::write, 0, 8)), Answer::done);
    EXPECT_EQ(way.far.untouched(0, way.far.size()), "");
    world.a().pause(false);
  });
}

TEST_P(AtOnce, AnEarlierEpochTakesNothing) {
  connected([&](World& world, std::uint64_t seed) {
    const Way way(world, seed);
    if (!can(world, way, Op::write)) GTEST_SKIP() << "nothing is done within the call here";
    const UpLink there = world.b().wait_links(world.links()).front();
    if (!world.break_link(way.link.name)) GTEST_SKIP() << "nothing here can break a link";
    for (Side* side : {&world.a(), &world.b()}) {
      const LinkId id = side == &world.a() ? way.link.id : there.id;
      side->fence(id);
      ASSERT_TRUE(side->wait([&](const std::vector<Seen>& log) {
        return std::ranges::any_of(
            log, [&](const Seen& seen) { return seen.event.kind == EventKind::fenced && seen.event.link == id; });
      }));
      side->reconnect(id);
    }
    ASSERT_EQ(world.a().wait_links(world.links()).size(), world.links());
    const UpLink again = world.a().wait_links(world.links()).back();
    ASSERT_GT(again.id.epoch, way.link.id.epoch);
    ASSERT_EQ(world.b().wait_links(world.links()).size(), world.links());
    const Slice first = slice(Op::write, again, 901, way.local, 0, way.handle, 0, 8);
    ASSERT_TRUE(world.a().post_all({&first, 1}));
    ASSERT_EQ(world.a().wait_token(901).event.kind, EventKind::done);
    way.far.poison();
    EXPECT_NE(world.a().move_now(way.move(Op::write, 0, 8)), Answer::done);
    EXPECT_EQ(way.far.untouched(0, way.far.size()), "");
    SmallMove now = way.move(Op::write, 0, 8);
    now.link = again.id;
    EXPECT_EQ(world.a().move_now(now), Answer::done);
    EXPECT_EQ(way.far.holds(seed, 0, 8, 0), "");
  });
}

// Immediates keep their order: a small one behind a large one that has not moved is not for now.
TEST_P(AtOnce, NoneOvertakesAnImmediateThatIsQueued) {
  connected([&](World& world, std::uint64_t seed) {
    const Way way(world, seed);
    if (!can(world, way, Op::write_immediate)) GTEST_SKIP() << "no immediate is told within the call here";
    Buffer much(1 << 20), room(1 << 20);
    much.fill(seed);
    const Memory from = world.a().remember(much, Access::none), to = world.b().remember(room, Access::write);
    const std::uint64_t handle = world.a().import(to);
    const Slice open = slice(Op::write, way.link, 902, from, 0, handle, 0, 8);
    ASSERT_TRUE(world.a().post_all({&open, 1}));
    ASSERT_EQ(world.a().wait_token(902).event.kind, EventKind::done);
    world.a().pause(true);
    Slice large = slice(Op::write_immediate, way.link, 903, from, 0, handle, 0, much.size());
    large.immediate = 0x1111;
    EXPECT_EQ(world.a().post({&large, 1}), 1u);
    EXPECT_NE(world.a().move_now(way.move(Op::write_immediate, 0, 8)), Answer::done);
    EXPECT_EQ(world.a().move_now(way.move(Op::write, 0, 8)), Answer::done);  // a plain one may pass
    world.a().pause(false);
    EXPECT_EQ(world.a().wait_token(903).event.kind, EventKind::done);
  });
}

}  // namespace fairway::conformance
