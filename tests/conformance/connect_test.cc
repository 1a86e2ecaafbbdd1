#include <algorithm>

#include "conformance/world.h"
#include "support/at_length.h"
#include "support/sanitized.h"

// Connecting: bytes that control carries, from a peer that may lie.
namespace fairway::conformance {

FAIRWAY_CLAIMS(Connect);

namespace {

std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ x >> 31) * 0x7fb5d329728ea185;
  x = (x ^ x >> 27) * 0x81dadef4bc2dd44d;
  return x ^ x >> 33;
}

bool heard_of_failure(Side& side) {
  return side.count(EventKind::link_down) > 0;
}

}  // namespace

TEST_P(Connect, EveryLinkIsNamedAlikeAndOnce) {
  connected([&](World& world, std::uint64_t) {
    const auto from_a = world.a().wait_links(world.links()), from_b = world.b().wait_links(world.links());
    for (std::size_t i = 0; i < from_a.size(); ++i) {
      EXPECT_EQ(from_a[i].name, from_b[i].name);
      EXPECT_GT(from_a[i].id.epoch, 0u);
      if (i > 0) {
        EXPECT_NE(from_a[i].name, from_a[i - 1].name);
      }
    }
  });
}

TEST_P(Connect, AnyByteOfTheHandshakeChangedNeverHarmsAndNeverHangs) {
  // What runs in simulated time takes none.
  const std::uint64_t trials = !kSanitized && (at_length() || GetParam().runs > 1) ? 40 : 10;
  each([&](World&, std::uint64_t first) {
    for (std::uint64_t trial = 0; trial < trials; ++trial) {
      SCOPED_TRACE("trial " + std::to_string(trial));
      const std::unique_ptr<World> world = GetParam().make(first * 1000 + trial);
      // Each side's worker has a copy, and so a chance of its own.
      const auto lie = [chance = mixed(first * 1000 + trial + 1)](std::vector<std::byte>& bytes) mutable {
        chance = mixed(chance + 1);
        if (bytes.empty() || chance % 3 == 0) return;
        const std::uint64_t what = chance >> 8;
        if (what % 5 == 0)
          bytes.resize(what / 5 % (2 * bytes.size()) + 1);
        else
          bytes[what / 5 % bytes.size()] ^= static_cast<std::byte>(1u << (what >> 40) % 8);
      };
      world->a().carry_to(world->b(), lie);
      world->b().carry_to(world->a(), trial % 2 == 0 ? lie : std::function<void(std::vector<std::byte>&)>());
      world->b().connect(Role::acceptor);
      world->a().connect(Role::initiator);
      world->a().rest(20 * kMillisecond);
      // Both still live, whatever they made of it: they can disconnect and meet again.
      world->a().disconnect();
      world->b().disconnect();
      world->a().rest(5 * kMillisecond);
      world->b().rest(5 * kMillisecond);
      ASSERT_TRUE(world->connect());
    }
  });
}

TEST_P(Connect, GarbageFailsTheConnectionAndNotTheProcess) {
  each([&](World& world, std::uint64_t seed) {
    world.b().connect(Role::acceptor);
    std::vector<std::byte> garbage(1 + seed * 13 % 400);
    for (std::size_t i = 0; i < garbage.size(); ++i) garbage[i] = static_cast<std::byte>(mixed(seed * 1000 + i));
    world.b().exchange(garbage);
    ASSERT_TRUE(world.b().wait([](const std::vector<Seen>& log) { return !log.empty(); }));
    ASSERT_TRUE(heard_of_failure(world.b()));
    const auto log = world.b().seen();
    EXPECT_EQ(log.front().event.peer, Side::kPeer);
    EXPECT_FALSE(log.front().event.status.is_ok());
    EXPECT_NE(log.front().event.status.message(), "");
  });
}

TEST_P(Connect, GarbageAfterwardsBreaksTheLinksOfThatPeer) {
  connected([&](World& world, std::uint64_t seed) {
    std::vector<std::byte> garbage(64, static_cast<std::byte>(seed));
    world.a().exchange(garbage);
    ASSERT_TRUE(world.a().wait([&](const std::vector<Seen>& log) {
      return static_cast<std::size_t>(std::count_if(log.begin(), log.end(), [](const Seen& seen) {
               return seen.event.kind == EventKind::link_down;
             })) >= world.links();
    }));
  });
}

TEST_P(Connect, BytesOfAStrangerAreIgnored) {
  each([&](World& world, std::uint64_t) {
    std::vector<std::byte> bytes(36);
    world.a().exchange(bytes);  // before any connect()
    world.a().disconnect();
    EXPECT_TRUE(world.a().seen().empty());
    ASSERT_TRUE(world.connect());
  });
}

}  // namespace fairway::conformance
