#include <algorithm>

#include <gtest/gtest.h>

#include "engine/staging/client.h"
#include "staging_side.h"

// StagingClient on one side, StagingServer on the other, records between them, and links that are a memcpy.
namespace fairway::engine {
namespace {

struct StagingSource : StagingSide {
  StagingSource() {
    client.greeted(kStagingRecord);
    peer.on_fail = [this](std::uint32_t slot) { client.stop(slot); };
    peer.on_end = [this](std::uint32_t slot) {
      if (peer.table[slot].chunk != kNoSlot) client.inner_ended(slot, peer.ended[slot]);
    };
  }
  std::uint8_t free_slots() {
    Status why;
    std::vector<std::uint8_t> taken;
    for (std::uint8_t slot = staging.pool.take_slot(why); slot != kInPlace; slot = staging.pool.take_slot(why))
      taken.push_back(slot);
    for (const std::uint8_t slot : taken) staging.pool.give_back(slot);
    return static_cast<std::uint8_t>(taken.size());
  }

  RemoteRegions& remotes = peer.tables.remotes;
  const RegionOwner& owner = peer.owner();
  transport::Reach& reach = peer.reach;
  std::vector<FakePeer::Compared>& compared = peer.compared;
  std::vector<std::uint32_t>& advanced = peer.advanced;
  StagingClient client{peer, staging};
};

struct Staged : testing::Test {
  Staged() : target(there) {}
  // Memory on both sides, filled with something.
  void share(MemoryKind kind_here, MemoryKind kind_there, std::uint64_t bytes, Access access = Access::all) {
    mine.resize(bytes);
    theirs.resize(bytes);
    for (std::size_t i = 0; i < bytes; ++i) mine[i] = static_cast<std::byte>(i * 7 + i / 4096);
    local = here.peer.add(mine, kind_here);
    shared = *there.peer.local.add(theirs.data(), bytes, kind_there, access);
    Description description;
    description.region = shared;
    description.size_bytes = bytes;
    description.kind = kind_there;
    description.access = Access::all;
    Status error;
    remote = here.remotes.import(here.owner, description, error);
    ASSERT_TRUE(error);
  }
  std::uint32_t begin(Operation operation, std::uint64_t length) {
    Request request;
    request.operation = operation;
    request.layout = Extent{{local, 0, length}, {remote, 0}};
    const std::uint32_t slot = here.peer.begin(request);
    (void)here.client.move(slot);
    return slot;
  }
  void carry() {
    for (const std::uint32_t record : here.peer.take_records()) target.take(here.peer.header(record));
    for (const std::uint32_t record : target.peer.take_records()) {
      const RecordHeader r = target.peer.header(record);
      using namespace record;
      switch (r.type) {
        case RecordType::stage_grant: here.client.lease().on_grant(*decode<StageGrant>(r.body)); break;
        case RecordType::stage_recall: here.client.lease().on_recall(decode<StageRecall>(r.body)->value); break;
        case RecordType::stage_done: here.client.on_done(*decode<StageDone>(r.body)); break;
        default: FAIL() << "no record of a staging server";
      }
    }
  }
  // The engine's own transfers, at once.
  void move_inner(const Status& status = {}) {
    for (const std::uint32_t slot : std::exchange(here.peer.turns, {})) {
      const Transfer& inner = here.peer.table[slot];
      if (inner.phase != Phase::queued) continue;
      const bool reads = inner.request.operation == Operation::read;
      for (std::uint64_t i = 0; i < inner.blocks; ++i) {
        const Block block = block_at(inner.request.layout, i);
        transport::RegionTable::Resolved near, far;
        ASSERT_EQ(here.peer.local.resolve(block.local, block.local_offset, block.length, Access::none, near),
                  ErrorCode::ok);
        ASSERT_EQ(there.peer.local.resolve(here.remotes.region_of(block.remote), block.remote_offset, block.length,
                                           reads ? Access::read : Access::write, far),
                  ErrorCode::ok);
        std::memcpy(reads ? near.address : far.address, reads ? far.address : near.address, block.length);
      }
      ++moved;
      here.peer.finish(slot, status);
    }
  }
  void run(std::uint32_t slot) {
    for (int i = 0; i < 50 && here.advanced.empty() && here.peer.ended.count(slot) == 0; ++i) {
      if (here.peer.table[slot].cursor.block < here.peer.table[slot].blocks) (void)here.client.move(slot);
      carry();
      here.step();
      move_inner();
      carry();
      there.step();
    }
  }
  void expect_all_given_back() {
    EXPECT_EQ(here.free_slots(), here.staging.pool.copier() == nullptr ? 0 : kSlots);
    EXPECT_FALSE(here.staging.has_work());
    EXPECT_FALSE(there.staging.has_work());
    for (const StagedChunk& chunk : here.staging.pool.chunks()) EXPECT_EQ(chunk.state, StagedChunk::State::free);
    EXPECT_TRUE(here.peer.violations.empty());
    EXPECT_TRUE(target.peer.violations.empty());
  }

  StagingSource here;
  StagingSide there;
  StagingTarget target;
  std::vector<std::byte> mine, theirs;
  RegionId local, shared;
  RemoteRegionId remote;
  int moved = 0;
};

constexpr std::uint64_t kLong = 2 * kSlotBytes + 77;

TEST_F(Staged, AWriteGoesThroughASlotOnEachSide) {
  share(MemoryKind::device, MemoryKind::device, kLong);
  const std::uint32_t slot = begin(Operation::write, kLong);
  run(slot);
  EXPECT_EQ(here.advanced, std::vector{slot});
  EXPECT_EQ(theirs, mine);
  EXPECT_EQ(here.peer.table[slot].bytes_done, kLong);
  EXPECT_EQ(here.copier.copied, 3u);
  EXPECT_EQ(there.copier.copied, 3u);
  expect_all_given_back();
}

TEST_F(Staged, AReadComesBackTheSameWay) {
  share(MemoryKind::device, MemoryKind::device, kLong);
  std::fill(theirs.begin(), theirs.end(), std::byte{5});
  const std::uint32_t slot = begin(Operation::read, kLong);
  run(slot);
  EXPECT_EQ(here.advanced, std::vector{slot});
  EXPECT_EQ(mine, theirs);
  expect_all_given_back();
}

TEST_F(Staged, WhatLinksReachNeedsNoSlot) {
  share(MemoryKind::host, MemoryKind::device, kLong);
  const std::uint32_t slot = begin(Operation::write, kLong);
  run(slot);
  EXPECT_EQ(theirs, mine);
  EXPECT_EQ(here.copier.copied, 0u);
  here.advanced.clear();
  share(MemoryKind::device, MemoryKind::device, kLong);
  here.reach = transport::Reach::yes;  // a link moves between the device here and the peer's slots
  run(begin(Operation::read, kLong));
  EXPECT_EQ(mine, theirs);
  EXPECT_EQ(here.copier.copied, 0u);
  EXPECT_EQ(here.client.reached_from(local), here.client.lease().region());
  here.advanced.clear();
  share(MemoryKind::device, MemoryKind::host, kLong);
  const std::size_t copied_there = there.copier.copied;
  run(begin(Operation::write, kLong));
  EXPECT_EQ(theirs, mine);
  EXPECT_EQ(there.copier.copied, copied_there);
  expect_all_given_back();
}

TEST_F(Staged, NothingIsReadBeforeTheStreamsEvent) {
  share(MemoryKind::device, MemoryKind::device, 64);
  Request request;
  request.layout = Extent{{local, 0, 64}, {remote, 0}};
  int event = 0;
  request.options.start_after = &event;
  const std::uint32_t slot = here.peer.begin(request);
  EXPECT_EQ(here.client.move(slot), Turn::no_credit);  // for everything else waits for that
  EXPECT_EQ(here.copier.gates, 1);
  EXPECT_TRUE(here.peer.take_records().empty());
  run(slot);
  EXPECT_EQ(theirs, mine);
  EXPECT_EQ(here.copier.gates, 1);
  expect_all_given_back();
}

TEST_F(Staged, ADeviceThatFailsEndsTheTransferAndItsSlotsAreFree) {
  share(MemoryKind::device, MemoryKind::device, kLong);
  here.copier.fails = true;
  const std::uint32_t slot = begin(Operation::write, kLong);
  run(slot);
  EXPECT_EQ(here.peer.ended[slot].code(), ErrorCode::system_error);
  EXPECT_TRUE(here.advanced.empty());
  expect_all_given_back();
}

TEST_F(Staged, WhatThePeerMayNotDoItsOwnerRefuses) {
  share(MemoryKind::device, MemoryKind::device, 64, Access::read);
  const std::uint32_t slot = begin(Operation::write, 64);
  run(slot);
  EXPECT_EQ(here.peer.ended[slot].code(), ErrorCode::access_denied);
  EXPECT_EQ(theirs, std::vector<std::byte>(64));
  expect_all_given_back();
}

TEST_F(Staged, ThePeersSlotIsNotReusedBeforeItsAnswer) {
  share(MemoryKind::device, MemoryKind::device, kSlotBytes);
  const std::uint32_t slot = begin(Operation::write, kSlotBytes);
  carry();
  there.step();
  carry();
  (void)here.client.move(slot);
  here.step();
  move_inner();
  here.peer.fail(slot, {ErrorCode::cancelled, "by its user"});  // the peer is asked, and has not answered
  EXPECT_EQ(here.peer.ended.count(slot), 1u);
  EXPECT_TRUE(here.peer.table[slot].in_doubt);
  EXPECT_TRUE(here.client.lease().uses(1, 0));
  carry();
  there.step();
  carry();
  EXPECT_FALSE(here.client.lease().uses(1, 0));
  expect_all_given_back();
}

TEST_F(Staged, ASlotWhereLateBytesMayComeIsLostAndTheLeaseEnds) {
  share(MemoryKind::device, MemoryKind::device, kSlotBytes);
  const std::uint32_t slot = begin(Operation::write, kSlotBytes);
  carry();
  there.step();
  carry();
  (void)here.client.move(slot);
  here.step();
  ASSERT_EQ(here.peer.turns.size(), 1u);
  here.peer.table[here.peer.turns[0]].in_doubt = true;
  move_inner({ErrorCode::link_failed, "its last link broke"});
  EXPECT_EQ(here.peer.ended[slot].code(), ErrorCode::link_failed);
  EXPECT_FALSE(here.client.lease().is_open());
  carry();
  EXPECT_EQ(target.closed.size(), 1u);
  expect_all_given_back();
}

TEST_F(Staged, AnIdleLeaseGoesBackAndOneThatIsRefusedIsAskedForLater) {
  share(MemoryKind::device, MemoryKind::device, 64);
  run(begin(Operation::write, 64));
  const Time idle = here.peer.time;
  EXPECT_EQ(here.client.lease().run_timer(idle), after(idle, kIdleLease));
  EXPECT_LE(here.peer.woken_at, after(idle, kIdleLease));
  EXPECT_EQ(here.client.lease().run_timer(after(idle, kIdleLease)), kNever);
  carry();
  EXPECT_EQ(target.closed.size(), 1u);
  target.ending({});
  there.copier.refuses_buffers = true;
  here.advanced.clear();
  const std::uint32_t refused = begin(Operation::write, 64);
  run(refused);
  EXPECT_EQ(here.peer.ended[refused].code(), ErrorCode::resource_exhausted);
  const std::uint32_t at_once = begin(Operation::write, 64);
  EXPECT_EQ(here.peer.ended[at_once].code(), ErrorCode::resource_exhausted);
  EXPECT_TRUE(here.peer.take_records().empty());
  there.copier.refuses_buffers = false;
  here.peer.time += kIdleLease;
  run(begin(Operation::write, 64));
  EXPECT_EQ(theirs, mine);
  expect_all_given_back();
}

TEST_F(Staged, AChecksumOfMemoryHereIsComparedUnlessItsTransferHasEnded) {
  share(MemoryKind::device, MemoryKind::device, 64);
  for (const bool ends : {false, true}) {
    const std::uint32_t slot = here.peer.begin({});
    here.peer.table[slot].phase = Phase::verifying;
    here.peer.table[slot].pieces_out = 1;
    DeviceOperation operation;
    operation.kind = DeviceOperation::Kind::own_checksum;
    operation.token = slot;
    operation.region = local;
    operation.length = 64;
    operation.expected = 8;
    here.client.run(operation);
    if (ends) here.peer.fail(slot, {ErrorCode::cancelled, "by its user"});
    here.step();
    EXPECT_EQ(here.peer.ended.count(slot), ends ? 1u : 0u);
  }
  ASSERT_EQ(here.compared.size(), 1u);
  EXPECT_EQ(here.compared[0].theirs, 8u);
  expect_all_given_back();
}

}  // namespace
}  // namespace fairway::engine
