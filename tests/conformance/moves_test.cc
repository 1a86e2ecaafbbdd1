#include <algorithm>
#include <numeric>

#include "conformance/world.h"

// Every operation moves exactly its bytes: no byte less, none beside them.
namespace fairway::conformance {

FAIRWAY_CLAIMS(Moves);

namespace {

constexpr std::size_t kSizes[] = {0, 1, 7, 8, 4095, 4096, 65536, (1 << 20) + 3};

// One slice of `size` from unaligned to unaligned memory, in either direction, with room around it on the target.
void one(World& world, Op op, const UpLink& link, std::uint32_t token, std::size_t size, std::uint64_t seed) {
  Buffer near(size + 100, 1 + seed % 7), far(size + 100, 3 + seed % 5);
  Buffer& source = op == Op::read ? far : near;
  Buffer& target = op == Op::read ? near : far;
  source.fill(seed);
  target.poison();
  const Memory local = world.a().remember(near, Access::none);
  const Memory remote = world.b().remember(far, op == Op::read ? Access::read : Access::write);
  const std::uint64_t handle = world.a().import(remote);
  ASSERT_NE(handle, 0u);
  const Slice made = slice(op, link, token, local, op == Op::read ? 31 : 17, handle, op == Op::read ? 17 : 31, size);
  ASSERT_TRUE(world.a().post_all({&made, 1}));
  const Seen seen = world.a().wait_token(token);
  ASSERT_EQ(seen.event.kind, EventKind::done) << seen.event.status.to_string();
  EXPECT_EQ(target.holds(seed, 31, size, 17), "");
  EXPECT_EQ(target.untouched(0, 31), "");
  EXPECT_EQ(target.untouched(31 + size, target.size() - 31 - size), "");
  EXPECT_EQ(source.holds(seed, 0, source.size(), 0), "");
  world.a().deregister(local);
  world.b().deregister(remote);
}

void all_sizes(World& world, Op op, std::uint64_t seed) {
  const UpLink link = world.a().wait_links(world.links()).front();
  const auto& can = world.a().can(link);
  if (!native(can, op)) GTEST_SKIP() << "the device has no such operation";
  std::uint32_t token = 0;
  for (const std::size_t size : kSizes) {
    if (size > can.max_slice_bytes) continue;
    SCOPED_TRACE(std::to_string(size) + " bytes");
    ASSERT_NO_FATAL_FAILURE(one(world, op, link, token++, size, seed));
    const auto ended = world.a().seen();
    EXPECT_EQ(
        std::count_if(ended.begin(), ended.end(), [](const Seen& s) { return s.event.kind == EventKind::failed; }), 0);
  }
}

}  // namespace

TEST_P(Moves, WriteMovesExactlyItsBytes) {
  connected([&](World& world, std::uint64_t seed) { all_sizes(world, Op::write, seed); });
}

TEST_P(Moves, ReadMovesExactlyItsBytes) {
  connected([&](World& world, std::uint64_t seed) { all_sizes(world, Op::read, seed); });
}

TEST_P(Moves, TheLargestSliceMovesWhole) {
  connected([&](World& world, std::uint64_t seed) {
    const UpLink link = world.a().wait_links(world.links()).front();
    const auto& can = world.a().can(link);
    for (const Op op : {Op::write, Op::read})
      if (native(can, op)) {
        ASSERT_NO_FATAL_FAILURE(one(world, op, link, static_cast<std::uint32_t>(op), can.max_slice_bytes, seed));
      }
  });
}

TEST_P(Moves, EveryLinkMovesBytesBothWays) {
  connected([&](World& world, std::uint64_t seed) {
    const auto from_a = world.a().wait_links(world.links());
    const auto from_b = world.b().wait_links(world.links());
    if (!native(world.a().can(from_a.front()), Op::write)) GTEST_SKIP() << "the device does not write";
    Buffer ours(4096), theirs(4096), at_a(4096 * from_a.size()), at_b(4096 * from_a.size());
    ours.fill(seed);
    theirs.fill(seed + 100);
    at_a.poison();
    at_b.poison();
    const Memory source_a = world.a().remember(ours, Access::none), source_b = world.b().remember(theirs, Access::none);
    const Memory target_a = world.a().remember(at_a, Access::write), target_b = world.b().remember(at_b, Access::write);
    const std::uint64_t to_b = world.a().import(target_b), to_a = world.b().import(target_a);
    for (std::uint32_t i = 0; i < from_a.size(); ++i) {
      EXPECT_EQ(from_a[i].name, from_b[i].name) << "both ends call a link the same";
      const Slice there = slice(Op::write, from_a[i], i, source_a, 0, to_b, 4096 * i, 4096);
      const Slice back = slice(Op::write, from_b[i], i, source_b, 0, to_a, 4096 * i, 4096);
      ASSERT_TRUE(world.a().post_all({&there, 1}));
      ASSERT_TRUE(world.b().post_all({&back, 1}));
    }
    ASSERT_TRUE(world.a().wait_ended(from_a.size()));
    ASSERT_TRUE(world.b().wait_ended(from_a.size()));
    for (std::uint32_t i = 0; i < from_a.size(); ++i) {
      EXPECT_EQ(at_a.holds(seed + 100, 4096 * i, 4096, 0), "");
      EXPECT_EQ(at_b.holds(seed, 4096 * i, 4096, 0), "");
    }
    EXPECT_EQ(at_a.margins() + at_b.margins(), "");
  });
}

TEST_P(Moves, StridedBlocksLandWhereTheyBelong) {
  connected([&](World& world, std::uint64_t seed) {
    const UpLink link = world.a().wait_links(world.links()).front();
    if (!native(world.a().can(link), Shape::strided) || !native(world.a().can(link), Op::write))
      GTEST_SKIP() << "the device has no strides";
    Buffer near(40 * 48), far(40 * 64);
    near.fill(seed);
    far.poison();
    const Memory local = world.a().remember(near, Access::none), remote = world.b().remember(far, Access::write);
    Slice made = slice(Op::write, link, 1, local, 5, world.a().import(remote), 9, 17);
    made.shape = Shape::strided;
    made.count = 39;
    made.local_stride = 48;
    made.remote_stride = 64;
    ASSERT_TRUE(world.a().post_all({&made, 1}));
    ASSERT_EQ(world.a().wait_token(1).event.kind, EventKind::done);
    for (std::size_t i = 0; i < 39; ++i) {
      EXPECT_EQ(far.holds(seed, 9 + 64 * i, 17, 5 + 48 * i), "");
      EXPECT_EQ(far.untouched(9 + 64 * i + 17, 64 - 17), "");
    }
  });
}

TEST_P(Moves, IndexedPagesLandWhereTheyBelongInBothDirections) {
  connected([&](World& world, std::uint64_t seed) {
    const UpLink link = world.a().wait_links(world.links()).front();
    if (!native(world.a().can(link), Shape::indexed) || !native(world.a().can(link), Op::read))
      GTEST_SKIP() << "the device has no pages";
    Buffer near(64 * 50), far(64 * 50);
    std::vector<std::uint64_t> ours(50), theirs(50);
    std::iota(ours.begin(), ours.end(), 0);
    for (std::size_t i = 0; i < 50; ++i) theirs[i] = (i * 7 + seed) % 50;
    for (const Op op : {Op::write, Op::read}) {
      Buffer& source = op == Op::write ? near : far;
      Buffer& target = op == Op::write ? far : near;
      source.fill(seed);
      target.poison();
      const Memory local = world.a().remember(near, Access::none), remote = world.b().remember(far, Access::all);
      Slice made = slice(op, link, static_cast<std::uint32_t>(op), local, 0, world.a().import(remote), 0, 60);
      made.shape = Shape::indexed;
      made.count = 50;
      made.local_stride = made.remote_stride = 64;
      made.local_index = ours.data();
      made.remote_index = theirs.data();
      ASSERT_TRUE(world.a().post_all({&made, 1}));
      ASSERT_EQ(world.a().wait_token(made.token).event.kind, EventKind::done);
      for (std::size_t i = 0; i < 50; ++i) {
        const std::size_t from = 64 * (op == Op::write ? ours[i] : theirs[i]);
        const std::size_t to = 64 * (op == Op::write ? theirs[i] : ours[i]);
        EXPECT_EQ(target.holds(seed, to, 60, from), "");
        EXPECT_EQ(target.untouched(to + 60, 4), "");
      }
    }
  });
}

TEST_P(Moves, MemoriesThatOverlapMoveAsIfByACopy) {
  connected([&](World& world, std::uint64_t seed) {
    const UpLink link = world.a().wait_links(world.links()).front();
    if (!world.overlapping_memory() || !native(world.a().can(link), Op::write)) GTEST_SKIP() << "not one memory";
    // One memory known to both sides; each half is moved onto the other's place, byte ranges apart.
    Buffer both(4096);
    both.fill(seed);
    const Memory local = world.a().remember(both, Access::none), remote = world.b().remember(both, Access::write);
    const Slice made = slice(Op::write, link, 1, local, 0, world.a().import(remote), 2048, 2048);
    ASSERT_TRUE(world.a().post_all({&made, 1}));
    ASSERT_EQ(world.a().wait_token(1).event.kind, EventKind::done);
    EXPECT_EQ(both.holds(seed, 0, 2048, 0), "");
    EXPECT_EQ(both.holds(seed, 2048, 2048, 0), "");
    EXPECT_EQ(both.margins(), "");
  });
}

}  // namespace fairway::conformance
