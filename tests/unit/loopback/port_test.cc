#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "transport/loopback/direct_wire.h"

// What the two-thread suite cannot time: who holds the initiator's memory between two pieces of one slice.
namespace fairway::transport::loopback {
namespace {

struct Linked {
  Linked() : near(3 * kPieceBytes, std::byte{1}), far(3 * kPieceBytes, std::byte{2}) {
    const auto id = regions.add(far.data(), far.size(), MemoryKind::host, Access::all);
    const auto bell = std::make_shared<Doorbell>();
    a = wire.offer(7, {regions, bell, 0});
    b = wire.attach(7, {regions, bell, 0});
    command.slice.op = Op::write;
    command.slice.token = 5;
    command.slice.local = near.data();
    command.slice.length = near.size();
    command.local_begin = near.data();
    command.local_size = near.size();
    command.region = *id;
  }
  std::vector<Event> poll(Port& port, std::uint64_t budget = kPieceBytes) {
    std::array<Event, 16> events;
    const std::size_t count = port.poll(events, 0, budget);
    return {events.begin(), events.begin() + static_cast<std::ptrdiff_t>(count)};
  }

  DirectWire wire;
  RegionTable regions{4};
  std::vector<std::byte> near, far;
  std::unique_ptr<Port> a, b;
  Command command;
};

}  // namespace

TEST(LoopbackPort, AnOfferIsTakenOnce) {
  Linked linked;
  const auto bell = std::make_shared<Doorbell>();
  EXPECT_EQ(linked.wire.attach(7, {linked.regions, bell, 0}), nullptr);
  EXPECT_EQ(linked.wire.attach(8, {linked.regions, bell, 0}), nullptr);
  EXPECT_EQ(linked.a->name(), linked.b->name());
}

TEST(LoopbackPort, APollCopiesAtMostItsBudget) {
  Linked linked;
  ASSERT_EQ(linked.a->post({&linked.command, 1}), 1u);
  linked.poll(*linked.b, 1000);
  EXPECT_EQ(linked.far[1000 - 1], std::byte{1});
  EXPECT_EQ(linked.far[1000], std::byte{2});
  EXPECT_FALSE(linked.b->idle());
  for (int i = 0; i < 5; ++i) linked.poll(*linked.b);
  const auto events = linked.poll(*linked.a);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, EventKind::done);
  EXPECT_EQ(linked.near, linked.far);
}

TEST(LoopbackPort, AFenceBetweenTwoPiecesEndsTheSliceThoughTheTargetNeverRunsAgain) {
  Linked linked;
  ASSERT_EQ(linked.a->post({&linked.command, 1}), 1u);
  linked.poll(*linked.b);
  linked.a->fence();
  const auto events = linked.poll(*linked.a);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, EventKind::failed);
  EXPECT_EQ(events[0].status.effect(), Effect::partial);
  EXPECT_EQ(events[1].kind, EventKind::fenced);
  const auto before = linked.far;
  linked.poll(*linked.b);
  EXPECT_EQ(linked.far, before);
}

TEST(LoopbackPort, ACancelBetweenTwoPiecesSaysPartial) {
  Linked linked;
  ASSERT_EQ(linked.a->post({&linked.command, 1}), 1u);
  linked.poll(*linked.b);
  linked.a->cancel(5);
  const auto events = linked.poll(*linked.a);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].status.code(), ErrorCode::cancelled);
  EXPECT_EQ(events[0].status.effect(), Effect::partial);
  for (int i = 0; i < 3; ++i) linked.poll(*linked.b);
  EXPECT_TRUE(linked.poll(*linked.a).empty()) << "one event";
  EXPECT_EQ(linked.far.back(), std::byte{2});
}

TEST(LoopbackPort, ARevokedRegionEndsASliceBetweenTwoPieces) {
  Linked linked;
  ASSERT_EQ(linked.a->post({&linked.command, 1}), 1u);
  linked.poll(*linked.b);
  ASSERT_TRUE(linked.regions.revoke(linked.command.region));
  linked.poll(*linked.b);
  const auto events = linked.poll(*linked.a);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].status.code(), ErrorCode::revoked);
  EXPECT_EQ(events[0].status.effect(), Effect::partial);
}

TEST(LoopbackPort, MemoryPerLinkIsAFewKib) {
  EXPECT_LE(sizeof(Pipe), 24u * 1024);
}

}  // namespace fairway::transport::loopback
