#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/tables/transfer.h"
#include "two_engines.h"

namespace fairway {
namespace {

// Small ones that are complete when the call returns, once the way is known. With threads the worker may be in its
// step.
class AtOnce : public TwoEngines {
 protected:
  TransferId small(RequestOptions options = {}) {
    for (int tries = 0; tries < 10'000; ++tries) {
      const auto id = left_->write(right_peer_, extent(8, 8, 64), options);
      EXPECT_TRUE(id) << id.status().to_string();
      if (!id || engine::TransferTable::is_at_once(id->slot)) return id ? *id : TransferId{};
      if (options.deliver == Deliver::to_wait) {
        EXPECT_TRUE(finish(id, *left_).status);
        continue;
      }
      std::array<Completion, 1> completion;
      while (left_->poll(completion) == 0) std::this_thread::yield();
    }
    ADD_FAILURE() << "none was complete at once";
    return {};
  }
};

TEST_P(AtOnce, ItsBytesAreThereAndItsCompletionIsCollectedOnce) {
  int user = 0;
  RequestOptions options;
  options.user_data = &user;
  far_.assign(far_.size(), 0);
  const TransferId id = small(options);
  EXPECT_EQ(0, std::memcmp(near_.data() + 8, far_.data() + 8, 64));
  EXPECT_EQ(left_->metrics().transfers_in_use, 1u);
  const auto completion = left_->wait(id, Timeout(0));
  ASSERT_TRUE(completion) << completion.status().to_string();
  EXPECT_TRUE(completion->status);
  EXPECT_EQ(completion->id, id);
  EXPECT_EQ(completion->bytes, 64u);
  EXPECT_EQ(completion->user_data, &user);
  EXPECT_EQ(left_->wait(id, Timeout(0)).status().code(), ErrorCode::not_found);
  EXPECT_EQ(left_->metrics().transfers_in_use, 0u);
  far_[9] = 77;
  const auto back = left_->read(right_peer_, extent(8, 8, 64));
  EXPECT_TRUE(finish(back, *left_).status);
  EXPECT_EQ(near_[9], 77);
}

TEST_P(AtOnce, APollTakesThoseThatAreForIt) {
  RequestOptions options;
  options.deliver = Deliver::to_poll;
  const TransferId id = small(options);
  EXPECT_EQ(left_->wait(id, Timeout(0)).status().code(), ErrorCode::not_found) << "it is for poll()";
  std::array<Completion, 4> completions;
  ASSERT_EQ(left_->poll(completions), 1u);
  EXPECT_EQ(completions[0].id, id);
  EXPECT_TRUE(completions[0].status);
  EXPECT_EQ(left_->poll(completions), 0u);
}

TEST_P(AtOnce, OtherCallsKnowItsId) {
  const TransferId id = small();
  const auto explained = left_->explain(id);
  ASSERT_TRUE(explained) << explained.status().to_string();
  EXPECT_EQ(explained->state, "ok");
  EXPECT_EQ(explained->bytes_done, 64u);
  EXPECT_EQ(explained->operation, "write 64 bytes");
  const auto cancelled = left_->cancel(id, kSoon);
  ASSERT_TRUE(cancelled);
  EXPECT_TRUE(cancelled->fenced);
  EXPECT_EQ(cancelled->far_side, Cancelled::Far::all);
  RequestOptions behind;
  behind.after = id;
  EXPECT_TRUE(finish(left_->write(right_peer_, extent(0, 0, 8), behind), *left_).status);
  ASSERT_TRUE(left_->wait(id, Timeout(0)));
  EXPECT_TRUE(finish(left_->write(right_peer_, extent(0, 0, 8), behind), *left_).status) << "also once collected";
  EXPECT_FALSE(left_->cancel(id, kSoon));
  behind.after = {id.slot, id.generation + 9};
  EXPECT_EQ(left_->write(right_peer_, extent(0, 0, 8), behind).status().code(), ErrorCode::invalid_argument);
}

// With Progress::caller a longer write is ready to be posted by the next step. One that its caller could complete would
// pass it, and so would its number among the link's immediates.
TEST_P(AtOnce, NothingOvertakesWhatTheNextStepPosts) {
  if (GetParam() != Progress::caller) GTEST_SKIP() << "a worker with a thread posts what it takes";
  ASSERT_TRUE(finish(left_->write(right_peer_, extent(0, 0, 20'000)), *left_).status);
  ASSERT_TRUE(left_->wait(small(), kSoon));
  (void)left_->poll({});
  const auto longer = left_->write(right_peer_, extent(0, 0, 20'000));
  const auto behind = left_->write(right_peer_, extent(8, 8, 64));
  ASSERT_TRUE(longer && behind);
  EXPECT_FALSE(engine::TransferTable::is_at_once(behind->slot));
  EXPECT_TRUE(finish(longer, *left_).status);
  EXPECT_TRUE(finish(behind, *left_).status);
}

TEST_P(AtOnce, ABatchAndItsErrorsAreAsEver) {
  (void)left_->wait(small(), kSoon);
  std::vector<Request> requests(100);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].peer = right_peer_;
    requests[i].layout = extent(i * 64, i * 64, 64);
  }
  requests[70].layout = extent(kBytes - 8, 0, 64);
  std::vector<TransferId> ids(requests.size());
  const Submitted submitted = left_->submit(requests, ids);
  EXPECT_EQ(submitted.taken, 70u);
  EXPECT_EQ(submitted.status.code(), ErrorCode::out_of_range);
  for (std::size_t i = 0; i < submitted.taken; ++i) EXPECT_TRUE(finish(ids[i], *left_).status);
  EXPECT_EQ(0, std::memcmp(near_.data(), far_.data(), 70 * 64));
}

TEST_P(AtOnce, NothingIsDoneForAPeerThatWasDisconnectedOrOnAClosedEngine) {
  (void)left_->wait(small(), kSoon);
  ASSERT_TRUE(left_->disconnect(right_peer_));
  EXPECT_FALSE(left_->write(right_peer_, extent(0, 0, 8)));
  left_->close();
  EXPECT_EQ(left_->write(right_peer_, extent(0, 0, 8)).status().code(), ErrorCode::closed);
}

TEST_P(AtOnce, NothingLandsOnceARegionHasEnded) {
  (void)left_->wait(small(), kSoon);
  ASSERT_TRUE(right_->deregister(far_region_, kSoon));
  far_.assign(far_.size(), 0);
  for (int i = 0; i < 100; ++i) {
    const auto id = left_->write(right_peer_, extent(8, 8, 64));
    if (id) {
      EXPECT_FALSE(finish(id, *left_).status);
    }
  }
  EXPECT_EQ(far_[8], 0);
  ASSERT_TRUE(left_->deregister(near_region_, kSoon));
  EXPECT_FALSE(left_->write(right_peer_, extent(8, 8, 64)));
}

// After another one waits for the worker, so the one behind it has to, though nothing of the peer waits to be posted.
TEST_P(AtOnce, SendsMatchInTheOrderOfSubmissionWhicheverWayTheyGo) {
  std::array<PeerEvent, 1> event;
  for (int tries = 0; tries < 10'000 && right_->poll_peer_events(event) == 0; ++tries) std::this_thread::yield();
  RequestOptions waits;
  waits.after = small();
  ASSERT_TRUE(left_->wait(waits.after, kSoon));
  for (std::uint64_t round = 0; round < 100; ++round) {
    const std::uint64_t at = 128 * round;
    std::vector<Result<TransferId>> received, sent;
    for (const std::uint64_t each : {at, at + 64})
      received.push_back(right_->receive(event[0].peer, 5, {far_region_.id, each, 64}));
    sent.push_back(left_->send(right_peer_, 5, {near_region_.id, at, 64}, waits));
    sent.push_back(left_->send(right_peer_, 5, {near_region_.id, at + 64, 64}));
    for (const auto& id : sent) ASSERT_TRUE(finish(id, *left_).status);
    for (const auto& id : received) ASSERT_TRUE(finish(id, *right_).status);
    ASSERT_EQ(0, std::memcmp(near_.data() + at, far_.data() + at, 128)) << "in round " << round;
  }
}

// Several threads at once, each of whose transfers completes once, and the engine's own work goes on beside them.
TEST_P(AtOnce, ManyThreadsWriteAndReadTheirOwn) {
  (void)left_->wait(small(), kSoon);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (std::uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 2000; ++i) {
        const std::uint64_t at = 65536 * (t + 1) + i % 512 * 64;
        const auto id = i % 3 == 0 ? left_->read(right_peer_, extent(at, at, 64))
                                   : left_->write(right_peer_, extent(at, at, i % 100 == 0 ? 20'000 : 64));
        const auto completion = id ? left_->wait(*id, kSoon) : Result<Completion>(id.status());
        wrong += completion && completion->status ? 0 : 1;
        wrong += left_->wait(*id, Timeout(0)) ? 1 : 0;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(left_->metrics().transfers_in_use, 0u);
}

// Over a transport that takes messages within the call.
class AtOnceByShm : public TwoEngines {
 protected:
  void change(EngineOptions& options) override {
    options.loopback = {};
    options.transports = {"shm"};
  }
};

// A small send that asks for no more than its bytes to be taken, and a receive whose message is there already. With a
// deadline too: what is over within the call cannot miss it.
TEST_P(AtOnceByShm, AMessageThatNeedsNoAnswerIsCompleteOnReturn) {
  std::array<PeerEvent, 1> event;
  for (int tries = 0; tries < 10'000 && right_->poll_peer_events(event) == 0; ++tries) std::this_thread::yield();
  RequestOptions local;
  local.local_completion = true;
  local.deadline = kSoon;
  const auto over = [](Engine& engine, const Result<TransferId>& id) {
    const auto completion = id ? engine.wait(*id, Timeout(0)) : Result<Completion>(id.status());
    return completion && completion->status && completion->bytes == 64;
  };
  int sent = 0, received = 0, taken = 0;
  for (std::uint64_t tag = 1; tag < 10'000 && (sent < 10 || received < 10); ++tag) {
    const auto send = left_->send(right_peer_, tag, {near_region_.id, 64, 64}, local);
    if (over(*left_, send))
      ++sent;
    else
      (void)left_->wait(*send, kSoon);
    const auto receive = right_->receive(event[0].peer, tag, {far_region_.id, 64, 64});
    if (over(*right_, receive))
      ++received;
    else
      EXPECT_TRUE(finish(receive, *right_).status);
    EXPECT_EQ(0, std::memcmp(near_.data() + 64, far_.data() + 64, 64));
    if (++taken % 8 == 0 && GetParam() == Progress::caller) (void)left_->poll({});
  }
  EXPECT_GE(sent, 10);
  EXPECT_GE(received, 10);
  EXPECT_EQ(left_->metrics().transfers_in_use, 0u);
}

TEST_P(AtOnceByShm, AMessageThatWaitsEndsByItsDeadline) {
  std::array<PeerEvent, 1> event;
  for (int tries = 0; tries < 10'000 && right_->poll_peer_events(event) == 0; ++tries) std::this_thread::yield();
  RequestOptions brief;
  brief.deadline = std::chrono::milliseconds(5);
  const auto receive = right_->receive(event[0].peer, 1, {far_region_.id, 0, 64}, brief);
  EXPECT_EQ(finish(receive, *right_).status.code(), ErrorCode::deadline_exceeded);
  const auto send = left_->send(right_peer_, 2, {near_region_.id, 0, 64}, brief);
  EXPECT_EQ(finish(send, *left_).status.code(), ErrorCode::deadline_exceeded) << "no receive takes it";
}

INSTANTIATE_TEST_SUITE_P(Progress, AtOnce, testing::Values(Progress::threads, Progress::caller),
                         [](const auto& each) { return each.param == Progress::caller ? "caller" : "threads"; });
INSTANTIATE_TEST_SUITE_P(Progress, AtOnceByShm, testing::Values(Progress::threads, Progress::caller),
                         [](const auto& each) { return each.param == Progress::caller ? "caller" : "threads"; });

}  // namespace
}  // namespace fairway
