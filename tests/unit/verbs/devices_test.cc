#include <atomic>

#include "unit/verbs/engines_over_nics.h"

// Devices that go and come back under engines.
namespace fairway {
namespace {

// A removed device, whether it says so or not, goes only when nobody has it open.
TEST_F(EnginesOverNics, ADeviceThatFailsOrIsRemovedIsLetGoAndTheOthersCarryOn) {
  for (const bool tells : {true, false}) {
    ASSERT_NO_FATAL_FAILURE(meet(2));
    const auto later = near_->allocate(kBytes, Access::all);
    ASSERT_TRUE(later);
    ASSERT_GT(nic::users("nic1"), 0U);
    nic::unplug("nic1");
    if (tells) nic::befall("nic1", abi::kEventDeviceFatal);
    moves();
    EXPECT_TRUE(until([] { return nic::users("nic1") == 0; })) << (tells ? "an event" : "no word");
    EXPECT_EQ(failures("nic0"), 0U);
    moves();
    EXPECT_TRUE(near_->deregister(*later));
    const auto fresh = near_->allocate(kBytes, Access::all);
    ASSERT_TRUE(fresh) << fresh.status().to_string();
    EXPECT_TRUE(until_up(1));
    near_.reset();
    far_.reset();
    nic::plug_all();
  }
  ASSERT_NO_FATAL_FAILURE(meet(2)) << "who opens later has it again";
}

// By the device that came back alone, so all memory has to be known there anew, and peers have to know its keys.
TEST_F(EnginesOverNics, ADeviceThatComesBackServesTheSameEnginesMemoryOfBeforeAndOfMeanwhile) {
  ASSERT_NO_FATAL_FAILURE(meet(2));
  for (const std::string name : {"second", "third"}) {
    SCOPED_TRACE(name);
    ASSERT_NO_FATAL_FAILURE(pull("nic1"));
    ASSERT_TRUE(until_up(1));
    const auto here = near_->allocate(kBytes, Access::all), there = far_->allocate(kBytes, Access::all);
    ASSERT_TRUE(here && there);
    ASSERT_TRUE(far_->publish(name, *there));
    const auto known = near_->lookup(peer_, name);  // as it is without that NIC
    ASSERT_TRUE(known) << known.status().to_string();
    nic::plug_all();
    ASSERT_TRUE(until_up(2));
    moves();
    Engine newcomer = open();
    const auto met = newcomer.connect(far_->address(), kPatience);
    ASSERT_TRUE(met) << met.status().to_string();

    ASSERT_NO_FATAL_FAILURE(pull("nic0"));
    ASSERT_TRUE(until_up(1));
    moves();
    const Region before = std::exchange(from_, *here);
    const Region target = std::exchange(to_, *there);
    const RemoteRegion remote = std::exchange(remote_, *known);
    moves();
    for (const std::string& each : {std::string("memory"), name}) {  // of before and of meanwhile, for who came later
      const auto mine = newcomer.allocate(kBytes, Access::all);
      const auto seen = newcomer.lookup(*met, each);
      ASSERT_TRUE(mine && seen) << seen.status().to_string();
      const auto id = newcomer.read(*met, Extent{{mine->id, 0, kBytes}, {seen->id, 0}});
      ASSERT_TRUE(id);
      const auto done = newcomer.wait(*id, kPatience);
      ASSERT_TRUE(done && done->status) << each << ": " << (done ? done->status : done.status()).to_string();
      EXPECT_EQ(std::memcmp(mine->address, from_.address, kBytes), 0) << each;
    }
    from_ = before, to_ = target, remote_ = remote;
    nic::plug_all();
    ASSERT_TRUE(until_up(2));
    moves();
  }
}

// What could not be had again there: the port stays out and says why, and the rest carries on.
TEST_F(EnginesOverNics, ADeviceThatComesBackAndTakesLessMemoryStaysOutUntilItTakesIt) {
  ASSERT_NO_FATAL_FAILURE(meet(2));
  ASSERT_NO_FATAL_FAILURE(pull("nic1"));
  nic::settings().small = "nic1";
  nic::settings().small_takes = kBytes / 2;
  nic::plug_all();
  const auto reason = [&] {
    const auto told = near_->explain(whole(Operation::write));
    return told ? told->text() : told.status().to_string();
  };
  EXPECT_TRUE(until([&] {
    return reason().find("its replacement cannot be used: verbs: nic1/1: the memory cannot be registered") !=
           std::string::npos;
  })) << reason();
  moves();
  std::atomic_ref(nic::settings().small_takes).store(~0UL);  // one that comes back is being tried
  ASSERT_TRUE(until_up(2)) << reason();
  moves();
}

// Without any NIC for a while: nothing is refused for that, and what was registered meanwhile works afterwards.
TEST_F(EnginesOverNics, MemoryMayBeRegisteredWhileTheOnlyDeviceIsAway) {
  EngineOptions options;
  options.rdma.devices = {"nic1"};
  near_.emplace(open(options));
  far_.emplace(open(options));
  ASSERT_NO_FATAL_FAILURE(connect(1));
  ASSERT_NO_FATAL_FAILURE(pull("nic1"));
  const auto region = near_->allocate(kBytes, Access::all), gone = near_->allocate(kBytes, Access::all);
  ASSERT_TRUE(region) << region.status().to_string();
  ASSERT_TRUE(gone && near_->deregister(*gone));
  nic::plug_all();
  ASSERT_TRUE(until_up(1));
  from_ = *region;
  moves();
}

// Memory that is being registered at it is not given back before that is over.
TEST_F(EnginesOverNics, MemoryMayBeGivenBackAndEnginesMayEndWhileADeviceComesBack) {
  Door door;
  ASSERT_NO_FATAL_FAILURE(meet(2));
  const auto region = near_->allocate(kBytes, Access::all);
  ASSERT_TRUE(region);
  ASSERT_NO_FATAL_FAILURE(pull("nic1"));
  const auto held = std::make_shared<std::atomic<int>>(0);
  nic::settings().registering = [open = door.open, held](std::uint64_t size) {
    if (size != kBytes) return;
    held->fetch_add(1);
    while (!*open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  };
  nic::plug_all();
  ASSERT_TRUE(until([&] { return held->load() == 2; })) << "both engines register at it";
  std::atomic<bool> over = false;
  std::thread ends([&] {
    EXPECT_TRUE(near_->deregister(*region));
    over = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(over) << "the janitor was still at it";
  *door.open = true;
  ends.join();
  ASSERT_TRUE(until_up(2));
  moves();
  ASSERT_NO_FATAL_FAILURE(pull("nic1"));
  door.open->store(false);
  held->store(0);
  nic::plug_all();
  ASSERT_TRUE(until([&] { return held->load() == 2; }));
  std::thread opens([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    door.open->store(true);
  });
  near_.reset();
  far_.reset();
  opens.join();
  EXPECT_EQ(nic::counts().regions.load(), 0U) << "left behind";
}

}  // namespace
}  // namespace fairway
