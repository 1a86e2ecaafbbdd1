#include <cstring>

#include <gtest/gtest.h>

#include "core/crc32c.h"
#include "engine/transfers/remote_requests.h"
#include "fake_peer.h"
#include "fake_wire.h"
#include "transport/optional_calls.h"

// RemoteRequests on one side, RemoteService on the other, and nothing between them but records.
namespace fairway::engine {
namespace {

constexpr std::size_t kRecordPayload = 1024;

struct Taken final : DeviceOperationRunner {
  void run(DeviceOperation operation) override { all.push_back(operation); }
  std::vector<DeviceOperation> all;
};

struct Asking {
  FakePeer peer;
  RemoteRegions& remotes = peer.tables.remotes;
  SliceTable& slices = peer.tables.slices;
  std::vector<std::uint32_t>&done = peer.done, &advanced = peer.advanced;
  Taken device;
  RemoteRequests requests{peer, device};
};

struct Flushing final : FakeWire, transport::FlushesWrites {
  Status flush(std::uint64_t) override {
    ++flushes;
    return {};
  }
  int flushes = 0;
};

struct Serving {
  Serving() { service.greeted(kRecordPayload); }
  static WorkerTables::Transports wire() {
    WorkerTables::Transports one;
    one.push_back(std::make_unique<Flushing>());
    return one;
  }
  void take(const RecordHeader& r) {
    using namespace record;
    switch (r.type) {
      case RecordType::put: return service.on_put(*decode<Put>(r.body));
      case RecordType::get: return service.on_get(*decode<Get>(r.body));
      case RecordType::atomic: return service.on_atomic(*decode<Atomic>(r.body));
      case RecordType::sum: return service.on_sum(*decode<Sum>(r.body));
      case RecordType::flush: return service.on_flush(*decode<Flush>(r.body));
      default: FAIL() << "no request";
    }
  }
  FakePeer peer{wire()};
  Taken device;
  RemoteService service{peer, device};
};

struct Remote : testing::Test {
  Remote() : mine(64), theirs(64) {
    local = here.peer.add(mine);
    share(Access::all);
  }
  void share(Access access) {
    target = *there.peer.local.add(theirs.data(), theirs.size(), MemoryKind::host, access);
    Description description;
    description.region = target;
    description.size_bytes = 4096;  // more than there is: the service does not believe the asking side
    description.access = Access::all;
    Status error;
    remote = here.remotes.import({FakePeer::kId, 1, 0}, description, error);
    ASSERT_TRUE(error);
  }
  std::uint32_t begin(Operation operation, std::uint64_t offset = 0, std::uint64_t length = 64) {
    Request request;
    request.operation = operation;
    request.layout = Extent{{local, 0, length}, {remote, offset}};
    request.target = {remote, offset};
    request.operand = 5;
    return here.peer.begin(request);
  }
  bool ask(std::uint32_t slot, std::uint64_t length = 64) {
    ++here.peer.table[slot].pieces_out;
    return here.requests.put_get_or_atomic(slot, {0, 0, length, 1, 0}, here.slices.acquire(FakePeer::kId.slot));
  }
  void carry() {
    for (const std::uint32_t record : here.peer.take_records()) there.take(here.peer.header(record));
    for (const std::uint32_t record : there.peer.take_records())
      here.requests.on_reply(*decode<record::Reply>(there.peer.header(record).body));
  }
  alignas(8) std::vector<std::byte> mine, theirs;
  Asking here;
  Serving there;
  RegionId local, target;
  RemoteRegionId remote;
};

TEST_F(Remote, PutsAndGetsMoveTheBytes) {
  std::fill(mine.begin(), mine.end(), std::byte{7});
  const std::uint32_t put = begin(Operation::write);
  ASSERT_TRUE(ask(put));
  carry();
  EXPECT_EQ(here.done, std::vector{put});
  EXPECT_EQ(theirs, mine);
  std::fill(theirs.begin(), theirs.end(), std::byte{9});
  const std::uint32_t get = begin(Operation::read);
  ASSERT_TRUE(ask(get));
  carry();
  EXPECT_EQ(mine, theirs);
  EXPECT_EQ(here.slices.free_count(), 64u + 64u);
}

TEST_F(Remote, AtomicsGiveTheOldValueAndAreNoticed) {
  std::uint64_t word = 37;
  std::memcpy(theirs.data(), &word, sizeof word);
  const std::uint32_t add = begin(Operation::fetch_add);
  ASSERT_TRUE(ask(add, 8));
  carry();
  std::memcpy(&word, theirs.data(), sizeof word);
  EXPECT_EQ(word, 42u);
  EXPECT_EQ(here.peer.table[add].completion.old_value, 37u);
  EXPECT_EQ(there.peer.noticed, 1);
}

TEST_F(Remote, WhatLeavesTheRegionOrItsPermissionIsRefusedByItsOwner) {
  std::fill(mine.begin(), mine.end(), std::byte{7});
  const std::uint32_t beyond = begin(Operation::write, 32);
  ASSERT_TRUE(ask(beyond));
  carry();
  EXPECT_EQ(here.peer.ended.at(beyond).code(), ErrorCode::out_of_range);
  share(Access::read);
  const std::uint32_t denied = begin(Operation::write);
  ASSERT_TRUE(ask(denied));
  carry();
  EXPECT_EQ(here.peer.ended.at(denied).code(), ErrorCode::access_denied);
  EXPECT_EQ(theirs, std::vector<std::byte>(64));
  there.service.on_get({{0, 0, target}, 0, kRecordPayload + 1});
  EXPECT_EQ(there.peer.violations.size(), 1u);
}

TEST_F(Remote, OfWhatComesAfterTheBytesSoMuchIsOutstandingAndTheRestWaits) {
  std::vector<std::uint32_t> slots;
  for (std::uint32_t i = 0; i < RemoteRequests::kMost + 2; ++i) {
    slots.push_back(begin(Operation::write));
    here.peer.table[slots.back()].phase = Phase::flushing;
    here.requests.request(slots.back());
  }
  EXPECT_EQ(here.requests.left(), 0u);
  EXPECT_TRUE(here.requests.has_work());
  here.requests.forget(slots.back());  // it failed meanwhile
  carry();
  here.requests.proceed();
  EXPECT_FALSE(here.requests.has_work());
  carry();
  slots.pop_back();
  EXPECT_EQ(here.advanced, slots);
  EXPECT_EQ(dynamic_cast<Flushing&>(*there.peer.transports()[0]).flushes, static_cast<int>(slots.size()));
}

TEST_F(Remote, ChecksumsAreCompared) {
  for (const bool same : {true, false}) {
    std::fill(theirs.begin(), theirs.end(), same ? std::byte{0} : std::byte{1});
    const std::uint32_t slot = begin(Operation::write);
    Transfer& t = here.peer.table[slot];
    t.phase = Phase::verifying;
    here.requests.request(slot);
    carry();
    if (same) {
      EXPECT_EQ(here.advanced, std::vector{slot});
      EXPECT_EQ(t.checked.block, 1u);
    } else {
      EXPECT_EQ(here.peer.ended.at(slot).code(), ErrorCode::checksum_mismatch);
    }
  }
}

TEST_F(Remote, AReplyThatComesTooLateFindsNothing) {
  const std::uint32_t slot = begin(Operation::read);
  const std::uint32_t token = here.slices.acquire(FakePeer::kId.slot);
  ++here.peer.table[slot].pieces_out;
  ASSERT_TRUE(here.requests.put_get_or_atomic(slot, {0, 0, 64, 1, 0}, token));
  here.slices.release(token);  // its transfer has ended
  here.requests.dropped();
  ASSERT_EQ(here.slices.acquire(FakePeer::kId.slot), token);  // and another one has the token
  here.slices[token].use = SliceUse::request;
  std::fill(theirs.begin(), theirs.end(), std::byte{9});
  carry();
  EXPECT_TRUE(here.done.empty());
  EXPECT_EQ(mine, std::vector<std::byte>(64));
}

TEST_F(Remote, WhatIsInADevicesMemoryIsHandedOn) {
  theirs.resize(128);
  target = *there.peer.local.add(theirs.data(), theirs.size(), MemoryKind::device, Access::all);
  there.service.on_sum({{1, 2, target}, 8, 16});
  there.service.on_atomic({{3, 4, target}, 8, record::Atomic::kAdd, 5, 0});
  ASSERT_EQ(there.device.all.size(), 2u);
  EXPECT_EQ(there.device.all[0].kind, DeviceOperation::Kind::peers_checksum);
  EXPECT_EQ(there.device.all[0].length, 16u);
  EXPECT_EQ(there.device.all[1].operand, 5u);
  there.service.on_put({{5, 6, target}, 0, {mine}});  // no CPU writes there
  const auto replies = there.peer.take_records();
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(decode<record::Reply>(there.peer.header(replies[0]).body)->code, ErrorCode::unsupported);
}

}  // namespace
}  // namespace fairway::engine
