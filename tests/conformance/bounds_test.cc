#include "conformance/world.h"

// Nothing outside a region registered with that permission is touched, and the slice says why.
namespace fairway::conformance {

FAIRWAY_CLAIMS(Bounds);

namespace {

struct Setting {
  Setting(World& world, std::uint64_t seed, Access access) : near(8192), far(8192) {
    link = world.a().wait_links(world.links()).front();
    near.fill(seed);
    far.poison();
    local = world.a().remember(near, Access::none);
    remote = world.b().remember(far, access);
    handle = world.a().import(remote);
  }
  Buffer near, far;
  UpLink link;
  Memory local, remote;
  std::uint64_t handle = 0;
};

void refused(World& world, Setting& set, const Slice& made, ErrorCode code, std::uint64_t seed) {
  ASSERT_TRUE(world.a().post_all({&made, 1}));
  const Seen seen = world.a().wait_token(made.token);
  ASSERT_EQ(seen.event.kind, EventKind::failed);
  EXPECT_EQ(seen.event.status.code(), code) << seen.event.status.to_string();
  EXPECT_EQ(seen.event.status.effect(), Effect::not_applied);
  EXPECT_EQ(set.far.untouched(0, set.far.size()), "");
  EXPECT_EQ(set.near.holds(seed, 0, set.near.size(), 0), "");
  EXPECT_EQ(set.near.margins(), "");
}

}  // namespace

TEST_P(Bounds, BeyondTheEndIsOutOfRangeAndTouchesNothing) {
  connected([&](World& world, std::uint64_t seed) {
    Setting set(world, seed, Access::all);
    if (!native(world.a().can(set.link), Op::write)) GTEST_SKIP() << "the device does not write";
    constexpr std::uint64_t kFar[][2] = {{8192, 1},      {8191, 2},       {1, 8192}, {~0ull, 2},
                                         {~0ull - 3, 4}, {1ull << 63, 8}, {9000, 0}};
    std::uint32_t token = 0;
    for (const Op op : {Op::write, Op::read})
      for (const auto& [offset, length] : kFar) {
        SCOPED_TRACE(std::to_string(offset) + " + " + std::to_string(length));
        if (length > world.a().can(set.link).max_slice_bytes) continue;
        const Slice made = slice(op, set.link, token++, set.local, 0, set.handle, offset, length);
        ASSERT_NO_FATAL_FAILURE(refused(world, set, made, ErrorCode::out_of_range, seed));
      }
  });
}

TEST_P(Bounds, BlocksOutsideAreRefusedWhereverTheyPoint) {
  connected([&](World& world, std::uint64_t seed) {
    Setting set(world, seed, Access::all);
    const auto& can = world.a().can(set.link);
    if (!native(can, Shape::indexed) || !native(can, Op::write)) GTEST_SKIP() << "the device has no pages";
    const std::uint64_t good[] = {0};
    for (const std::uint64_t bad : {std::uint64_t{128}, ~std::uint64_t{0}, std::uint64_t{1} << 58}) {
      Slice made = slice(Op::write, set.link, static_cast<std::uint32_t>(bad % 1000), set.local, 0, set.handle, 0, 64);
      made.shape = Shape::indexed;
      made.count = 1;
      made.local_stride = made.remote_stride = 64;
      made.local_index = good;
      made.remote_index = &bad;
      ASSERT_NO_FATAL_FAILURE(refused(world, set, made, ErrorCode::out_of_range, seed));
    }
  });
}

TEST_P(Bounds, WithoutThePermissionAccessIsDenied) {
  connected([&](World& world, std::uint64_t seed) {
    Setting readable(world, seed, Access::read), writable(world, seed, Access::write);
    const auto& can = world.a().can(readable.link);
    if (!native(can, Op::write)) GTEST_SKIP() << "the device does not write";
    refused(world, readable, slice(Op::write, readable.link, 1, readable.local, 0, readable.handle, 0, 64),
            ErrorCode::access_denied, seed);
    refused(world, writable, slice(Op::read, writable.link, 2, writable.local, 0, writable.handle, 0, 64),
            ErrorCode::access_denied, seed);
    if (!native(can, Op::fetch_add)) return;
    refused(world, writable, slice(Op::fetch_add, writable.link, 3, writable.local, 0, writable.handle, 0, 8),
            ErrorCode::access_denied, seed);
  });
}

TEST_P(Bounds, ARevokedRegionIsRefused) {
  connected([&](World& world, std::uint64_t seed) {
    Setting set(world, seed, Access::all);
    const auto& can = world.a().can(set.link);
    if (!native(can, Op::write)) GTEST_SKIP() << "the device does not write";
    world.b().deregister(set.remote);
    ASSERT_TRUE(world.b().wait([](const std::vector<Seen>& log) {
      return std::any_of(log.begin(), log.end(), [](const Seen& s) { return s.event.kind == EventKind::deregistered; });
    }));
    Buffer other(4096);
    other.poison();
    const Memory next = world.b().remember(other, Access::all);  // may get the same slot: the old key must not open it
    refused(world, set, slice(Op::write, set.link, 1, set.local, 0, set.handle, 0, 64), ErrorCode::revoked, seed);
    EXPECT_EQ(other.untouched(0, other.size()), "");
    world.b().deregister(next);
  });
}

// In the table alone: the transport hears of it later, and its own records still have the memory.
TEST_P(Bounds, MemoryThatThisSideHasRevokedIsRefused) {
  connected([&](World& world, std::uint64_t seed) {
    Setting set(world, seed, Access::all);
    if (!native(world.a().can(set.link), Op::write)) GTEST_SKIP() << "the device does not write";
    world.a().revoke(set.local);
    std::uint32_t token = 0;
    for (const Op op : {Op::write, Op::read})
      ASSERT_NO_FATAL_FAILURE(
          refused(world, set, slice(op, set.link, token++, set.local, 0, set.handle, 0, 64), ErrorCode::revoked, seed));
  });
}

TEST_P(Bounds, HandlesThatMeanNothingAreRefused) {
  connected([&](World& world, std::uint64_t seed) {
    Setting set(world, seed, Access::all);
    if (!native(world.a().can(set.link), Op::write)) GTEST_SKIP() << "the device does not write";
    const std::uint64_t released = world.a().import(set.remote);
    world.a().release(released);
    std::uint32_t token = 0;
    for (const std::uint64_t handle : {std::uint64_t{0}, ~std::uint64_t{0}, released}) {
      const Slice made = slice(Op::write, set.link, token++, set.local, 0, handle, 0, 64);
      ASSERT_NO_FATAL_FAILURE(refused(world, set, made, ErrorCode::not_found, seed));
    }
    Slice made = slice(Op::write, set.link, token++, set.local, 0, set.handle, 0, 64);
    made.local_handle = ~std::uint64_t{0};
    ASSERT_NO_FATAL_FAILURE(refused(world, set, made, ErrorCode::revoked, seed));
    made = slice(Op::write, set.link, token++, set.local, 8190, set.handle, 0, 64);  // leaves the local memory
    ASSERT_NO_FATAL_FAILURE(refused(world, set, made, ErrorCode::out_of_range, seed));
    // After all that the link still works.
    made = slice(Op::write, set.link, token, set.local, 0, set.handle, 0, 64);
    ASSERT_TRUE(world.a().post_all({&made, 1}));
    ASSERT_EQ(world.a().wait_token(token).event.kind, EventKind::done);
    EXPECT_EQ(set.far.holds(seed, 0, 64, 0), "");
  });
}

TEST_P(Bounds, MoreThanTheDeviceSaysIsRefused) {
  connected([&](World& world, std::uint64_t seed) {
    const UpLink link = world.a().wait_links(world.links()).front();
    const auto& can = world.a().can(link);
    if (!native(can, Op::write)) GTEST_SKIP() << "the device does not write";
    Buffer near(can.max_slice_bytes + 64), far(can.max_slice_bytes + 64);
    near.fill(seed);
    far.poison();
    const Memory local = world.a().remember(near, Access::none), remote = world.b().remember(far, Access::write);
    const std::uint64_t handle = world.a().import(remote);
    const Slice made = slice(Op::write, link, 1, local, 0, handle, 0, can.max_slice_bytes + 1);
    ASSERT_TRUE(world.a().post_all({&made, 1}));
    EXPECT_EQ(world.a().wait_token(1).event.status.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(far.untouched(0, far.size()), "");
  });
}

}  // namespace fairway::conformance
