#include <thread>

#include "rdma_vm/ends.h"

// Peers that die, freeze and come back while bytes are on their way by RDMA, which needs no CPU of theirs.
namespace fairway::rdma {
namespace {

using Clock = std::chrono::steady_clock;
using Peers = Ends;

TEST_F(Peers, AKilledOneEndsTransfersAtOnceAndItsSuccessorIsMet) {
  ASSERT_NO_FATAL_FAILURE(meet());
  near().fill(7);
  std::vector<TransferId> ids;
  start(ids, 20);
  far().kill();
  const auto dead = Clock::now();
  int failed = 0;
  for (const TransferId id : ids) {
    const Status status = near().finish(id);
    failed += status ? 0 : 1;
    EXPECT_TRUE(status || status.code() == ErrorCode::peer_dead) << status.to_string();
  }
  tell("from the kill until all transfers ended", since(dead));
  EXPECT_GT(failed, 0);
  EXPECT_LT(since(dead), milliseconds(2500)) << "the bound is 5 s, and nobody waited for that";
  EXPECT_TRUE(near().engine->deregister(near().ours, net::kHang));
  near().ours = *near().engine->allocate(net::kBytes, Access::none);

  far_.emplace(on("rxe1"));
  ASSERT_EQ(far().failure, "");
  ASSERT_TRUE(near().meet(far().address));
  works();
}

TEST_F(Peers, AFrozenOneIsGivenUpWithinTheBoundAlthoughItsNicStillAnswers) {
  constexpr milliseconds kBound(1000);
  ASSERT_NO_FATAL_FAILURE(meet(kBound));
  near().fill(7);
  far().signal(SIGSTOP);
  const auto frozen = Clock::now();
  EXPECT_TRUE(near().finish(near().write(64))) << "a write needs nothing of the peer but its NIC";
  const auto down = near().next(PeerEvent::Kind::down);
  tell("until the frozen peer is given up, with a bound of 1000", since(frozen));
  ASSERT_TRUE(down);
  EXPECT_EQ(down->reason.code(), ErrorCode::peer_dead);
  EXPECT_LT(since(frozen), kBound * 3);
  EXPECT_FALSE(near().write(64)) << "no transfer goes to a peer that is given up";
  EXPECT_TRUE(near().engine->deregister(near().ours, net::kHang));
  near().ours = *near().engine->allocate(net::kBytes, Access::none);
  far().signal(SIGCONT);
  Status met(ErrorCode::timed_out, "not tried");
  for (int i = 0; i < 50 && !met; ++i) met = near().meet(far().address, milliseconds(1000));
  ASSERT_TRUE(met) << met.to_string();
  works();
}

TEST_F(Peers, ThatComeAndGoLeaveNothingBehind) {
  const int kTimes = at_length() ? 1000 : 20;
  ASSERT_NO_FATAL_FAILURE(meet());
  works();
  ASSERT_TRUE(near().engine->disconnect(near().peer));
  Held before;
  std::chrono::steady_clock::time_point start;
  for (int i = 0; i < kTimes + 2; ++i) {
    if (i == 2) {  // what is kept for the next peer is there
      do {         // of the peer before, queue pairs go in their own time
        before = held();
        std::this_thread::sleep_for(milliseconds(100));
      } while (!(held() == before));
      start = Clock::now();
    }
    const Status met = near().meet(far().address);
    ASSERT_TRUE(met) << i << ": " << met.to_string();
    ASSERT_TRUE(near().finish(near().write(4096))) << i;
    ASSERT_TRUE(near().engine->disconnect(near().peer));
  }
  tell("to meet, write and leave, each", since(start) / kTimes);
  Held after = held();
  for (int i = 0; i < 100 && !(after == before); ++i) {  // the far side lets go in its own time
    std::this_thread::sleep_for(milliseconds(20));
    after = held();
  }
  EXPECT_EQ(text(after), text(before)) << "after " << kTimes << " connections";
  std::printf("  held: %s\n", text(after).c_str());
}

}  // namespace
}  // namespace fairway::rdma
