#include <thread>

#include "rdma_vm/ends.h"

// The cable between two RDMA devices is pulled, and RDMA vanishes on it, while engines use it. Control does not notice.
namespace fairway::rdma {
namespace {

using Clock = std::chrono::steady_clock;
using Cable = Ends;

// Where no link is to come back in time. Control has the same bound, and on a busy host a process of the guest may not
// run for 2 s.
constexpr milliseconds kBoundWithoutLink(4000);

TEST_F(Cable, OutForASecondDelaysTransfersAndEndsNone) {
  ASSERT_NO_FATAL_FAILURE(meet());
  near().fill(7);
  std::vector<TransferId> ids;
  start(ids, 6);
  pull_cable();
  const auto out = Clock::now();
  ASSERT_TRUE(until_up(false)) << "the port says so itself";
  tell("until the link counts as down", since(out));
  std::this_thread::sleep_for(milliseconds(1000) - since(out));
  mend_cable();
  const auto back = Clock::now();
  ASSERT_TRUE(until_up(true));
  tell("from the cable's return to the link's", since(back));
  (void)all_end_well(ids, 7);
  EXPECT_FALSE(near().next(PeerEvent::Kind::down, Timeout(0))) << "the peer was not given up";
  works();
}

TEST_F(Cable, OutForLongerThanTheBoundEndsTransfersWithAReasonAndTheLinkComesBack) {
  ASSERT_NO_FATAL_FAILURE(meet(kBoundWithoutLink));
  near().fill(7);
  std::vector<TransferId> ids;
  start(ids, 6);
  pull_cable();
  const auto out = Clock::now();
  for (const TransferId id : ids) {
    const Status status = near().finish(id);
    EXPECT_TRUE(status || status.code() == ErrorCode::link_failed) << status.to_string();
    EXPECT_TRUE(status || status.message().find(device_for("rxe0") + "/1") != std::string::npos) << status.to_string();
  }
  tell("until transfers end, with a bound of 4000", since(out));
  EXPECT_LT(since(out), kBoundWithoutLink * 3);
  EXPECT_FALSE(near().next(PeerEvent::Kind::down, Timeout(0))) << "the peer lives, as control knows";
  mend_cable();
  ASSERT_TRUE(until_up(true));
  works();
}

TEST_F(Cable, WithoutItBytesTakeTheNextTransportAndComeBackToItsLink) {
  ASSERT_NO_FATAL_FAILURE(meet(milliseconds(5000), {"verbs", "tcp"}));
  near().fill(7);
  std::vector<TransferId> ids;
  start(ids, 6);
  pull_cable();
  const auto out = Clock::now();
  (void)all_end_well(ids, 7);
  tell("until the rest was there by tcp", since(out));
  EXPECT_EQ(near().links_text().find("verbs"), std::string::npos) << near().links_text();
  mend_cable();
  ASSERT_TRUE(until_up(true));
  works();
}

// The ports stay up and nobody is told: only that no answer comes says that the wire carries no RDMA.
TEST_F(Cable, SwallowingRdmaAloneIsNoticedAndBytesTakeTheNextTransport) {
  ASSERT_NO_FATAL_FAILURE(meet(milliseconds(5000), {"verbs", "tcp"}));
  near().fill(7);
  std::vector<TransferId> ids;
  start(ids, 6);
  const auto out = Clock::now();
  disturb("loss 100%");
  (void)all_end_well(ids, 7);
  tell("until the rest was there by tcp", since(out));
  calm();
  ASSERT_TRUE(until_up(true));
  works();
}

TEST_F(Cable, SwallowingRdmaAloneEndsTransfersInTimeWhereThereIsNoOtherWay) {
  ASSERT_NO_FATAL_FAILURE(meet(kBoundWithoutLink));
  near().fill(7);
  std::vector<TransferId> ids;
  start(ids, 4);
  const auto out = Clock::now();
  disturb("loss 100%");
  for (const TransferId id : ids) {
    const Status status = near().finish(id);
    EXPECT_TRUE(status || status.code() == ErrorCode::link_failed) << status.to_string();
  }
  tell("until transfers end, with a bound of 4000", since(out));
  // Not in time for a busy host, but not for as long as the link is tried again and again.
  EXPECT_LT(since(out), kBoundWithoutLink * 5);
  calm();
  ASSERT_TRUE(until_up(true));
  works();
}

TEST_F(Cable, LosingAndCorruptingOnePacketInAHundredHarmsNothing) {
  ASSERT_NO_FATAL_FAILURE(meet());
  disturb("loss 1% corrupt 1%");
  near().fill(7);
  std::vector<TransferId> ids;
  start(ids, 2);
  tell("16 MiB with 1 % lost and 1 % corrupted", all_end_well(ids, 7));
  calm();
}

TEST_F(Cable, LosingOnePacketInTenHarmsNothing) {
  if (!at_length()) GTEST_SKIP() << "takes long: docs/rdma-lab.md says how to run it";
  ASSERT_NO_FATAL_FAILURE(meet(milliseconds(20'000)));
  disturb("loss 10%");
  const auto start = Clock::now();
  works();
  tell("100 KB there and back with 10 % lost", since(start));
  calm();
}

TEST_F(Cable, OvertakingPacketsHarmNothing) {
  if (!at_length()) GTEST_SKIP() << "takes long: docs/rdma-lab.md says how to run it";
  ASSERT_NO_FATAL_FAILURE(meet(milliseconds(20'000)));
  disturb("delay 2ms 1ms reorder 25%");
  const auto start = Clock::now();
  works(16'000);  // each gap costs a wait of the kernel's: 100 KB take 7 to 40 s
  tell("16 KB there and back with every fourth packet ahead of the others", since(start));
  calm();
}

TEST_F(Cable, OutForTenSecondsIsOutlastedWithinTheBound) {
  if (!at_length()) GTEST_SKIP() << "takes long: docs/rdma-lab.md says how to run it";
  ASSERT_NO_FATAL_FAILURE(meet(milliseconds(20'000)));
  near().fill(7);
  std::vector<TransferId> ids;
  start(ids, 12);
  pull_cable();
  std::this_thread::sleep_for(milliseconds(10'000));
  mend_cable();
  const auto back = Clock::now();
  ASSERT_TRUE(until_up(true));
  tell("from the cable's return after 10 s to the link's", since(back));
  (void)all_end_well(ids, 7);
  works();
}

}  // namespace
}  // namespace fairway::rdma
