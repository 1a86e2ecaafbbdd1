#include <algorithm>
#include <cstring>
#include <set>

#include "conformance/world.h"

namespace fairway::conformance {

FAIRWAY_CLAIMS(Atomic);

namespace {

std::uint64_t value_at(Buffer& buffer, std::size_t offset) {
  return buffer.word(offset);
}

Slice atomic(Op op, const UpLink& link, std::uint32_t token, std::uint64_t remote, std::uint64_t offset,
             std::uint64_t operand, std::uint64_t expected = 0) {
  Slice made;
  made.op = op;
  made.token = token;
  made.link = link.id;
  made.remote_handle = remote;
  made.remote_offset = offset;
  made.operand = operand;
  made.expected = expected;
  return made;
}

}  // namespace

TEST_P(Atomic, AddsFromTwoSidesLoseNothingAndReturnEachOldValueOnce) {
  connected([&](World& world, std::uint64_t) {
    const auto from_a = world.a().wait_links(world.links()), from_b = world.b().wait_links(world.links());
    const auto& can = world.a().can(from_a.front());
    if (!native(can, Op::fetch_add)) GTEST_SKIP() << "the device has no atomics";
    Buffer near(64), far(64);
    near.set(std::byte{0});
    far.set(std::byte{0});
    const Memory at_a = world.a().remember(near, Access::atomic), at_b = world.b().remember(far, Access::atomic);
    const std::uint64_t to_b = world.a().import(at_b), to_a = world.b().import(at_a);
    constexpr std::uint32_t kCount = 50;
    for (std::uint32_t i = 0; i < kCount; ++i) {
      const Slice there = atomic(Op::fetch_add, from_a[i % from_a.size()], i, to_b, 8, 3);
      const Slice back = atomic(Op::fetch_add, from_b[i % from_b.size()], i, to_a, 16, 1);
      ASSERT_TRUE(world.a().post_all({&there, 1}));
      ASSERT_TRUE(world.b().post_all({&back, 1}));
    }
    ASSERT_TRUE(world.a().wait_ended(kCount));
    ASSERT_TRUE(world.b().wait_ended(kCount));
    EXPECT_EQ(value_at(far, 8), 3 * kCount);
    EXPECT_EQ(value_at(near, 16), kCount);
    std::set<std::uint64_t> old;
    for (const Seen& seen : world.a().seen())
      if (seen.event.kind == EventKind::done) old.insert(seen.event.value);
    ASSERT_EQ(old.size(), kCount);
    EXPECT_EQ(*old.rbegin(), 3 * (kCount - 1));
    EXPECT_EQ(value_at(far, 0) | value_at(far, 16), 0u);
  });
}

TEST_P(Atomic, CompareSwapSwapsOnlyWhatItExpects) {
  connected([&](World& world, std::uint64_t) {
    const UpLink link = world.a().wait_links(world.links()).front();
    if (!native(world.a().can(link), Op::compare_swap)) GTEST_SKIP() << "the device has no atomics";
    Buffer far(64);
    far.set(std::byte{0});
    const Memory remote = world.b().remember(far, Access::atomic);
    const std::uint64_t handle = world.a().import(remote);
    Slice made = atomic(Op::compare_swap, link, 1, handle, 0, 77, 0);
    ASSERT_TRUE(world.a().post_all({&made, 1}));
    EXPECT_EQ(world.a().wait_token(1).event.value, 0u);
    EXPECT_EQ(value_at(far, 0), 77u);
    made = atomic(Op::compare_swap, link, 2, handle, 0, 99, 5);
    ASSERT_TRUE(world.a().post_all({&made, 1}));
    EXPECT_EQ(world.a().wait_token(2).event.value, 77u) << "the old value, though nothing was swapped";
    EXPECT_EQ(value_at(far, 0), 77u);
  });
}

TEST_P(Atomic, UnalignedOrOutsideIsRefused) {
  connected([&](World& world, std::uint64_t) {
    const UpLink link = world.a().wait_links(world.links()).front();
    if (!native(world.a().can(link), Op::fetch_add)) GTEST_SKIP() << "the device has no atomics";
    Buffer far(64);
    far.poison();
    const Memory remote = world.b().remember(far, Access::atomic);
    const std::uint64_t handle = world.a().import(remote);
    const Slice slices[] = {atomic(Op::fetch_add, link, 1, handle, 4, 1), atomic(Op::fetch_add, link, 2, handle, 64, 1),
                            atomic(Op::fetch_add, link, 3, handle, 60, 1)};
    ASSERT_TRUE(world.a().post_all(slices));
    EXPECT_EQ(world.a().wait_token(1).event.status.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(world.a().wait_token(2).event.status.code(), ErrorCode::out_of_range);
    EXPECT_EQ(world.a().wait_token(3).event.status.code(), ErrorCode::out_of_range);
    EXPECT_EQ(far.untouched(0, 64), "");
  });
}

}  // namespace fairway::conformance
