#include <memory>

#include <gtest/gtest.h>

#include "staging_side.h"

// Who has a lease among several peers, and what is done for one of them.
namespace fairway::engine {
namespace {

struct Leases : testing::Test {
  Leases() {
    for (std::uint32_t i = 0; i < kMostLeases + 1; ++i) targets.push_back(std::make_unique<StagingTarget>(side));
  }
  void use(std::uint32_t target) {  // one copy of no bytes, which no device sees
    targets[target]->server.on_copy({1, 0, {}, {}}, true);
    (void)targets[target]->sent();
  }
  StagingSide side;
  std::vector<std::unique_ptr<StagingTarget>> targets;
};

TEST_F(Leases, WhoWaitsGetsTheOldestThatWasOfUse) {
  for (const auto& target : targets) {
    target->server.on_ask(1);
    target->peer.time += kMillisecond * (targets.size() - static_cast<std::size_t>(&target - targets.data()));
    (void)side.staging.proceed(side.peer.time);
  }
  for (std::uint32_t i = 0; i < kMostLeases; ++i) EXPECT_EQ(targets[i]->sent(), std::vector{RecordType::stage_grant});
  EXPECT_TRUE(targets.back()->sent().empty());
  use(3);
  use(5);  // lent before
  (void)side.staging.proceed(side.peer.time);
  EXPECT_EQ(targets[5]->sent(), std::vector{RecordType::stage_recall});
  (void)side.staging.proceed(side.peer.time);
  EXPECT_TRUE(targets[3]->sent().empty());  // one is enough
  targets[5]->server.on_end(1);
  (void)side.staging.proceed(side.peer.time);
  EXPECT_TRUE(targets.back()->sent().empty());  // something may still land in it
  ASSERT_TRUE(targets[5]->ending);
  targets[5]->ending({});
  (void)side.staging.proceed(side.peer.time);
  EXPECT_EQ(targets.back()->sent(), std::vector{RecordType::stage_grant});
  EXPECT_FALSE(side.staging.has_work());
}

TEST_F(Leases, WhoLeavesWhileItWaitsIsNotServed) {
  for (const auto& target : targets) target->server.on_ask(1);
  (void)side.staging.proceed(side.peer.time);
  targets.back()->peer.down = true;
  targets.back()->server.peer_gone();
  EXPECT_TRUE(targets.back()->server.has_ended());
  targets[0]->server.on_end(1);
  targets[0]->ending({});
  (void)side.staging.proceed(side.peer.time);
  EXPECT_TRUE(targets.back()->sent().empty());
  EXPECT_FALSE(side.staging.has_work());
}

TEST_F(Leases, ABufferThatMayStillBeTouchedIsNotLentAnew) {
  for (const auto& target : targets) target->server.on_ask(1);
  (void)side.staging.proceed(side.peer.time);
  targets[0]->server.on_end(1);
  targets[0]->ending({ErrorCode::not_fenced, "a peer holds on to it"});
  (void)side.staging.proceed(side.peer.time);
  EXPECT_TRUE(targets.back()->sent().empty());
}

struct OneLease : Leases {
  OneLease() : target(*targets[0]) {
    target.server.on_ask(1);
    (void)side.staging.proceed(side.peer.time);
    (void)target.sent();
    region = *side.peer.local.add(memory.data(), memory.size(), MemoryKind::device, Access::all);
  }
  StageCopy of(std::uint8_t slot, std::uint32_t length) {
    StageCopy copy{1, slot, region, {}};
    copy.parts.all[copy.parts.count++] = {0, length};
    return copy;
  }
  StagingTarget& target;
  std::vector<std::byte> memory = std::vector<std::byte>(2 * kSlotBytes);
  RegionId region;
};

TEST_F(OneLease, WhatIsNotLentIsAViolation) {
  target.server.on_ask(0);
  target.server.on_ask(2);  // comes before the end of the first
  EXPECT_EQ(target.peer.violations.size(), 1u);
  target.server.on_ask(3);
  target.server.on_end(2);
  StageCopy other = of(0, 8);
  other.number = 2;
  target.server.on_copy(other, true);
  target.server.on_copy(of(kSlots, 8), true);
  target.server.on_copy(of(0, kSlotBytes + 1), true);
  EXPECT_EQ(target.peer.violations.size(), 6u);
  EXPECT_TRUE(side.copier.queued.empty());
  target.server.on_copy(of(0, 8), true);
  target.server.on_copy(of(0, 8), true);  // is being copied
  target.server.on_end(1);
  EXPECT_EQ(target.peer.violations.size(), 8u);
  EXPECT_EQ(side.copier.queued.size(), 1u);
}

TEST_F(OneLease, OneThatWasAskedForEarlyFollowsTheEndOfTheOneBefore) {
  target.server.on_ask(2);
  target.server.on_end(1);
  target.ending({});
  (void)side.staging.proceed(side.peer.time);
  const auto records = target.peer.take_records();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(decode<record::StageGrant>(target.peer.header(records[0]).body)->number, 2u);
}

TEST_F(OneLease, WhenThePeerIsGoneTheBufferStaysUntilTheDeviceIsThrough) {
  target.server.on_copy(of(0, 8), false);
  EXPECT_TRUE(side.staging.copies(region));
  side.copier.is = transport::Copier::Readiness::opening;
  target.server.on_copy(of(1, 8), false);  // the device has not taken it
  target.peer.down = true;
  target.server.peer_gone();
  EXPECT_FALSE(target.server.has_ended());
  EXPECT_TRUE(target.closed.empty());
  side.step();
  EXPECT_TRUE(target.server.has_ended());
  EXPECT_EQ(target.closed.size(), 1u);
  EXPECT_FALSE(side.staging.copies(region));
  EXPECT_FALSE(side.staging.has_work());
}

TEST_F(OneLease, ThePeersOperationsAreRepliedToAndBounded) {
  DeviceOperation sum;
  sum.region = region;
  sum.length = 8;
  sum.token = 9;
  target.server.run(sum);
  EXPECT_FALSE(target.server.has_ended());
  side.step();
  const std::vector<std::uint32_t> replies = target.peer.take_records();
  ASSERT_EQ(replies.size(), 1u);
  const auto reply = decode<record::Reply>(target.peer.header(replies[0]).body);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->token, 9u);
  EXPECT_EQ(reply->code, ErrorCode::ok);
  for (std::uint32_t i = 0; i < StagingServer::kMostOperations; ++i) target.server.run(sum);
  EXPECT_TRUE(target.peer.violations.empty());
  target.server.run(sum);
  EXPECT_EQ(target.peer.violations.size(), 1u);
  target.peer.down = true;
  side.step();
  side.step();
  EXPECT_TRUE(target.peer.take_records().empty());  // nobody is there
  EXPECT_FALSE(side.staging.has_work());
}

}  // namespace
}  // namespace fairway::engine
