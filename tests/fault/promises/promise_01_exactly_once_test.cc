// Promise 1, exactly once: every accepted transfer ends once, with ok or with an error that names the peer, the link
// and the cause; also when the peer dies, its link fails, or an engine closes. Cases: all three ways to deliver a
// completion, under three threads; two threads that wait for or cancel one transfer; closing either engine under
// traffic; killed peers and broken links in the simulator.
#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "cluster.h"
#include "nodes.h"

namespace fairway::promises {
namespace {

struct Counted {
  std::atomic<int> completions{0};
  Status status;
};

RequestOptions counting(Counted& counted) {
  RequestOptions options;
  options.deliver = Deliver::to_callback;
  options.user_data = &counted;
  options.callback = [](const Completion& completion, void* user_data) {
    auto& mine = *static_cast<Counted*>(user_data);
    mine.status = completion.status;
    mine.completions.fetch_add(1);
  };
  return options;
}

TEST(ExactlyOnce, EachWayOfHearingTellsEveryTransferOnce) {
  Pair pair;
  constexpr int kEach = 2000;
  std::vector<Counted> called(kEach);
  std::vector<std::atomic<int>> polled(kEach);
  std::atomic<int> poll_count{0};
  // Each write has a place of its own: two without order to one place are a race of their bytes.
  std::atomic<std::uint64_t> next{0};
  const auto submit = [&](const RequestOptions& options) {
    const std::uint64_t place = 64 * next.fetch_add(1);
    for (;;) {
      auto id = pair.left.engine().write(pair.to_right, pair.extent(place, place, 64), options);
      if (id || id.status().code() != ErrorCode::queue_full) return id;
      std::this_thread::yield();
    }
  };
  std::thread callbacks([&] {
    for (Counted& each : called) EXPECT_TRUE(submit(counting(each)));
  });
  std::thread waits([&] {
    for (int i = 0; i < kEach; ++i) {
      const auto id = submit({});
      EXPECT_TRUE(finish(pair.left.engine(), id).status);
      EXPECT_EQ(pair.left.engine().wait(*id, Timeout(0)).status().code(), ErrorCode::not_found);
    }
  });
  std::thread polls([&] {
    RequestOptions options;
    options.deliver = Deliver::to_poll;
    std::array<Completion, 16> got;
    for (int i = 0; poll_count < kEach;) {
      options.user_data = reinterpret_cast<void*>(static_cast<std::uintptr_t>(i));
      if (i < kEach && submit(options)) ++i;
      const std::size_t count = pair.left.engine().poll(got);
      for (std::size_t k = 0; k < count; ++k) {
        EXPECT_TRUE(got[k].status);
        ++polled[reinterpret_cast<std::uintptr_t>(got[k].user_data)];
        ++poll_count;
      }
    }
  });
  callbacks.join();
  waits.join();
  polls.join();
  pair.left.close();
  for (Counted& each : called) EXPECT_EQ(each.completions, 1);
  for (auto& each : polled) EXPECT_EQ(each, 1);
}

TEST(ExactlyOnce, OfTwoThreadsThatWaitForATransferOneGetsIt) {
  Pair pair;
  for (int round = 0; round < 200; ++round) {
    const auto id = pair.left.engine().write(pair.to_right, pair.extent(0, 0, 4096));
    ASSERT_TRUE(id);
    std::atomic<int> got{0};
    const auto wait = [&] {
      const auto completion = pair.left.engine().wait(*id, kSoon);
      if (completion)
        ++got;
      else
        EXPECT_EQ(completion.status().code(), ErrorCode::not_found);
    };
    std::thread other(wait);
    wait();
    other.join();
    EXPECT_EQ(got, 1);
  }
}

TEST(ExactlyOnce, BothOfTwoThreadsThatCancelATransferAreAnswered) {
  Pair pair;
  for (int round = 0; round < 100; ++round) {
    const auto id = pair.left.engine().receive(pair.to_right, 7, {pair.left.region().id, 0, 64});
    ASSERT_TRUE(id);
    const auto cancel = [&] {
      const auto cancelled = pair.left.engine().cancel(*id, kSoon);
      if (cancelled) {
        EXPECT_TRUE(cancelled->fenced) << cancelled->held_by;
      } else {
        EXPECT_EQ(cancelled.status().code(), ErrorCode::not_found);
      }
    };
    const auto started = std::chrono::steady_clock::now();
    std::thread other(cancel);
    cancel();
    other.join();
    ASSERT_LT(std::chrono::steady_clock::now() - started, kSoon / 2) << "one of them was forgotten";
    EXPECT_EQ(finish(pair.left.engine(), id).status.code(), ErrorCode::cancelled);
  }
}

// Closes either side while many transfers are in flight.
void close_under_traffic(bool near_side) {
  for (int round = 0; round < 20; ++round) {
    Pair pair;
    std::vector<Counted> jobs(500);
    std::size_t accepted = 0;
    for (; accepted < jobs.size(); ++accepted)
      if (!pair.left.engine().write(pair.to_right, pair.extent(0, 0, 1 << 18), counting(jobs[accepted]))) break;
    (near_side ? pair.left : pair.right).close();
    if (!near_side) {
      ASSERT_TRUE(pair.left.engine().wait_peer_event(kSoon));
      pair.left.close();
    }
    for (std::size_t i = 0; i < accepted; ++i) {
      ASSERT_EQ(jobs[i].completions, 1) << i;
      if (!jobs[i].status && !near_side) {
        EXPECT_FALSE(jobs[i].status.peer().empty()) << jobs[i].status.to_string();
      }
      if (!jobs[i].status) {
        EXPECT_FALSE(jobs[i].status.message().empty());
      }
    }
    EXPECT_EQ(pair.left.engine().write(pair.to_right, pair.extent(0, 0, 8)).status().code(), ErrorCode::closed);
  }
}
TEST(ExactlyOnce, ClosingTheNearEngineEndsEveryTransferOnce) {
  close_under_traffic(true);
}
TEST(ExactlyOnce, ClosingTheFarEngineEndsEveryTransferOnce) {
  close_under_traffic(false);
}

TEST(ExactlyOnce, AWaiterIsReleasedWhenItsEngineCloses) {
  Pair pair;
  const auto id = pair.left.engine().receive(pair.to_right, 7, {pair.left.region().id, 0, 64});
  ASSERT_TRUE(id);
  std::thread waiter([&] { EXPECT_EQ(finish(pair.left.engine(), id).status.code(), ErrorCode::cancelled); });
  std::thread for_peers([&] {
    while (pair.left.engine().wait_peer_event(kSoon)) {
      std::array<PeerEvent, 4> events;
      if (pair.left.engine().poll_peer_events(events) == 0) break;
    }
  });
  std::thread for_counter([&] { EXPECT_EQ(pair.left.engine().wait_counter(1, 1, kSoon).code(), ErrorCode::closed); });
  pair.left.close();
  waiter.join();
  for_peers.join();
  for_counter.join();
}

// Every operation is in flight when the peer dies, or when every link breaks for good.
void end_with_fault(std::uint64_t seed, bool kill) {
  Cluster cluster(seed);
  auto& a = cluster.add({nic(), nic()});
  auto& b = cluster.add({nic(), nic()});
  const auto road = cluster.connect(a, b);
  std::vector<Counted> jobs(60);
  std::size_t accepted = 0;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    RequestOptions options = counting(jobs[accepted]);
    if (i % 3 == 0) options.notify = notify_event(1);
    options.checksum = i % 5 == 0;
    Result<TransferId> id = Status(ErrorCode::closed, "");
    switch (i % 6) {
      case 0:
      case 1: id = a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 8000), options); break;
      case 2: id = a.engine->read(road.peer, Cluster::extent(a, road, 0, 0, 8000), options); break;
      case 3:
        options.notify = {};
        id = a.engine->send(road.peer, 1, {a.region.id, 0, 3000}, options);
        break;
      case 4: id = a.engine->receive(road.peer, 1, {a.region.id, 0, 3000}, options); break;
      default: id = a.engine->fetch_add(road.peer, {road.memory.id, 8}, 1, options); break;
    }
    if (id)
      ++accepted;
    else
      ASSERT_EQ(i % 6, 3u) << id.status().to_string();  // a send with a notification
  }
  cluster.run(seed % 7 * 20 * kMicrosecond);
  if (kill)
    cluster.kill(b);
  else
    for (std::size_t i = 0; i < 2; ++i) cluster.fabric().break_device(*b.host, i, 3600 * kSecond);
  EXPECT_TRUE(cluster.run_until(10 * kSecond, [&] {
    for (std::size_t i = 0; i < accepted; ++i)
      if (jobs[i].completions == 0) return false;
    return true;
  }) || !kill);
  if (!kill) {  // sends and receives wait for their counterpart as long as the peer lives
    a.engine->close();
  }
  for (std::size_t i = 0; i < accepted; ++i) {
    EXPECT_EQ(jobs[i].completions, 1) << i;
    if (!jobs[i].status && kill) {
      EXPECT_FALSE(jobs[i].status.peer().empty()) << jobs[i].status.to_string();
    }
  }
}
TEST(ExactlyOnce, AKilledPeerEndsEveryTransferOnceAndIsNamed) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    end_with_fault(seed, true);
  }
}
TEST(ExactlyOnce, LosingEveryLinkEndsEveryTransferOnce) {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    end_with_fault(seed, false);
  }
}

TEST(ExactlyOnce, ARefusedTransferNamesItsLink) {
  Cluster cluster;
  auto& a = cluster.add({nic()});
  auto& b = cluster.add({nic()});
  const auto road = cluster.connect(a, b);
  const std::uint64_t near_index[] = {0}, far_index[] = {Cluster::kBytes};  // checked only when data moves
  const Paged pages{a.region.id, road.memory.id, 64, 64, 1, near_index, far_index};
  const Completion done = cluster.finish(a, a.engine->write(road.peer, pages));
  EXPECT_EQ(done.status.code(), ErrorCode::out_of_range);
  EXPECT_EQ(done.status.link().substr(0, 9), "loopback/") << done.status.to_string();
  EXPECT_FALSE(done.status.peer().empty());
  EXPECT_EQ(done.status.effect(), Effect::not_applied);
}

}  // namespace
}  // namespace fairway::promises
