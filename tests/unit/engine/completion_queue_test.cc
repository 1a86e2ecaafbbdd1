#include <array>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/waiting.h"
#include "two_engines.h"

namespace fairway {
namespace {

TEST(CompletionQueue, OffersTheRoomOfWhoPolls) {
  engine::CompletionQueue queue(8);
  EXPECT_EQ(queue.place(), nullptr) << "nobody polls";
  std::array<Completion, 2> room;
  queue.offer(room);
  EXPECT_EQ(queue.place(), &room[0]);
  EXPECT_EQ(queue.place(), &room[1]);
  EXPECT_EQ(queue.place(), nullptr) << "it is full";
  EXPECT_EQ(queue.filled(), 2u);
  EXPECT_EQ(queue.place(), nullptr) << "the room is the caller's again";
  queue.offer(room);
  EXPECT_EQ(queue.place(), &room[0]) << "from its front again";
  EXPECT_EQ(queue.filled(), 1u);
  EXPECT_EQ(queue.place(), nullptr) << "also with some of it left";
}

TEST(CompletionQueue, NothingPassesOneThatWaits) {
  engine::CompletionQueue queue(8);
  ASSERT_TRUE(queue.push(7));
  std::array<Completion, 2> room;
  queue.offer(room);
  EXPECT_EQ(queue.place(), nullptr);
  std::uint32_t slot = 0;
  ASSERT_TRUE(queue.pop(slot));
  EXPECT_EQ(queue.place(), &room[0]);
}

class Polling : public TwoEngines {
 protected:
  static constexpr std::uint64_t kLong = 20'000;  // no call completes it
  void change(EngineOptions& options) override { options.max_transfers = 8; }
  TransferId begin(RequestOptions options = {}) {
    const auto id = left_->write(right_peer_, extent(0, 0, kLong), options);
    EXPECT_TRUE(id) << id.status().to_string();
    return id ? *id : TransferId{};
  }
};

RequestOptions polled(void* user) {
  RequestOptions options;
  options.deliver = Deliver::to_poll;
  options.user_data = user;
  return options;
}

// More than the room of a poll takes, and more than there are slots.
TEST_P(Polling, TakesEachCompletionOnceAndFreesItsSlot) {
  std::array<int, 6> users{};
  for (int round = 0; round < 200; ++round) {
    std::array<TransferId, 6> ids;
    for (std::size_t i = 0; i < ids.size(); ++i) ASSERT_TRUE(ids[i] = begin(polled(&users[i])));
    std::array<Completion, 2> some;
    std::size_t count = 0;
    while (count < ids.size()) {
      const std::size_t more = left_->poll(some);
      for (std::size_t i = 0; i < more; ++i, ++count) {
        ASSERT_LT(count, ids.size());
        EXPECT_EQ(some[i].id, ids[count]) << "in their order";
        EXPECT_EQ(some[i].user_data, &users[count]);
        EXPECT_TRUE(some[i].status);
        EXPECT_EQ(some[i].bytes, kLong);
      }
      if (more == 0) std::this_thread::yield();
    }
    EXPECT_EQ(left_->metrics().transfers_in_use, 0u);
    EXPECT_EQ(left_->wait(ids[0], Timeout(0)).status().code(), ErrorCode::not_found);
    EXPECT_EQ(left_->poll(some), 0u);
  }
}

TEST_P(Polling, OneThatWasTakenIsExplainedAndFollowed) {
  const TransferId id = begin(polled(nullptr));
  std::array<Completion, 1> one;
  while (left_->poll(one) == 0) std::this_thread::yield();
  const auto explained = left_->explain(id);
  ASSERT_TRUE(explained) << explained.status().to_string();
  EXPECT_EQ(explained->state, "ok");
  RequestOptions behind;
  behind.after = id;
  EXPECT_TRUE(finish(left_->write(right_peer_, extent(0, 0, 8), behind), *left_).status);
}

// A callback polls within the step of the poll around it: what lies in that one's room is not the callback's.
TEST_P(Polling, ACallbackThatPollsTakesNothingOfThePollAroundIt) {
  struct Inner {
    Engine* engine;
    std::vector<TransferId> taken;
    std::atomic<bool> ran{false};  // once: `taken` stays as it is
  } inner{&*left_, {}, {false}};
  RequestOptions calls;
  calls.deliver = Deliver::to_callback;
  calls.user_data = &inner;
  calls.callback = [](const Completion&, void* user) {
    auto& self = *static_cast<Inner*>(user);
    std::array<Completion, 4> some;
    const std::size_t count = self.engine->poll(some);
    for (std::size_t i = 0; i < count; ++i) self.taken.push_back(some[i].id);
    self.ran.store(true, std::memory_order_release);
  };
  const TransferId first = begin(polled(nullptr));
  (void)begin(calls);
  const TransferId last = begin(polled(nullptr));
  std::array<Completion, 4> some;
  std::vector<TransferId> outer;
  while (!inner.ran.load(std::memory_order_acquire) || outer.size() + inner.taken.size() < 2) {
    const std::size_t count = left_->poll(some);
    for (std::size_t i = 0; i < count; ++i) outer.push_back(some[i].id);
    if (count == 0) std::this_thread::yield();
  }
  std::vector<TransferId> all = inner.taken;
  all.insert(all.end(), outer.begin(), outer.end());
  ASSERT_EQ(all.size(), 2u);
  EXPECT_TRUE((all[0] == first && all[1] == last) || (all[0] == last && all[1] == first));
  EXPECT_EQ(left_->metrics().transfers_in_use, 0u);
}

INSTANTIATE_TEST_SUITE_P(Progress, Polling, testing::Values(Progress::threads, Progress::caller));

}  // namespace
}  // namespace fairway
