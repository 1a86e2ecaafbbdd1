#include <algorithm>
#include <array>

#include "conformance/fabric_worlds.h"

// Frames that arrived, as their senders' completions say, and of which nobody hears: what ofi_rxm does with a
// connection that is cut.
namespace fairway::conformance {
namespace {

constexpr std::size_t kLong = 200;  // bytes of a message; the transport's own words are shorter

TEST(FabricLosses, EndTheLinkWithTheNextFrame) {
  const auto world = make_fabric_world({"tcp"});
  if (!world) GTEST_SKIP() << "no libfabric";
  ASSERT_TRUE(world->connect());
  const UpLink link = world->a().wait_links(1).front();
  Buffer bytes(256);
  std::array<Slice, 3> slices;
  for (std::uint32_t i = 0; i < slices.size(); ++i) slices[i] = message(link, i, bytes, kLong, false);
  ASSERT_TRUE(world->a().post_all({&slices[0], 1}));
  ASSERT_EQ(world->a().wait_token(0).event.kind, EventKind::done);  // the provider has connected, and takes at once
  shim_lose(1, kLong);
  ASSERT_TRUE(world->a().post_all({&slices[1], 1}));
  static_cast<void>(world->a().post({&slices[2], 1}));  // taken, unless the loss was asked for by then
  ASSERT_TRUE(world->b().wait([](const std::vector<Seen>& log) {
    return std::any_of(log.begin(), log.end(), [](const Seen& seen) {
      return seen.event.kind == EventKind::link_down &&
             seen.event.status.message().find("the provider lost messages") != std::string::npos;
    });
  }));
  EXPECT_EQ(world->b().count(EventKind::message), 1u) << "none after the one that is missing";
  EXPECT_EQ(world->a().count(EventKind::done), 1u);
}

// As ofi_rxd has it now and then where it repeats packets.
TEST(FabricLosses, OfItsEndMakeNoMessageOfAFrameNorAnEndOfItsSlice) {
  for (const char* const provider : {"tcp", "udp"}) {
    SCOPED_TRACE(provider);
    const auto world = make_fabric_world({provider});
    if (!world) GTEST_SKIP() << "no libfabric";
    ASSERT_TRUE(world->connect());
    const UpLink link = world->a().wait_links(1).front();
    Buffer bytes(256);
    const Slice made = message(link, 1, bytes, kLong, false);
    shim_lengthen(1, kLong);
    ASSERT_TRUE(world->a().post_all({&made, 1}));
    ASSERT_TRUE(world->b().wait([](const std::vector<Seen>& log) {
      return std::any_of(log.begin(), log.end(), [](const Seen& seen) {
        return seen.event.kind == EventKind::link_down && seen.event.status.code() == ErrorCode::link_failed;
      });
    }));
    EXPECT_EQ(world->a().count(EventKind::done), 0u);
    EXPECT_EQ(world->b().count(EventKind::message), 0u);
  }
}

TEST(FabricLosses, AreMissedThoughNoFrameFollows) {
  for (const Op op : {Op::message, Op::write_immediate}) {
    const auto world = make_fabric_world({"tcp"});
    if (!world) GTEST_SKIP() << "no libfabric";
    ASSERT_TRUE(world->connect());
    const UpLink link = world->a().wait_links(1).front();
    Buffer near(256), far(256);
    const Memory local = world->a().remember(near, Access::none), remote = world->b().remember(far, Access::write);
    Slice made = message(link, 1, near, kLong, false);
    if (op == Op::write_immediate) made = slice(op, link, 1, local, 0, world->a().import(remote), 0, 8);
    shim_lose(1, op == Op::message ? kLong : 0);
    ASSERT_TRUE(world->a().post_all({&made, 1}));
    ASSERT_TRUE(world->b().wait([](const std::vector<Seen>& log) {
      return std::any_of(log.begin(), log.end(),
                         [](const Seen& seen) { return seen.event.kind == EventKind::link_down; });
    }));
    EXPECT_EQ(world->a().count(EventKind::done), 0u);
    EXPECT_EQ(world->b().count(EventKind::message) + world->b().count(EventKind::immediate), 0u);
  }
}

TEST(FabricLosses, OfAWordHaveItAskedForAgain) {
  const auto world = make_fabric_world({"tcp"});
  if (!world) GTEST_SKIP() << "no libfabric";
  ASSERT_TRUE(world->connect());
  const UpLink link = world->a().wait_links(1).front();
  Buffer bytes(64);
  const std::uint64_t before = shim_losses();
  for (std::uint32_t i = 0; shim_losses() == before && i < 100; ++i) {  // until the word has not come before the pause
    const Slice made = message(link, i, bytes, 8, false);
    ASSERT_TRUE(world->a().post_all({&made, 1}));
    world->a().pause(i != 0);  // the first makes the provider connect
    ASSERT_TRUE(world->b().wait([i](const std::vector<Seen>& log) {
      return std::count_if(log.begin(), log.end(),
                           [](const Seen& seen) { return seen.event.kind == EventKind::message; }) == i + 1;
    }));
    world->b().rest(20 * kMillisecond);
    if (i != 0 && world->a().count(EventKind::done) == i) shim_lose(1);
    world->a().pause(false);
    ASSERT_EQ(world->a().wait_token(i).event.kind, EventKind::done);
  }
  EXPECT_EQ(shim_losses() - before, 1u);
  EXPECT_EQ(world->b().count(EventKind::link_down), 0u);
}

}  // namespace
}  // namespace fairway::conformance
