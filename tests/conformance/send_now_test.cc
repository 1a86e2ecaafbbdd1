#include <algorithm>
#include <cstring>

#include "conformance/world.h"

// Messages that are handed over within the call (transport/optional_calls.h), and when they must not be.
namespace fairway::conformance {

FAIRWAY_CLAIMS(SendNow);

namespace {

using Answer = transport::AtOnce;

std::vector<std::byte> numbered(std::uint32_t number, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(number + 3 * i);
  if (size >= 4) std::memcpy(bytes.data(), &number, 4);
  return bytes;
}

// In two parts, the first of at most 30 bytes.
bool send(World& world, const UpLink& link, const std::vector<std::byte>& bytes) {
  const std::span<const std::byte> all(bytes);
  const std::size_t head = std::min<std::size_t>(30, all.size());
  return world.a().send_now(link.id, all.first(head), all.subspan(head)) == Answer::done;
}

std::size_t heard(const std::vector<Seen>& log) {
  return static_cast<std::size_t>(
      std::ranges::count_if(log, [](const Seen& seen) { return seen.event.kind == EventKind::message; }));
}

bool can(World& world, const UpLink& link) {
  return native(world.a().can(link), Op::message) && send(world, link, numbered(0, 4));
}

}  // namespace

TEST_P(SendNow, EachArrivesOnceWholeAndInOrderAmongThoseThatArePosted) {
  connected([&](World& world, std::uint64_t) {
    const UpLink link = world.a().wait_links(world.links()).front();
    if (!can(world, link)) GTEST_SKIP() << "no message is handed over within the call here";
    const std::size_t most = world.a().can(link).max_message_bytes;
    const std::size_t sizes[] = {0, 1, 4, 30, 31, 47, 48, 49, 64, 1000, 4096, most};
    std::vector<std::vector<std::byte>> sent = {numbered(0, 4)};
    for (std::uint32_t i = 1; i < 300; ++i) {
      sent.push_back(numbered(i, sizes[i % std::size(sizes)]));
      if (i % 5 != 0 && send(world, link, sent.back())) continue;
      Slice made;
      made.op = Op::message;
      made.link = link.id;
      made.token = 1000 + i;
      made.local = sent.back().data();
      made.length = sent.back().size();
      ASSERT_TRUE(world.a().post_all({&made, 1}));
      ASSERT_EQ(world.a().wait_token(1000 + i).event.kind, EventKind::done);
    }
    ASSERT_TRUE(world.b().wait([&](const std::vector<Seen>& log) { return heard(log) >= sent.size(); }));
    std::size_t at = 0;
    for (const Seen& seen : world.b().seen()) {
      if (seen.event.kind != EventKind::message) continue;
      ASSERT_LT(at, sent.size());
      EXPECT_EQ(std::vector(seen.bytes.begin(), seen.bytes.end()), sent[at]) << "message " << at;
      ++at;
    }
    EXPECT_EQ(at, sent.size());
  });
}

TEST_P(SendNow, NoneGoesOnceTheTargetHasClosedTheEpochAndAllThatWentBeforeAreHeard) {
  connected([&](World& world, std::uint64_t) {
    const UpLink link = world.a().wait_links(world.links()).front();
    if (!can(world, link)) GTEST_SKIP() << "no message is handed over within the call here";
    const UpLink there = world.b().wait_links(world.links()).front();
    world.a().pause(true);
    world.b().pause(true);
    std::size_t sent = 1;
    for (std::uint32_t i = 1; i < 20; ++i) sent += send(world, link, numbered(i, 20 * i)) ? 1 : 0;
    world.b().fence(there.id);
    world.b().pause(false);
    EXPECT_TRUE(world.b().wait([&](const std::vector<Seen>& log) {
      return std::ranges::any_of(log, [](const Seen& seen) { return seen.event.kind == EventKind::fenced; });
    }));
    EXPECT_EQ(heard(world.b().seen()), sent);
    EXPECT_FALSE(send(world, link, numbered(99, 8)));
    world.a().pause(false);
  });
}

TEST_P(SendNow, NoneOvertakesWhatIsQueuedInOrder) {
  connected([&](World& world, std::uint64_t seed) {
    const UpLink link = world.a().wait_links(world.links()).front();
    if (!can(world, link) || !native(world.a().can(link), Op::write_immediate))
      GTEST_SKIP() << "no message is handed over within the call here";
    Buffer much(1 << 20), room(1 << 20);
    much.fill(seed);
    const Memory from = world.a().remember(much, Access::none), to = world.b().remember(room, Access::write);
    const std::uint64_t handle = world.a().import(to);
    const Slice open = slice(Op::write, link, 902, from, 0, handle, 0, 8);
    ASSERT_TRUE(world.a().post_all({&open, 1}));
    ASSERT_EQ(world.a().wait_token(902).event.kind, EventKind::done);
    world.a().pause(true);
    Slice large = slice(Op::write_immediate, link, 903, from, 0, handle, 0, much.size());
    EXPECT_EQ(world.a().post({&large, 1}), 1u);
    EXPECT_FALSE(send(world, link, numbered(1, 8)));
    world.a().pause(false);
    EXPECT_EQ(world.a().wait_token(903).event.kind, EventKind::done);
    EXPECT_TRUE(send(world, link, numbered(2, 8)));
  });
}

}  // namespace fairway::conformance
