// What happens at the end of an engine or a region when another thread is in the middle of a call: every call returns,
// every accepted transfer completes, and nothing returns while memory may still be touched.
#include <array>
#include <atomic>
#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "engine/open.h"
#include "engine/worker.h"
#include "support/at_length.h"
#include "support/sanitized.h"
#include "two_engines.h"

namespace fairway {
namespace {

using std::chrono::milliseconds;

const int kEndings = at_length() ? 1000 : kSanitized ? 5 : 15;

class Closing : public TwoEngines {};

// Any number of threads that call `act` until it says false, or stop().
class Callers {
 public:
  template <class Act>
  void add(Act act) {
    threads_.emplace_back([this, act] {
      while (!stop_.load(std::memory_order_relaxed) && act()) calls_.fetch_add(1, std::memory_order_relaxed);
    });
  }
  void wait_for_calls(int count) const {
    while (calls_.load(std::memory_order_relaxed) < count) std::this_thread::yield();
  }
  void stop() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  ~Callers() { stop(); }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int> calls_{0};
  std::vector<std::thread> threads_;
};

TEST_P(Closing, EachAcceptedTransferCompletesHoweverLateItCame) {
  for (int round = 0; round < kEndings; ++round) {
    if (round > 0) renew();
    std::atomic<int> accepted{0}, completed{0};
    Callers callers;
    for (int i = 0; i < 3; ++i)
      callers.add([&, i] {
        const auto id = i == 0   ? left_->write(right_peer_, extent(0, 0, 100'000))
                        : i == 1 ? left_->send(right_peer_, 7, {near_region_.id, 0, 64})
                                 : left_->receive(right_peer_, 9, {near_region_.id, 64, 64});
        if (!id) {
          EXPECT_TRUE(id.status().code() == ErrorCode::closed || id.status().code() == ErrorCode::queue_full)
              << id.status().to_string();
          return id.status().code() == ErrorCode::queue_full;
        }
        ++accepted;
        if (i == 2 && !left_->is_open()) {
          const auto done = left_->wait(*id, kSoon);
          completed += done ? 1 : 0;
          EXPECT_TRUE(done) << "accepted while the engine closed, and never completed: " << done.status().to_string();
          return true;
        }
        if (i != 2) {
          const auto done = left_->wait(*id, kSoon);
          completed += done ? 1 : 0;
          EXPECT_TRUE(done) << done.status().to_string();
        } else {
          ++completed;  // nobody sends to it; its end is not asked for
        }
        return true;
      });
    callers.wait_for_calls(5 + round % 20);
    left_->close();
    callers.stop();
    EXPECT_EQ(accepted, completed);
  }
}

TEST_P(Closing, CallsThatAskTheWorkersReturn) {
  for (int round = 0; round < kEndings; ++round) {
    if (round > 0) renew();
    Callers callers;
    callers.add([&] {
      (void)left_->metrics();
      return left_->is_open();
    });
    callers.add([&] {
      (void)left_->explain(right_peer_);
      return left_->is_open();
    });
    callers.add([&] {
      const auto region = left_->register_memory(near_.data(), 4096, Access::all);
      if (region) {
        const Status status = left_->deregister(*region, kForever);
        EXPECT_TRUE(status || status.code() == ErrorCode::closed) << status.to_string();
      }
      return left_->is_open();
    });
    callers.wait_for_calls(5 + round % 20);
    left_->close();
    callers.stop();
  }
}

TEST_P(Closing, EveryCloseAndDeregisterReturnsOnceNothingTouchesTheMemory) {
  for (int round = 0; round < kEndings; ++round) {
    if (round > 0) renew();
    std::vector<std::byte> memory(1u << 20);
    const auto region = left_->register_memory(memory.data(), memory.size(), Access::all);
    ASSERT_TRUE(region);
    for (int i = 0; i < 8; ++i) (void)left_->read(right_peer_, Extent{{region->id, 0, memory.size()}, {remote_.id, 0}});
    const auto untouched = [&](const char* after) {
      std::memset(memory.data(), 0x5a, memory.size());
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      for (const std::byte byte : memory)
        if (byte != std::byte{0x5a}) return void(ADD_FAILURE() << "bytes landed after " << after);
    };
    std::thread first([&] { left_->close(); });
    while (left_->is_open()) std::this_thread::yield();
    if (round % 2 == 0) {
      left_->close();
      untouched("a second close()");
    } else {
      const Status status = left_->deregister(*region, kForever);
      EXPECT_EQ(status.code(), ErrorCode::closed) << status.to_string();
      EXPECT_EQ(left_->fence_state(*region), Fence::fenced);
      untouched("deregister() beside close()");
    }
    first.join();
  }
}

// Commands of other threads that come in the step that closes the worker: before the one that closes, behind it, and
// from within one.
// As where memory runs out in a call that acts for the worker: nobody else could act or step any more.
TEST_P(Closing, WhatThrowsInAWorkersPlaceLeavesItToOthers) {
  engine::Worker& worker = EngineAccess::worker(*left_, 0);
  bool thrown = false;
  for (int tries = 0; !thrown && tries < 1'000'000; ++tries) {
    try {
      (void)worker.in_its_place([] { throw std::bad_alloc(); });
    } catch (const std::bad_alloc&) {
      thrown = true;
    }
  }
  EXPECT_TRUE(thrown);
  EXPECT_TRUE(finish(left_->write(right_peer_, extent(0, 0, 100'000)), *left_).status);
}

TEST_P(Closing, EveryCommandRunsWhateverComesBesideTheOneThatCloses) {
  engine::Worker& worker = EngineAccess::worker(*left_, 0);
  std::atomic<int> ran{0};
  const auto count = [&](engine::Worker&) { ++ran; };
  std::atomic<bool> go{false};
  worker.post([&](engine::Worker& self) {
    while (!go) std::this_thread::yield();  // the rest is posted meanwhile
    self.post([&](engine::Worker& again) {
      ++ran;
      again.post([&](engine::Worker& last) {
        last.post(count);
        ++ran;
      });
    });
    self.close();
  });
  std::thread others([&] {
    if (GetParam() == Progress::threads) worker.post(count);
    go = true;
  });
  worker.call(count);
  others.join();
  left_->close();
  worker.post([&](engine::Worker& self) {  // on this thread, which may post and call there again
    self.post(count);
    self.call(count);
  });
  EXPECT_EQ(ran, GetParam() == Progress::threads ? 7 : 6);
}

TEST_P(Closing, CloseInACallbackDoesNothing) {
  RequestOptions options;
  options.deliver = Deliver::to_callback;
  options.callback = [](const Completion&, void* engine) { static_cast<Engine*>(engine)->close(); };
  options.user_data = &*left_;
  const auto id = left_->write(right_peer_, extent(0, 0, 4096), options);
  ASSERT_TRUE(id) << id.status().to_string();
  const Completion done = finish(left_->write(right_peer_, extent(8192, 8192, 4096)), *left_);
  EXPECT_TRUE(done.status) << done.status.to_string();
  EXPECT_TRUE(left_->is_open());
}

TEST_P(Closing, ARegionIsGoneOnceDeregisterSaysSo) {
  std::atomic<bool> stop{false};
  std::thread traffic([&] {  // its notices wake whoever waits
    RequestOptions options;
    options.notify = notify_event(1);
    std::vector<Notification> some(64);
    while (!stop) {
      (void)finish(left_->write(right_peer_, extent(0, 0, 8), options), *left_);
      (void)right_->poll_notifications(some);
    }
  });
  for (int round = 0; round < 20 * kEndings; ++round) {
    const auto region = right_->allocate(64 * 1024, Access::all);
    ASSERT_TRUE(region) << region.status().to_string();
    const std::uint64_t before = right_->metrics().regions;
    const Status status = right_->deregister(*region, kSoon);
    ASSERT_TRUE(status) << status.to_string();
    ASSERT_EQ(right_->metrics().regions, before - 1);
    ASSERT_EQ(right_->fence_state(*region), Fence::fenced);
  }
  stop = true;
  traffic.join();
}

TEST_P(Closing, SeveralWhoDeregisterOneRegionAllLearnThatItIsOver) {
  for (int round = 0; round < 10 * kEndings; ++round) {
    const auto region = left_->register_memory(near_.data(), 4096, Access::all);
    ASSERT_TRUE(region);
    std::atomic<int> ok{0};
    const auto end = [&] {
      const Status status = left_->deregister(*region, kSoon);
      EXPECT_TRUE(status || status.code() == ErrorCode::revoked) << status.to_string();
      EXPECT_EQ(left_->fence_state(*region), Fence::fenced);
      ok += status ? 1 : 0;
    };
    std::thread other(end);
    end();
    other.join();
    EXPECT_GE(ok, 1);
  }
}

TEST_P(Closing, ANameDoesNotOutliveItsRegion) {
  for (int round = 0; round < 10 * kEndings; ++round) {
    const auto region = left_->register_memory(near_.data(), 4096, Access::all);
    ASSERT_TRUE(region);
    std::thread publisher([&] { (void)left_->publish("name", *region); });
    ASSERT_TRUE(left_->deregister(*region, kSoon));
    publisher.join();
    const auto next = left_->register_memory(near_.data(), 4096, Access::all);
    ASSERT_TRUE(next);
    const Status status = left_->publish("name", *next);
    ASSERT_TRUE(status) << status.to_string();
    ASSERT_TRUE(left_->deregister(*next, kSoon));
  }
}

// Order is by (peer, tag) whatever other threads do meanwhile.
TEST_P(Closing, MessagesOfOneThreadStayInOrderBesideThoseOfOthers) {
  const auto back = right_->connect(left_->address(), kSoon);
  ASSERT_TRUE(back) << back.status().to_string();
  Callers others;
  for (int i = 0; i < 3; ++i)
    others.add([&, i] {
      const auto id = left_->write(right_peer_, extent(8192u * (i + 1), 8192u * (i + 1), 8192));
      if (id) (void)left_->wait(*id, kSoon);
      return true;
    });
  std::vector<std::uint64_t> into(64);
  const auto room = right_->register_memory(into.data(), into.size() * 8, Access::all);
  ASSERT_TRUE(room);
  std::uint64_t sent = 0, next = 0;
  std::vector<TransferId> receives(into.size());
  const auto post = [&](std::size_t at) {
    const auto id = right_->receive(*back, 3, {room->id, at * 8, 8});
    ASSERT_TRUE(id) << id.status().to_string();
    receives[at] = *id;
  };
  for (std::size_t at = 0; at < into.size(); ++at) post(at);
  const std::uint64_t total = at_length() ? 1'000'000 : kSanitized ? 2'000 : 20'000;
  std::thread sender([&] {
    std::vector<TransferId> ids;
    for (; sent < total; ++sent) {
      std::memcpy(near_.data() + sent % 512 * 8, &sent, 8);
      RequestOptions options;
      options.local_completion = true;
      auto id = left_->send(right_peer_, 3, {near_region_.id, sent % 512 * 8, 8}, options);
      ASSERT_TRUE(id) << id.status().to_string();
      ids.push_back(*id);
      if (ids.size() < 1 + sent % 64) continue;
      for (const TransferId each : ids) (void)left_->wait(each, kSoon);
      ids.clear();
    }
  });
  std::uint64_t inversions = 0;
  for (; next < total; ++next) {
    const std::size_t at = next % into.size();
    const auto done = right_->wait(receives[at], kSoon);
    ASSERT_TRUE(done && done->status) << next;
    inversions += into[at] != next ? 1 : 0;
    post(at);
  }
  sender.join();
  others.stop();
  EXPECT_EQ(inversions, 0u) << "of " << total << " messages";
}

INSTANTIATE_TEST_SUITE_P(Progress, Closing, testing::Values(Progress::threads, Progress::caller),
                         [](const auto& each) { return each.param == Progress::threads ? "threads" : "caller"; });

}  // namespace
}  // namespace fairway
