#include <algorithm>
#include <cstring>
#include <map>

#include "conformance/world.h"

// What comes when: messages, immediates, one event per slice, and what a full queue does.
namespace fairway::conformance {

FAIRWAY_CLAIMS(Order);

namespace {

Slice message(const UpLink& link, std::uint32_t token, std::vector<std::byte>& bytes) {
  Slice made;
  made.op = Op::message;
  made.token = token;
  made.link = link.id;
  made.local = bytes.data();
  made.length = bytes.size();
  return made;
}

std::vector<std::uint32_t> numbers(const std::vector<Seen>& log, EventKind kind) {
  std::vector<std::uint32_t> found;
  for (const Seen& seen : log) {
    if (seen.event.kind != kind) continue;
    std::uint32_t number = static_cast<std::uint32_t>(seen.event.value);
    if (kind == EventKind::message) std::memcpy(&number, seen.bytes.data(), 4);
    found.push_back(number);
  }
  return found;
}

}  // namespace

TEST_P(Order, MessagesArriveWholeAndInOrderWhenTheLinkSaysSo) {
  connected([&](World& world, std::uint64_t seed) {
    const UpLink link = world.a().wait_links(world.links()).front();
    const auto& can = world.a().can(link);
    if (!native(can, Op::message)) GTEST_SKIP() << "the device has no messages";
    constexpr std::uint32_t kCount = 60;
    for (std::uint32_t i = 0; i < kCount; ++i) {
      std::vector<std::byte> bytes(4 + (i * 37 + seed) % (can.max_message_bytes - 3));
      for (std::size_t k = 4; k < bytes.size(); ++k) bytes[k] = Buffer::pattern(i, k);
      std::memcpy(bytes.data(), &i, 4);
      const Slice made = message(link, i, bytes);
      ASSERT_TRUE(world.a().post_all({&made, 1}));
      std::memset(bytes.data(), 0xff, bytes.size());  // free again once taken
    }
    ASSERT_TRUE(world.a().wait_ended(kCount));
    ASSERT_TRUE(
        world.b().wait([](const std::vector<Seen>& log) { return numbers(log, EventKind::message).size() >= kCount; }));
    const auto log = world.b().seen();
    auto got = numbers(log, EventKind::message);
    if (!can.ordered) std::sort(got.begin(), got.end());
    ASSERT_EQ(got.size(), kCount);
    for (std::uint32_t i = 0; i < kCount; ++i) EXPECT_EQ(got[i], i);
    for (const Seen& seen : log) {
      if (seen.event.kind != EventKind::message) continue;
      std::uint32_t i = 0;
      std::memcpy(&i, seen.bytes.data(), 4);
      ASSERT_EQ(seen.bytes.size(), 4 + (i * 37 + seed) % (can.max_message_bytes - 3));
      for (std::size_t k = 4; k < seen.bytes.size(); ++k) ASSERT_EQ(seen.bytes[k], Buffer::pattern(i, k));
    }
  });
}

TEST_P(Order, AMessageLongerThanTheLimitFailsAndTheNextOneArrives) {
  connected([&](World& world, std::uint64_t) {
    const UpLink link = world.a().wait_links(world.links()).front();
    const auto& can = world.a().can(link);
    if (!native(can, Op::message)) GTEST_SKIP() << "the device has no messages";
    std::vector<std::byte> longer(can.max_message_bytes + 1), right(can.max_message_bytes);
    const Slice slices[] = {message(link, 1, longer), message(link, 2, right)};
    ASSERT_TRUE(world.a().post_all(slices));
    EXPECT_EQ(world.a().wait_token(1).event.status.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(world.a().wait_token(2).event.kind, EventKind::done);
    ASSERT_TRUE(world.b().wait([](const std::vector<Seen>& log) { return !numbers(log, EventKind::message).empty(); }));
    EXPECT_EQ(world.b().count(EventKind::message), 1u);
  });
}

TEST_P(Order, AnImmediateComesAfterItsBytesAndInOrder) {
  connected([&](World& world, std::uint64_t seed) {
    const UpLink link = world.a().wait_links(world.links()).front();
    const auto& can = world.a().can(link);
    if (!native(can, Op::write_immediate)) GTEST_SKIP() << "the device has no immediates";
    constexpr std::uint32_t kCount = 24;
    const std::size_t size = std::min<std::size_t>(3000, can.max_slice_bytes);
    Buffer near(size * kCount), far(size * kCount);
    near.fill(seed);
    far.poison();
    const Memory local = world.a().remember(near, Access::none), remote = world.b().remember(far, Access::write);
    const std::uint64_t handle = world.a().import(remote);
    for (std::uint32_t i = 0; i < kCount; ++i) {
      Slice made = slice(Op::write_immediate, link, i, local, i * size, handle, i * size, i % 5 == 4 ? 0 : size);
      made.immediate = 0xabcd0000 + i;
      ASSERT_TRUE(world.a().post_all({&made, 1}));
      // As soon as the event is there, so are the bytes.
      if (i % 6 != 0) continue;
      ASSERT_TRUE(world.b().wait(
          [&](const std::vector<Seen>& log) { return numbers(log, EventKind::immediate).size() >= i + 1u; }));
      if (i % 5 != 4) {
        EXPECT_EQ(far.holds(seed, i * size, size, i * size), "");
      }
    }
    ASSERT_TRUE(world.a().wait_ended(kCount));
    ASSERT_TRUE(world.b().wait(
        [](const std::vector<Seen>& log) { return numbers(log, EventKind::immediate).size() >= kCount; }));
    auto got = numbers(world.b().seen(), EventKind::immediate);
    if (!can.ordered) std::sort(got.begin(), got.end());
    ASSERT_EQ(got.size(), kCount);
    for (std::uint32_t i = 0; i < kCount; ++i) EXPECT_EQ(got[i], 0xabcd0000 + i);
  });
}

TEST_P(Order, EverySliceHasExactlyOneEventAlsoWhenTheQueueIsFull) {
  connected([&](World& world, std::uint64_t seed) {
    const auto links = world.a().wait_links(world.links());
    const auto& can = world.a().can(links.front());
    if (!native(can, Op::write)) GTEST_SKIP() << "the device does not write";
    constexpr std::uint32_t kCount = 400;
    Buffer near(8 * kCount), far(8 * kCount);
    near.fill(seed);
    far.poison();
    const Memory local = world.a().remember(near, Access::none), remote = world.b().remember(far, Access::write);
    const std::uint64_t handle = world.a().import(remote);
    std::vector<Slice> slices;
    for (std::uint32_t i = 0; i < kCount; ++i)
      slices.push_back(slice(Op::write, links[i / 3 % links.size()], i, local, 8 * i, handle, 8 * i, 8));
    world.b().pause(true);
    const std::size_t at_once = world.a().post(slices);  // nobody serves: the queues fill, which is no error
    EXPECT_LT(at_once, kCount);
    EXPECT_LE(at_once, can.queue_depth * links.size());
    world.b().pause(false);
    ASSERT_TRUE(world.a().post_all(std::span<const Slice>(slices).subspan(at_once)));
    ASSERT_TRUE(world.a().wait_ended(kCount));
    world.a().rest(kMillisecond);
    std::map<std::uint32_t, int> events;
    for (const Seen& seen : world.a().seen())
      if (seen.event.kind == EventKind::done || seen.event.kind == EventKind::failed) {
        EXPECT_EQ(seen.event.kind, EventKind::done);
        ++events[seen.event.token];
      }
    EXPECT_EQ(events.size(), kCount);
    for (const auto& [token, count] : events) EXPECT_EQ(count, 1) << "slice " << token;
    EXPECT_EQ(far.holds(seed, 0, 8 * kCount, 0), "");
    EXPECT_EQ(far.margins(), "");
  });
}

TEST_P(Order, ASleepingSideIsWoken) {
  connected([&](World& world, std::uint64_t) {
    const UpLink link = world.a().wait_links(world.links()).front();
    if (!native(world.a().can(link), Op::message)) GTEST_SKIP() << "the device has no messages";
    std::vector<std::byte> bytes(8);
    world.b().rest(20 * kMillisecond);  // what making the link may still have to say
    for (std::uint32_t i = 0; i < 10; ++i) {
      ASSERT_TRUE(world.b().wait_asleep());
      const std::uint64_t before = world.b().steps();
      world.b().rest(2 * kMillisecond);
      if (world.announces()) {
        EXPECT_LE(world.b().steps() - before, 3u) << "an idle side does not run";
      }
      const Slice made = message(link, i, bytes);
      ASSERT_TRUE(world.a().post_all({&made, 1}));
      ASSERT_EQ(world.a().wait_token(i).event.kind, EventKind::done);
      ASSERT_TRUE(world.b().wait(
          [i](const std::vector<Seen>& log) { return numbers(log, EventKind::message).size() >= i + 1u; }));
    }
  });
}

}  // namespace fairway::conformance
