#include <algorithm>
#include <cstring>
#include <utility>

#include <gtest/gtest.h>

#include "core/crc32c.h"
#include "staging_side.h"

namespace fairway::engine {
namespace {

constexpr std::uint64_t kMoreThanTwo = 2 * kSlotBytes + 9;  // slots

// Checksums and atomics on memory that only a device reaches, here of somebody who keeps what they came to.
struct OnDevice : testing::Test, DeviceOperationOwner {
  bool wants(const DeviceOperation&) const override { return wanted; }
  void ended(const DeviceOperation& operation, ErrorCode code) override {
    outcomes.emplace_back(code, operation.value);
    if (std::exchange(another, false)) side.staging.operations.begin(of(DeviceOperation::Kind::peers_checksum, 0, 8));
  }
  DeviceOperation of(DeviceOperation::Kind kind, std::uint64_t offset, std::uint64_t length) {
    DeviceOperation operation;
    operation.kind = kind;
    operation.owner = this;
    operation.region = region;
    operation.offset = offset;
    operation.length = length;
    return operation;
  }
  void begin_add(std::uint64_t operand) {
    DeviceOperation add = of(DeviceOperation::Kind::atomic, 8, 8);
    add.operation = record::Atomic::kAdd;
    add.operand = operand;
    side.staging.operations.begin(add);
  }
  void share(Access access) { region = *side.peer.local.add(memory.data(), memory.size(), MemoryKind::device, access); }
  std::uint64_t word() const {
    std::uint64_t value = 0;
    std::memcpy(&value, memory.data() + 8, sizeof value);
    return value;
  }

  StagingSide side;
  std::vector<std::byte> memory = std::vector<std::byte>(2 * kSlotBytes + 100, std::byte{3});
  RegionId region;
  bool wanted = true, another = false;
  std::vector<std::pair<ErrorCode, std::uint64_t>> outcomes;
};

TEST_F(OnDevice, AChecksumOfMoreThanASlotIsThatOfAllItsBytes) {
  memory[kSlotBytes + 7] = std::byte{9};
  share(Access::write);  // who may write there may know it too
  side.staging.operations.begin(of(DeviceOperation::Kind::peers_checksum, 5, kMoreThanTwo));
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(outcomes.empty());
    side.step();
  }
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_EQ(outcomes[0].second, crc32c(0, std::span<const std::byte>(memory).subspan(5, kMoreThanTwo)));
  EXPECT_FALSE(side.staging.has_work());
}

TEST_F(OnDevice, AtomicsGiveTheOldValueOneAfterTheOther) {
  std::fill(memory.begin(), memory.end(), std::byte{0});
  share(Access::atomic);
  begin_add(2);
  begin_add(5);
  for (int i = 0; i < 4; ++i) side.step();
  const std::vector<std::pair<ErrorCode, std::uint64_t>> both{{ErrorCode::ok, 0}, {ErrorCode::ok, 2}};
  EXPECT_EQ(outcomes, both);
  EXPECT_EQ(word(), 7u);
  EXPECT_FALSE(side.atomics.test());
}

TEST_F(OnDevice, AnAtomicWaitsForThatOfAnotherWorker) {
  share(Access::atomic);
  const std::uint64_t before = word();
  (void)side.atomics.test_and_set();
  begin_add(1);
  for (int i = 0; i < 3; ++i) side.step();
  EXPECT_TRUE(outcomes.empty());
  EXPECT_EQ(word(), before);
  side.atomics.clear();
  for (int i = 0; i < 2; ++i) side.step();
  EXPECT_EQ(word(), before + 1);
}

TEST_F(OnDevice, ACompareSwapThatFindsAnotherValueWritesNothing) {
  share(Access::atomic);
  DeviceOperation swap = of(DeviceOperation::Kind::atomic, 8, 8);
  swap.operation = record::Atomic::kCompareSwap;
  swap.expected = 1;
  side.staging.operations.begin(swap);
  side.step();
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_EQ(outcomes[0].second, word());
  EXPECT_EQ(side.copier.copied, 1u);
}

TEST_F(OnDevice, EachCopyIsCheckedAgainstTheRegionAsItIsThen) {
  share(Access::read);
  begin_add(1);  // not permitted
  side.staging.operations.begin(of(DeviceOperation::Kind::peers_checksum, 0, kMoreThanTwo));
  side.step();
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_EQ(outcomes[0].first, ErrorCode::access_denied);
  EXPECT_TRUE(side.staging.copies(region));
  (void)side.peer.local.revoke(region);
  side.step();
  ASSERT_EQ(outcomes.size(), 2u);
  EXPECT_EQ(outcomes[1].first, ErrorCode::revoked);
  EXPECT_FALSE(side.staging.copies(region));
}

TEST_F(OnDevice, WhatNobodyWantsAnyMoreEndsWithItsCopyAndGivesItsSlotBack) {
  share(Access::read);
  for (std::uint32_t i = 0; i < kSlots + 1; ++i)
    side.staging.operations.begin(of(DeviceOperation::Kind::peers_checksum, 0, 2 * kSlotBytes));
  (void)side.staging.proceed(side.peer.time);
  EXPECT_EQ(side.copier.queued.size(), kSlots);  // the last one waits for a slot
  wanted = false;
  (void)side.staging.proceed(side.peer.time);
  EXPECT_EQ(outcomes.size(), 1u);  // the device has those of the others
  for (int i = 0; i < 2; ++i) side.step();
  EXPECT_EQ(outcomes.size(), kSlots + 1u);
  Status why;
  for (std::uint32_t i = 0; i < kSlots; ++i) EXPECT_NE(side.staging.pool.take_slot(why), kInPlace);
  EXPECT_EQ(side.staging.pool.take_slot(why), kInPlace);
  EXPECT_TRUE(why);
}

TEST_F(OnDevice, OneMayBeginInTheEndOfAnother) {
  share(Access::read);
  another = true;
  side.staging.operations.begin(of(DeviceOperation::Kind::peers_checksum, 0, 8));
  for (int i = 0; i < 2; ++i) side.step();
  EXPECT_EQ(outcomes.size(), 2u);
}

TEST_F(OnDevice, WithoutMemoryToStageInItFailsAndTheNextOneTriesAgain) {
  share(Access::read);
  side.copier.refuses_buffers = true;
  side.staging.operations.begin(of(DeviceOperation::Kind::peers_checksum, 0, 8));
  side.step();
  side.copier.refuses_buffers = false;
  side.staging.operations.begin(of(DeviceOperation::Kind::peers_checksum, 0, 8));
  side.step();
  ASSERT_EQ(outcomes.size(), 2u);
  EXPECT_EQ(outcomes[0].first, ErrorCode::resource_exhausted);
  EXPECT_EQ(outcomes[1].first, ErrorCode::ok);
}

}  // namespace
}  // namespace fairway::engine
