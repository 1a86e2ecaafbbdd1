#include "engine/tables/regions.h"

#include <map>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "engine/links/proof.h"
#include "engine/region_removals.h"

namespace fairway::engine {
namespace {

// Regions alone: what it was asked for, and handles that count up.
struct Registrar final : transport::Transport {
  Registrar() : Transport("registrar") { devices_.emplace_back().capabilities.needs_keys = true; }
  Status attach(Task&) override { return {}; }
  Status connect(transport::PeerIndex, transport::Role) override { return {}; }
  void exchange(transport::PeerIndex, std::span<const std::byte>) override {}
  void disconnect(transport::PeerIndex) override {}
  Result<transport::RegisteredMemory> register_memory(const Region&, const MemorySource&) override {
    return transport::RegisteredMemory{++last, {}};
  }
  void deregister(std::uint64_t handle) override { deregistered.push_back(handle); }
  Result<std::uint64_t> import(transport::PeerIndex, const transport::RemoteMemory&,
                               std::span<const std::vector<std::byte>> keys) override {
    if (keys.empty()) return Status(ErrorCode::unsupported, "no key");
    ++imports;
    return ++last;
  }
  void release(std::uint64_t handle) override { released.insert(handle); }
  transport::Reach reach(transport::LinkId, std::uint64_t, std::uint64_t, std::string*) override {
    return transport::Reach::yes;
  }
  std::size_t post(std::span<const transport::Slice>) override { return 0; }
  std::size_t poll(std::span<transport::Event>, Time) override { return 0; }
  void fence(transport::LinkId) override {}
  void reconnect(transport::LinkId) override {}
  void cancel(transport::SliceToken) override {}
  void close() override {}

  std::uint64_t last = 0;
  int imports = 0;
  std::vector<std::uint64_t> deregistered;
  std::set<std::uint64_t> released;
};

struct Regions : testing::Test, OutboxOwner {
  void on_untaken(std::uint32_t) override {}
  Regions() {
    auto made = std::make_unique<Registrar>();
    registrar = made.get();
    transports.push_back(std::move(made));
  }
  static Description described(std::uint32_t slot, bool key = true) {
    Description description;
    description.region = {slot, 1};
    description.size_bytes = 100;
    description.access = Access::write;
    if (key) description.keys.push_back({7, "registrar", {{std::byte{1}}}});
    return description;
  }
  std::vector<std::unique_ptr<transport::Transport>> transports;
  Registrar* registrar;
  transport::RegionTable table{16}, bounds{4};
  TransferTable transfers{8};
};

TEST_F(Regions, OfAPeerAreImportedOnceAndAtATransportWhenTheyAreUsed) {
  RemoteRegions remotes(transports, bounds);
  const RegionOwner owner{{2, 1}, 9, 7};
  Status error;
  const RemoteRegionId id = remotes.import(owner, described(5), error);
  EXPECT_EQ(remotes.import(owner, described(5), error), id);
  EXPECT_EQ(registrar->imports, 0);
  const auto handle = remotes.handle(owner, id, 0);
  ASSERT_TRUE(handle);
  EXPECT_EQ(*remotes.handle(owner, id, 0), *handle);
  EXPECT_EQ(registrar->imports, 1);
  EXPECT_EQ(remotes.allows({id, 90}, 10, Access::write), ErrorCode::ok);
  EXPECT_EQ(remotes.allows({id, 91}, 10, Access::write), ErrorCode::out_of_range);
  EXPECT_FALSE(remotes.handle({{3, 1}, 9, 7}, id, 0));  // another peer's
  remotes.release(id);
  EXPECT_TRUE(registrar->released.contains(*handle));
  EXPECT_FALSE(remotes.has(id));
  EXPECT_FALSE(remotes.find(owner.id, {5, 1}));
  EXPECT_FALSE(remotes.handle(owner, id, 0));
  remotes.release(id);  // nothing
}

TEST_F(Regions, OfAPeerThatLeavesAreAllReleasedAndTheirSlotsFree) {
  RemoteRegions remotes(transports, bounds);
  const RegionOwner leaves{{2, 1}, 9, 7}, stays{{3, 1}, 10, 7};
  Status error;
  for (std::uint32_t slot = 0; slot < 3; ++slot) (void)remotes.import(leaves, described(slot), error);
  const RemoteRegionId kept = remotes.import(stays, described(0), error);
  ASSERT_TRUE(error);
  (void)remotes.import(stays, described(1), error);
  EXPECT_EQ(error.code(), ErrorCode::resource_exhausted);
  remotes.release_all(leaves.id);
  EXPECT_TRUE(remotes.has(kept));
  error = {};
  for (std::uint32_t slot = 1; slot <= 3; ++slot) (void)remotes.import(stays, described(slot), error);
  EXPECT_TRUE(error) << "a slot is not free";
}

TEST_F(Regions, WithoutAKeyOfTheirWorkerAreNotToBeHadThere) {
  RemoteRegions remotes(transports, bounds);
  Status error;
  EXPECT_EQ(remotes.without(remotes.import({{2, 1}, 9, 7}, described(1), error)), 0u);
  EXPECT_EQ(remotes.without(remotes.import({{2, 1}, 9, 7}, described(2, false), error)), 1u);
  EXPECT_EQ(remotes.without(remotes.import({{3, 1}, 9, 6}, described(1), error)), 1u);  // another worker's key
}

TEST_F(Regions, AreRemovedOnceUsersAndTransportsAreDone) {
  WorkerTables tables(0, *this, std::move(transports), transfers, table, bounds, 64, 8);
  LocalRegions& locals = tables.locals;
  RegionRemovals removals(tables);
  std::vector<std::byte> memory(8);
  const RegionId id = *locals.add_own(memory.data(), memory.size(), Access::none);
  const std::uint64_t handle = locals.handle(id, 0);
  const std::uint32_t user = transfers.acquire();
  transfers[user].phase = Phase::moving;
  Status ended;
  int times = 0;
  RegionRemovals::Removal removal;
  removal.id = id;
  removal.users = {transfers.id(user)};
  removal.done = [&](const Status& status) {
    ended = status;
    ++times;
  };
  removals.begin(std::move(removal));
  bool copies = true;
  const auto proceed = [&] { return removals.proceed(0, [&](RegionId) { return copies; }); };
  EXPECT_FALSE(proceed());
  transfers[user].phase = Phase::done;
  EXPECT_FALSE(proceed());  // a device still copies there
  EXPECT_TRUE(registrar->deregistered.empty());
  copies = false;
  EXPECT_TRUE(proceed());
  EXPECT_EQ(registrar->deregistered, std::vector{handle});
  removals.deregistered(0, handle + 1, {});  // another region's
  EXPECT_FALSE(proceed());
  EXPECT_EQ(times, 0);
  removals.deregistered(0, handle, {ErrorCode::not_fenced, "the NIC holds it"});
  EXPECT_FALSE(proceed());
  EXPECT_EQ(times, 1);
  EXPECT_EQ(ended.code(), ErrorCode::not_fenced);
  EXPECT_TRUE(removals.empty());
  EXPECT_EQ(locals.handle(id, 0), handle) << "who refused to let go can not be asked again";

  RegionRemovals::Removal again;
  again.id = id;
  again.done = [&](const Status& status) {
    ended = status;
    ++times;
  };
  removals.begin(std::move(again));
  EXPECT_TRUE(proceed());
  EXPECT_EQ(registrar->deregistered, (std::vector{handle, handle}));
  removals.deregistered(0, handle, {});
  EXPECT_FALSE(proceed());
  EXPECT_EQ(times, 2);
  EXPECT_TRUE(ended) << ended.to_string();
  EXPECT_EQ(locals.handle(id, 0), kNotRegistered);
}

// A worker that looks at every step would call a NIC that refuses a million times a second.
TEST_F(Regions, WhoRefusesIsAskedAgainAfterPausesThatGrowToAQuarterOfASecond) {
  WorkerTables tables(0, *this, std::move(transports), transfers, table, bounds, 64, 8);
  LocalRegions& locals = tables.locals;
  RegionRemovals removals(tables);
  std::vector<std::byte> memory(8);
  const RegionId id = *locals.add_own(memory.data(), memory.size(), Access::none);
  const std::uint64_t handle = locals.handle(id, 0);
  int times = 0;
  RegionRemovals::Removal removal;
  removal.id = id;
  removal.until_gone = true;
  removal.done = [&](const Status& status) { times += status ? 1 : 100; };
  removals.begin(std::move(removal));
  const auto in_use = [](RegionId) { return false; };
  EXPECT_EQ(removals.next(), kNever);
  std::vector<Time> asked;
  for (Time now = kSecond; now < 3 * kSecond; now += kMillisecond / 2) {
    if (removals.proceed(now, in_use)) {
      asked.push_back(now);
      removals.deregistered(0, handle, {ErrorCode::not_fenced, "the NIC holds it"});
      EXPECT_FALSE(removals.proceed(now, in_use));
      EXPECT_GT(removals.next(), now);
      EXPECT_LE(removals.next(), now + kSecond / 4);
    }
  }
  EXPECT_EQ(registrar->deregistered.size(), asked.size());
  EXPECT_GE(asked.size(), 8U);
  EXPECT_LE(asked.size(), 20U);
  EXPECT_EQ(times, 0);
  EXPECT_TRUE(removals.proceed(4 * kSecond, in_use));
  removals.deregistered(0, handle, {});
  EXPECT_FALSE(removals.proceed(4 * kSecond, in_use));
  EXPECT_EQ(times, 1);
  EXPECT_EQ(removals.next(), kNever);
  EXPECT_EQ(locals.handle(id, 0), kNotRegistered);
}

TEST_F(Regions, ScratchPlacesDoNotOverlapAndTheLastFreeOneIsTakenFirst) {
  LocalRegions locals(transports, 0, table);
  ScratchMemory scratch(locals, 40, 192);
  std::map<std::uint32_t, std::set<std::uint64_t>> starts;  // by region
  for (std::uint32_t i = 0; i < 40; ++i) {
    const std::uint32_t place = scratch.take();
    EXPECT_TRUE(starts[scratch.of(place).region.slot].insert(scratch.offset(place)).second);
    EXPECT_EQ(scratch.offset(place) % 192, 0u);
  }
  EXPECT_EQ(starts.size(), 2u);
  scratch.give_back(17);
  scratch.give_back(3);
  EXPECT_EQ(scratch.take(), 3u);
  EXPECT_EQ(scratch.take(), 17u);
  EXPECT_EQ(scratch.take(), 40u);
}

// The slot of a user that ended is another thread's once its completion was collected: ThreadSanitizer says if it is
// read.
TEST_F(Regions, RemovalsDoNotLookAtASlotThatHasANewUser) {
  WorkerTables tables(0, *this, std::move(transports), transfers, table, bounds, 64, 8);
  RegionRemovals removals(tables);
  const RegionId region{3, 1};
  Request request;
  request.peer = {0, 1};
  request.layout = Extent{{region, 0, 8}, {{}, 0}};
  const std::uint32_t slot = transfers.acquire();
  const TransferId user = transfers.id(slot);
  transfers[slot].begin(request, 0);
  EXPECT_FALSE(removals.has_ended(user, region));
  transfers[slot].phase = Phase::done;
  EXPECT_TRUE(removals.has_ended(user, region));
  transfers.collected(slot);
  std::thread next([&] {
    EXPECT_EQ(transfers.acquire(), slot);
    transfers[slot].begin(request, 0);
  });
  for (int time = 0; time < 1000; ++time) ASSERT_TRUE(removals.has_ended(user, region));
  next.join();
  EXPECT_TRUE(removals.has_ended(user, region));
}

}  // namespace
}  // namespace fairway::engine
