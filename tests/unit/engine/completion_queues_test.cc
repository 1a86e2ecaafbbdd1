#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/tables/completions.h"
#include "two_engines.h"

namespace fairway {
namespace {

TEST(CompletionQueues, APlaceIsTakenUntilItIsGivenBack) {
  engine::CompletionQueues queues;
  const QueueId id = *queues.make(2);
  engine::NamedQueue* queue = nullptr;
  EXPECT_TRUE(queues.take_place(id, queue));
  EXPECT_TRUE(queues.take_place(id, queue));
  EXPECT_EQ(queues.take_place(id, queue).code(), ErrorCode::queue_full);
  EXPECT_EQ(queues.end(id).code(), ErrorCode::invalid_argument);
  EXPECT_NE(queues.end(id).message().find("2 transfers"), std::string::npos);
  queue->give_back();
  EXPECT_TRUE(queues.take_place(id, queue));
  queue->give_back();
  queue->give_back();
  EXPECT_TRUE(queues.end(id));
  EXPECT_EQ(queues.end(id).code(), ErrorCode::not_found);
  EXPECT_EQ(queues.take_place(id, queue).code(), ErrorCode::not_found);
}

TEST(CompletionQueues, WhoComesTooLateTakesNothingOfTheNextOwner) {
  engine::CompletionQueues queues;
  const QueueId first = *queues.make(4);
  engine::NamedQueue* const queue = queues.find(first);
  EXPECT_TRUE(queues.end(first));
  const QueueId second = *queues.make(4);
  EXPECT_EQ(second.slot, first.slot);
  EXPECT_EQ(queues.find(second), queue) << "its memory is used again";
  engine::NamedQueue* same = nullptr;
  ASSERT_TRUE(queues.take_place(second, same));
  same->push(7);
  std::uint32_t slot = 0;
  EXPECT_FALSE(queue->pop(first.generation, slot));
  EXPECT_TRUE(queue->pop(second.generation, slot));
  EXPECT_EQ(slot, 7u);
}

TEST(CompletionQueues, ThereIsALimitAndEndedOnesMakeRoom) {
  engine::CompletionQueues queues;
  std::vector<QueueId> ids;
  for (std::uint32_t i = 0; i < engine::CompletionQueues::kMost; ++i) ids.push_back(*queues.make(i + 1));
  EXPECT_EQ(queues.make(1).status().code(), ErrorCode::resource_exhausted);
  EXPECT_TRUE(queues.end(ids[5]));
  const auto longer = queues.make(1000);
  ASSERT_TRUE(longer);
  EXPECT_EQ(longer->slot, ids[5].slot);
  EXPECT_EQ(queues.find(ids[5]), nullptr);
  EXPECT_EQ(queues.make(0).status().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(queues.make((1u << 24) + 1).status().code(), ErrorCode::invalid_argument);
}

class Queues : public TwoEngines {
 protected:
  static RequestOptions to(QueueId queue) {
    RequestOptions options;
    options.deliver = Deliver::to_poll;
    options.queue = queue;
    return options;
  }
  // A place of its own, with no other transfer's bytes: they move at the same time.
  Extent next(std::uint64_t length) {
    const std::uint64_t at = places_++ % (kBytes / kPlace) * kPlace;
    return extent(at, at, length);
  }
  // Polls until `count` have come, and no more.
  std::vector<Completion> take(QueueId queue, std::size_t count) {
    std::vector<Completion> all(count + 1);
    std::size_t have = 0;
    while (have < count) {
      const Status waited = left_->wait(queue, kSoon);
      EXPECT_TRUE(waited) << waited.to_string();
      if (!waited) break;
      have += left_->poll(queue, std::span(all).subspan(have));
    }
    have += left_->poll(queue, std::span(all).subspan(have));
    EXPECT_EQ(have, count);
    all.resize(have);
    return all;
  }

 private:
  static constexpr std::uint64_t kPlace = 16'384;
  std::uint64_t places_ = 0;
};

TEST_P(Queues, EachGetsItsOwnAndThePlainPollTheRest) {
  const QueueId one = *left_->make_queue(64), other = *left_->make_queue(64);
  std::set<TransferId> ones, others, rest;
  for (int round = 0; round < 20; ++round)
    for (const std::uint64_t length : {64u, 16'000u}) {
      ones.insert(*left_->write(right_peer_, next(length), to(one)));
      others.insert(*left_->read(right_peer_, next(length), to(other)));
      if (round < 10) rest.insert(*left_->write(right_peer_, next(length), to({})));
    }
  const auto ids = [](const std::vector<Completion>& all) {
    std::set<TransferId> found;
    for (const Completion& each : all) {
      EXPECT_TRUE(each.status) << each.status.to_string();
      found.insert(each.id);
    }
    return found;
  };
  EXPECT_EQ(ids(take(other, 40)), others);
  EXPECT_EQ(ids(take(one, 40)), ones);
  std::vector<Completion> plain(50);
  std::size_t have = 0;
  while (have < rest.size()) have += left_->poll(std::span(plain).subspan(have));
  EXPECT_EQ(left_->poll(std::span(plain).subspan(have)), 0u);
  plain.resize(have);
  EXPECT_EQ(ids(plain), rest);
  EXPECT_EQ(left_->wait(*ones.begin(), Timeout(0)).status().code(), ErrorCode::not_found);
  EXPECT_EQ(left_->metrics().transfers_in_use, 0u);
  EXPECT_TRUE(left_->end_queue(one));
}

TEST_P(Queues, AFullOneHoldsUpNobodyElse) {
  const QueueId queue = *left_->make_queue(3), other = *left_->make_queue(3);
  const auto write = [&](QueueId to_queue) { return left_->write(right_peer_, next(64), to(to_queue)); };
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(write(queue));
  EXPECT_EQ(write(queue).status().code(), ErrorCode::queue_full);
  EXPECT_TRUE(write(other));
  const Request request{Operation::write, right_peer_, next(64), {}, 0, 0, 0, to(queue)};
  TransferId id;
  const Submitted submitted = left_->submit({&request, 1}, {&id, 1});
  EXPECT_EQ(submitted.taken, 0u);
  EXPECT_EQ(submitted.status.code(), ErrorCode::queue_full);
  EXPECT_EQ(left_->end_queue(queue).code(), ErrorCode::invalid_argument);
  (void)take(queue, 3);
  EXPECT_TRUE(write(queue));
  (void)take(queue, 1);
  (void)take(other, 1);
  EXPECT_TRUE(left_->end_queue(queue));
  EXPECT_EQ(write(queue).status().code(), ErrorCode::not_found);
  EXPECT_EQ(left_->metrics().transfers_in_use, 0u) << "what was refused holds nothing";
}

TEST_P(Queues, WhatCannotBeIsRefused) {
  const QueueId queue = *left_->make_queue(3);
  RequestOptions options;
  options.queue = queue;
  EXPECT_EQ(left_->write(right_peer_, next(64), options).status().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(left_->send(right_peer_, 1, {near_region_.id, 0, 64}, options).status().code(),
            ErrorCode::invalid_argument);
  EXPECT_EQ(left_->write(right_peer_, next(64), to({3, 7})).status().code(), ErrorCode::not_found);
  EXPECT_EQ(left_->wait(QueueId{3, 7}, kSoon).code(), ErrorCode::not_found);
  std::array<Completion, 1> one;
  EXPECT_EQ(left_->poll(QueueId{3, 7}, one), 0u);
  EXPECT_EQ(left_->end_queue({}).code(), ErrorCode::not_found);
  EXPECT_EQ(left_->wait(queue, std::chrono::milliseconds(1)).code(), ErrorCode::timed_out);
  EXPECT_TRUE(left_->end_queue(queue)) << "nothing that was refused has a place in it";
}

TEST_P(Queues, TheirWaitersAreToldOfEachEnd) {
  const QueueId queue = *left_->make_queue(8);
  std::atomic<int> ended{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 2; ++i)
    waiters.emplace_back([&] {
      std::array<Completion, 1> one;
      for (;;) {
        const Status status = left_->wait(queue, kSoon);
        if (status.code() == ErrorCode::not_found) return;  // it has ended
        EXPECT_TRUE(status) << status.to_string();
        if (!status) return;
        ended += static_cast<int>(left_->poll(queue, one));
      }
    });
  for (int sent = 0; sent < 200;) {
    if (left_->write(right_peer_, next(sent % 2 == 0 ? 64 : 16'000), to(queue)))
      ++sent;
    else
      std::this_thread::yield();
  }
  while (ended < 200) std::this_thread::yield();
  EXPECT_TRUE(left_->end_queue(queue));
  for (std::thread& each : waiters) each.join();
  EXPECT_EQ(ended, 200);
}

TEST_P(Queues, CloseCompletesWhatNamesThemAndEndsTheirWaits) {
  const QueueId queue = *left_->make_queue(8), empty = *left_->make_queue(8);
  const auto id = left_->receive(right_peer_, 1, {near_region_.id, 0, 64}, to(queue));
  ASSERT_TRUE(id);
  std::thread waits([&] { EXPECT_EQ(left_->wait(empty, kSoon).code(), ErrorCode::closed); });
  left_->close();
  waits.join();
  std::array<Completion, 2> done;
  ASSERT_EQ(left_->poll(queue, done), 1u);
  EXPECT_EQ(done[0].id, *id);
  EXPECT_EQ(done[0].status.code(), ErrorCode::cancelled);
  EXPECT_TRUE(left_->end_queue(queue));
  EXPECT_EQ(left_->make_queue(8).status().code(), ErrorCode::closed);
}

// Whoever asks again and again, from before close() on: with `closed` all has come.
TEST_P(Queues, SayClosedOnlyOnceTheirLastCompletionHasCome) {
  const QueueId queue = *left_->make_queue(1);
  ASSERT_TRUE(left_->receive(right_peer_, 77, {near_region_.id, 0, 8}, to(queue)));
  std::atomic<bool> asks{false};
  std::thread waiter([&] {
    Status status;
    do {
      status = left_->wait(queue, Timeout(0));
      asks = true;
    } while (status.code() == ErrorCode::timed_out);
    std::array<Completion, 1> last;
    EXPECT_EQ(left_->poll(queue, last), 1u) << status.to_string();
  });
  while (!asks) std::this_thread::yield();
  left_->close();
  waiter.join();
}

INSTANTIATE_TEST_SUITE_P(Progress, Queues, testing::Values(Progress::threads, Progress::caller));

}  // namespace
}  // namespace fairway
