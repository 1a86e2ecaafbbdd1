#include <algorithm>

#include "unit/verbs/engines_over_nics.h"

// What many ports, and ports that differ, mean to engines.
namespace fairway {
namespace {

// The links of NIC nic0 have it on both sides, those of nic1 on neither, and the engines' own memory is at both.
TEST_F(EnginesOverNics, MemoryThatSomePortsRefuseGoesByTheOthersAndExplainSaysWhy) {
  nic::settings().small = "nic1";
  nic::settings().small_takes = kBytes / 2;
  ASSERT_NO_FATAL_FAILURE(meet(2));
  const auto told = near_->explain(whole(Operation::write));
  ASSERT_TRUE(told);
  ASSERT_EQ(told->links.size(), 2U) << told->text();
  for (const ExplainedLink& link : told->links) {
    const bool good = link.name.find("nic0") != std::string::npos;
    EXPECT_EQ(link.taken, good) << told->text();
    const char* why = "its device refused this memory: verbs: nic1/1: the memory cannot be registered";
    EXPECT_EQ(link.reason.find(why) != std::string::npos, !good) << link.reason;
  }
  moves();
  const auto back = near_->read(peer_, whole(Operation::read).layout);
  ASSERT_TRUE(back);
  const auto done = near_->wait(*back, kPatience);
  EXPECT_TRUE(done && done->status) << (done ? done->status : done.status()).to_string();
}

TEST_F(EnginesOverNics, ARegionOfThePeersThatSomePortsRefusedIsGoneRoundToo) {
  ASSERT_NO_FATAL_FAILURE(meet(2));
  nic::settings().small = "nic1";
  nic::settings().small_takes = kBytes / 2;
  const auto large = far_->allocate(kBytes, Access::all);
  ASSERT_TRUE(large) << large.status().to_string();
  nic::settings() = {};
  ASSERT_TRUE(far_->publish("partly", *large));
  const auto remote = near_->lookup(peer_, "partly");
  ASSERT_TRUE(remote);
  to_ = *large, remote_ = *remote;
  const auto told = near_->explain(whole(Operation::write));
  ASSERT_TRUE(told);
  EXPECT_NE(told->text().find("the peer's device at its other end refused the peer's memory"), std::string::npos)
      << told->text();
  moves();
}

// As much as the NIC takes, up to 256 bytes; what is larger is read from its memory.
TEST_F(EnginesOverNics, SmallWritesAreInline) {
  for (const std::uint32_t taken : {64U, 128U, ~0U}) {
    nic::settings().takes_inline = taken;
    ASSERT_NO_FATAL_FAILURE(meet(2));
    const std::uint64_t most = std::min(taken, 256U);
    nic::counts().largest_inline = 0;
    for (const std::uint64_t size : {most, most + 1, kBytes}) {
      const auto id = near_->write(peer_, Extent{{from_.id, 0, size}, {remote_.id, 0}});
      ASSERT_TRUE(id);
      const auto done = near_->wait(*id, kPatience);
      ASSERT_TRUE(done && done->status) << (done ? done->status : done.status()).to_string();
    }
    EXPECT_EQ(nic::counts().largest_inline, most);
    near_.reset(), far_.reset();
  }
}

// A window has a key for each, and all of them travel in one record.
TEST_F(EnginesOverNics, WithSixteenPortsEachReceiveOfMuchIsReachedByAllOfThem) {
  nic::settings().ports = 8;
  ASSERT_NO_FATAL_FAILURE(meet(16));
  moves();
  std::array<PeerEvent, 4> events;
  ASSERT_GT(far_->poll_peer_events(events), 0U);
  std::memset(to_.address, 0, kBytes);
  const auto taken = far_->receive(events[0].peer, 5, {to_.id, 0, kBytes});
  const auto sent = near_->send(peer_, 5, {from_.id, 0, kBytes});
  ASSERT_TRUE(taken && sent);
  const auto done = near_->wait(*sent, kPatience);
  EXPECT_TRUE(done && done->status) << (done ? done->status : done.status()).to_string();
  EXPECT_TRUE(far_->wait(*taken, kPatience));
  EXPECT_EQ(std::memcmp(from_.address, to_.address, kBytes), 0);
}

TEST_F(EnginesOverNics, AnAddressThatIsTakenAwayEndsItsLinksAndTheyComeBackWithTheNextOne) {
  ASSERT_NO_FATAL_FAILURE(meet(2));
  nic::readdress("nic1", std::nullopt);
  ASSERT_TRUE(until_up(1));
  moves();
  nic::readdress("nic1", 7);
  ASSERT_TRUE(until_up(2)) << "an end that is made says where it is now";
  moves();
  const auto told = near_->explain(whole(Operation::write));
  ASSERT_TRUE(told);
  EXPECT_NE(told->text().find("(10.7.0.2)"), std::string::npos) << told->text();
}

TEST_F(EnginesOverNics, NewsOfOtherAddressesEndNoLink) {
  ASSERT_NO_FATAL_FAILURE(meet(2));
  const std::uint64_t before = nic::asked_for_events("nic0");
  nic::befall("nic0", abi::kEventGidChange);
  ASSERT_TRUE(until([&] { return nic::asked_for_events("nic0") >= before + 4; }));  // both engines, to the end
  for (const auto& link : near_->metrics().links) EXPECT_TRUE(link.up && link.failures == 0) << link.name;
}

TEST_F(EnginesOverNics, APortOrAQueueThatFailsEndsTheLinksOfItsPortAndTheyComeBack) {
  ASSERT_NO_FATAL_FAILURE(meet(2));
  for (const int event : {abi::kEventQueueError, abi::kEventPortError}) {
    const std::uint64_t before = failures("nic1");
    nic::befall("nic1", event);
    moves();
    EXPECT_TRUE(until([&] { return failures("nic1") > before; })) << "event " << event;
    ASSERT_TRUE(until_up(2));
  }
  EXPECT_EQ(failures("nic0"), 0U);
}

// It may be taken by another partition, or by none.
TEST_F(EnginesOverNics, APartitionThatMovesEndsTheLinksOfItsPortAndTheyComeBackInIt) {
  EngineOptions options;
  options.rdma.partition = 0x8001;
  for (const char* each : {"nic0", "nic1"}) nic::repartition(each, {0xffff, 0x8001});
  ASSERT_NO_FATAL_FAILURE(meet(2, options));
  nic::repartition("nic0", {0xffff, 0x8001, 0x8002});
  nic::repartition("nic1", {0x8001});
  EXPECT_TRUE(until([&] { return failures("nic1") > 0; }));
  ASSERT_TRUE(until_up(2)) << "each new queue pair looks for it";
  moves();
  EXPECT_EQ(failures("nic0"), 0U) << "its index is the same";
}

TEST_F(EnginesOverNics, AnInfiniBandPortThatRequiresARoutingHeaderGetsIt) {
  for (const bool required : {false, true}) {
    nic::settings().infiniband = true;
    nic::settings().header_required = required;
    nic::counts().global_paths = nic::counts().local_paths = 0;
    ASSERT_NO_FATAL_FAILURE(meet(2));
    moves();
    near_.reset(), far_.reset();
    EXPECT_EQ(nic::counts().global_paths > 0, required);
    EXPECT_EQ(nic::counts().local_paths > 0, !required);
  }
}

// As soft-RoCE's does whose last packets wait for a neighbour that does not answer.
TEST_F(EnginesOverNics, AQueuePairThatTakesLongToGoHoldsUpNeitherFenceNorTheNextLink) {
  Door door;
  ASSERT_NO_FATAL_FAILURE(meet(2));
  const auto going = std::make_shared<std::atomic<int>>(0), late = std::make_shared<std::atomic<int>>(0);
  nic::settings().destroying = [open = door.open, going, late] {
    ++*going;
    if (!until([&] { return open->load(); })) ++*late;
  };
  nic::befall("nic1", abi::kEventPortError);
  ASSERT_TRUE(until([&] { return failures("nic1") > 0; }));
  ASSERT_TRUE(until_up(2));
  EXPECT_TRUE(until([&] { return *going == 2; })) << "one at each end";
  moves();
  EXPECT_EQ(*late, 0) << "it was waited for";
  EXPECT_EQ(failures("nic0"), 0U);
}

// As the kernel does whose neighbour does not answer.
TEST_F(EnginesOverNics, AQueuePairThatTakesLongToBeLedHoldsUpNeitherOtherLinksNorTheirEnd) {
  Door door;
  ASSERT_NO_FATAL_FAILURE(meet(2));
  const auto led = std::make_shared<std::atomic<int>>(0), late = std::make_shared<std::atomic<int>>(0);
  nic::settings().leading = [open = door.open, led, late] {
    ++*led;
    if (!until([&] { return open->load(); })) ++*late;
  };
  nic::befall("nic1", abi::kEventPortError);
  ASSERT_TRUE(until([&] { return *led > 0; }));
  moves();
  Engine third = open();
  EXPECT_EQ(near_->connect(third.address(), std::chrono::milliseconds(200)).status().code(), ErrorCode::timed_out);
  moves();
  EXPECT_EQ(*late, 0) << "it was waited for";
  *door.open = true;
  ASSERT_TRUE(until_up(4)) << "two to each of the others";
  moves();
}

TEST_F(EnginesOverNics, AWorkerThatPollsAsksForNoNewsOfAPortThatCompletesRequests) {
  EngineOptions here, there;
  here.rdma.devices = {"nic0"};
  here.progress = Progress::caller;
  there.rdma.devices = {"nic1"};
  near_.emplace(open(here));
  far_.emplace(open(there));
  ASSERT_NO_FATAL_FAILURE(connect(1));
  RequestOptions polled;
  polled.deliver = Deliver::to_poll;
  const auto some = [&] {
    const auto id = near_->write(peer_, Extent{{from_.id, 0, 64}, {remote_.id, 0}}, polled);
    ASSERT_TRUE(id);
    std::array<Completion, 1> done;
    while (near_->poll(done) == 0) {
    }
    EXPECT_TRUE(done[0].status);
  };
  constexpr int kWindows = 40;  // of 25 ms, after which it would ask
  const auto begin = std::chrono::steady_clock::now();
  some();
  const std::uint64_t before = nic::asked_for_events("nic0");
  int rounds = 0;
  while (std::chrono::steady_clock::now() - begin < kWindows * std::chrono::milliseconds(25)) {
    ASSERT_NO_FATAL_FAILURE(some());
    ++rounds;
  }
  if (rounds < 10 * kWindows) GTEST_SKIP() << "the machine is too busy: " << rounds << " writes";
  EXPECT_LT(nic::asked_for_events("nic0") - before, kWindows / 4);
}

}  // namespace
}  // namespace fairway
