#include <array>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "two_engines.h"

namespace fairway {
namespace {

class Several : public TwoEngines {
 protected:
  void SetUp() override {
    TwoEngines::SetUp();
    std::array<PeerEvent, 1> event;
    for (int tries = 0; tries < 10'000 && right_->poll_peer_events(event) == 0; ++tries) std::this_thread::yield();
    left_peer_ = event[0].peer;
  }
  static constexpr std::uint64_t kAside = 2u << 20;  // behind what the long ones move at the same time
  // Ends once the other side sends that tag.
  TransferId awaits(std::uint64_t tag, const RequestOptions& options = {}) {
    const auto id = left_->receive(right_peer_, tag, {near_region_.id, kAside + 64 * tag, 64}, options);
    EXPECT_TRUE(id) << id.status().to_string();
    return id ? *id : TransferId{};
  }
  void release(std::uint64_t tag) {  // does not wait for left_, which its callers may have to step
    EXPECT_TRUE(right_->send(left_peer_, tag, {far_region_.id, kAside, 64}));
  }
  // In flight until right_ receives the tag.
  TransferId held(std::uint64_t tag, const RequestOptions& options = {}) {
    const auto id = left_->send(right_peer_, tag, {near_region_.id, 0, 1u << 20}, options);
    EXPECT_TRUE(id) << id.status().to_string();
    return id ? *id : TransferId{};
  }
  void take(std::uint64_t tag) {
    EXPECT_TRUE(finish(right_->receive(left_peer_, tag, {far_region_.id, 0, 1u << 20}), *right_).status);
  }
  PeerId left_peer_;  // as right_ knows it
};

TEST_P(Several, AnyGivesEachOnceInTheOrderInWhichTheyEnd) {
  const std::array ids{awaits(1), awaits(2), awaits(3)};
  EXPECT_EQ(left_->wait_any(ids, Timeout(0)).status().code(), ErrorCode::timed_out);
  for (const std::uint64_t tag : {2u, 3u, 1u}) {
    std::thread sends([&] { release(tag); });
    const auto done = left_->wait_any(ids, kSoon);
    sends.join();
    ASSERT_TRUE(done) << done.status().to_string();
    EXPECT_EQ(done->id, ids[tag - 1]);
    EXPECT_EQ(done->bytes, 64u);
  }
  EXPECT_EQ(left_->wait_any(ids).status().code(), ErrorCode::not_found) << "none is left: no wait for ever";
  EXPECT_EQ(left_->wait_any({}).status().code(), ErrorCode::not_found);
  EXPECT_EQ(left_->metrics().transfers_in_use, 0u);
}

TEST_P(Several, AnyTakesWhatWasCompleteWithinItsCall) {
  std::vector<TransferId> ids{awaits(1)};
  for (std::uint64_t at = 0; at < 20 * 64; at += 64) ids.push_back(*left_->write(right_peer_, extent(at, at, 64)));
  std::set<TransferId> got;
  for (int i = 0; i < 20; ++i) {
    const auto done = left_->wait_any(ids, kSoon);
    ASSERT_TRUE(done) << done.status().to_string();
    EXPECT_TRUE(done->status);
    got.insert(done->id);
  }
  EXPECT_EQ(got.size(), 20u);
  EXPECT_FALSE(got.contains(ids[0]));
  release(1);
  EXPECT_TRUE(left_->wait_any(ids, kSoon));
}

TEST_P(Several, OfThreadsThatWaitForTheSameEachEndGoesToOne) {
  constexpr std::size_t kEach = 200;
  std::vector<TransferId> ids;
  for (std::uint64_t tag = 0; tag < kEach; ++tag) ids.push_back(awaits(tag));
  std::vector<std::atomic<int>> got(kEach);
  std::vector<std::thread> waiters;
  for (int i = 0; i < 3; ++i)
    waiters.emplace_back([&] {
      for (;;) {
        const auto done = left_->wait_any(ids, kSoon);
        if (!done) {
          EXPECT_EQ(done.status().code(), ErrorCode::not_found) << done.status().to_string();
          return;
        }
        for (std::size_t k = 0; k < kEach; ++k) got[k] += ids[k] == done->id ? 1 : 0;
      }
    });
  for (std::uint64_t tag = 0; tag < kEach; ++tag) release(tag);
  for (std::thread& each : waiters) each.join();
  for (std::size_t k = 0; k < kEach; ++k) EXPECT_EQ(got[k], 1) << k;
}

TEST_P(Several, TransfersThatAreHeardOfElsewhereAreRefused) {
  RequestOptions polled, called;
  polled.deliver = Deliver::to_poll;
  called.deliver = Deliver::to_callback;
  called.callback = [](const Completion&, void*) {};
  std::uint64_t tag = 0;
  for (const RequestOptions& options : {polled, called}) {
    const std::array ids{awaits(++tag), awaits(++tag, options)};
    std::array<Completion, 2> done;
    EXPECT_EQ(left_->wait_any(ids, kSoon).status().code(), ErrorCode::invalid_argument);
    release(tag - 1);
    EXPECT_EQ(left_->wait_all(ids, done, kSoon).code(), ErrorCode::invalid_argument);
    EXPECT_TRUE(finish(ids[0], *left_).status) << "nothing was collected";
  }
}

TEST_P(Several, AllOrNoneAreCollectedInTheirOrder) {
  const std::array ids{awaits(1), awaits(2), *left_->write(right_peer_, extent(0, 0, 1u << 20)), awaits(3)};
  std::array<Completion, 4> done;
  release(1);
  EXPECT_EQ(left_->wait_all(ids, done, std::chrono::milliseconds(20)).code(), ErrorCode::timed_out);
  EXPECT_EQ(left_->wait_all(ids, std::span(done).first(3), kSoon).code(), ErrorCode::invalid_argument);
  std::thread sends([&] {
    release(3);
    release(2);
  });
  const Status status = left_->wait_all(ids, done, kSoon);
  sends.join();
  EXPECT_TRUE(status) << status.to_string();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(done[i].id, ids[i]);
    EXPECT_TRUE(done[i].status);
  }
  EXPECT_EQ(done[2].bytes, 1u << 20);
  EXPECT_TRUE(left_->wait_all({}, {}));
}

TEST_P(Several, OfAllThoseThatAreGoneSayIt) {
  const std::array ids{awaits(1), awaits(2), TransferId{7, 99}, TransferId{}};
  release(1);
  release(2);
  EXPECT_TRUE(finish(ids[0], *left_).status);
  std::array<Completion, 4> done;
  const Status status = left_->wait_all(ids, done, kSoon);
  EXPECT_EQ(status.code(), ErrorCode::not_found);
  EXPECT_NE(status.message().find("ids[0]"), std::string::npos) << status.to_string();
  EXPECT_EQ(done[0].status.code(), ErrorCode::not_found);
  EXPECT_TRUE(done[1].status) << "it was there";
  EXPECT_EQ(done[1].id, ids[1]);
  EXPECT_EQ(done[2].status.code(), ErrorCode::not_found);
  const std::array twice{awaits(4), awaits(4)};
  release(4);
  release(4);
  EXPECT_TRUE(left_->wait_all(std::array{twice[0], twice[1]}, done, kSoon));
}

TEST_P(Several, CloseEndsEveryWait) {
  const std::array ids{awaits(1), awaits(2)};
  std::thread closes([&] { left_->close(); });
  std::array<Completion, 2> done;
  EXPECT_TRUE(left_->wait_all(ids, done, kSoon));
  closes.join();
  EXPECT_EQ(done[1].status.code(), ErrorCode::cancelled);
  EXPECT_EQ(left_->wait_any(ids).status().code(), ErrorCode::not_found);
  EXPECT_TRUE(left_->drain(kSoon));
}

TEST_P(Several, AFlushWaitsForAllButReceives) {
  (void)awaits(1);
  EXPECT_TRUE(left_->flush(right_peer_, kSoon)) << "a receive ends when the peer sends";
  const TransferId id = held(2);
  for (const Status& status :
       {left_->flush(right_peer_, std::chrono::milliseconds(20)), left_->drain(std::chrono::milliseconds(20))}) {
    EXPECT_EQ(status.code(), ErrorCode::timed_out);
    EXPECT_NE(status.message().find("1 transfers"), std::string::npos) << status.to_string();
    EXPECT_NE(status.message().find("right"), std::string::npos) << status.to_string();
  }
  std::thread receives([&] { take(2); });
  EXPECT_TRUE(left_->flush(right_peer_, kSoon));
  EXPECT_TRUE(left_->wait(id, Timeout(0))) << "its completion is there";
  receives.join();
  EXPECT_TRUE(left_->drain(Timeout(0)));
}

TEST_P(Several, AfterAFlushCallbacksHaveReturnedAndPollsFindTheRest) {
  std::atomic<int> returned{0};
  RequestOptions called, polled;
  called.deliver = Deliver::to_callback;
  called.user_data = &returned;
  called.callback = [](const Completion&, void* counts) {
    for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    static_cast<std::atomic<int>*>(counts)->fetch_add(1);
  };
  polled.deliver = Deliver::to_poll;
  for (std::uint64_t tag = 0; tag < 4; ++tag) (void)held(tag, tag % 2 == 0 ? called : polled);
  std::thread receives([&] {
    for (std::uint64_t tag = 0; tag < 4; ++tag) take(tag);
  });
  EXPECT_TRUE(left_->flush(right_peer_, kSoon));
  EXPECT_EQ(returned, 2);
  receives.join();
  std::array<Completion, 4> done;
  EXPECT_EQ(left_->poll(done), 2u);
}

TEST_P(Several, AFlushOfNobodyIsRefusedAndOfThePastOver) {
  EXPECT_EQ(left_->flush({}).code(), ErrorCode::not_found);
  EXPECT_EQ(left_->flush({99999, 1}).code(), ErrorCode::not_found);
  (void)held(1);
  ASSERT_TRUE(left_->disconnect(right_peer_));
  EXPECT_TRUE(left_->flush(right_peer_, kSoon)) << "all that it had ends with the session";
}

INSTANTIATE_TEST_SUITE_P(Progress, Several, testing::Values(Progress::threads, Progress::caller));

}  // namespace
}  // namespace fairway
