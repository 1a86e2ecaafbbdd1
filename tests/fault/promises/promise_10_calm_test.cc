// Promise 10, calm: with more threads than cores nothing collapses: waiters spin for microseconds, then sleep in the
// kernel. An idle engine with 64 peers uses less than half a percent of a core. Cases: CPU time of an idle hub's own
// threads; CPU time of many waiters with nothing to wait for; progress of many busy engines on few cores.
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include <sys/resource.h>

#include "nodes.h"
#include "support/least_share.h"

namespace fairway::promises {
namespace {

std::set<std::string> threads() {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) found.insert(entry.path().string());
  return found;
}

// CPU seconds, from the scheduler's own counter in nanoseconds.
double seconds_of(const std::set<std::string>& tasks) {
  double sum = 0;
  for (const std::string& task : tasks) {
    std::ifstream file(task + "/schedstat");
    double nanoseconds = 0;
    file >> nanoseconds;
    sum += nanoseconds / 1e9;
  }
  return sum;
}

double process_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

constexpr double kMost = kSanitized ? 0.1 : 0.005;  // of a core

TEST(Calm, AnIdleEngineWithSixtyFourPeersUsesLessThanHalfAPercentOfACore) {
  const auto loopback = make_loopback();
  const std::set<std::string> before = threads();
  Node hub(options_of(loopback, "hub"), 4096);
  std::set<std::string> own;
  for (const std::string& task : threads())
    if (!before.contains(task)) own.insert(task);
  ASSERT_GE(own.size(), 2u);  // a worker and control
  std::vector<std::unique_ptr<Node>> others;
  for (int i = 0; i < 64; ++i) {
    others.push_back(std::make_unique<Node>(options_of(loopback, "o" + std::to_string(i)), 4096));
    const auto peer = hub.engine().connect(others.back()->engine().address(), kSoon);
    ASSERT_TRUE(peer) << peer.status().to_string();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // not a wait: this measures doing nothing
  const double share = support::least_share([&] { return seconds_of(own); }, kMost);
  std::printf("idle with 64 peers: %.3f %% of a core\n", share * 100);
  EXPECT_LT(share, kMost);
  EXPECT_EQ(hub.engine().metrics().links.size(), 64u);
}

TEST(Calm, WaitersSleep) {
  Pair pair;
  std::vector<std::thread> waiters;
  const double start = process_seconds();
  for (int i = 0; i < 24; ++i)
    waiters.emplace_back([&, i] {
      switch (i % 3) {
        case 0:
          EXPECT_EQ(pair.left.engine().wait_counter(1, 1, std::chrono::seconds(1)).code(), ErrorCode::timed_out);
          break;
        case 1:
          EXPECT_EQ(pair.left.engine().wait_notification(std::chrono::seconds(1)).code(), ErrorCode::timed_out);
          break;
        default: {
          const auto id = pair.left.engine().receive(pair.to_right, 1, {pair.left.region().id, 0, 8});
          EXPECT_EQ(pair.left.engine().wait(*id, std::chrono::seconds(1)).status().code(), ErrorCode::timed_out);
        }
      }
    });
  for (std::thread& waiter : waiters) waiter.join();
  const double used = process_seconds() - start;
  std::printf("24 waiters for a second: %.1f ms of processor time\n", used * 1e3);
  EXPECT_LT(used, kSanitized ? 1.0 : 0.25);
}

// Far more engines and callers than cores, every pair busy: all must end, in a time that a few cores can achieve.
TEST(Calm, ManyBusyEnginesOnFewCoresAllGoOn) {
  const auto loopback = make_loopback();
  constexpr std::size_t kEngines = 12;
  std::vector<std::unique_ptr<Node>> nodes;
  for (std::size_t i = 0; i < kEngines; ++i)
    nodes.push_back(std::make_unique<Node>(options_of(loopback, "n" + std::to_string(i)), 8192));
  std::vector<std::thread> callers;
  std::atomic<int> done{0};
  for (std::size_t i = 0; i < kEngines; ++i)
    callers.emplace_back([&, i] {
      Engine& engine = nodes[i]->engine();
      auto peer = engine.connect(nodes[(i + 1) % kEngines]->engine().address(), kSoon);
      ASSERT_TRUE(peer) << peer.status().to_string();
      auto memory = engine.lookup(*peer, "memory", kSoon);
      ASSERT_TRUE(memory) << memory.status().to_string();
      RequestOptions options;
      options.notify = notify_counter(1);
      for (std::uint64_t round = 1; round <= 200; ++round) {
        const Extent extent{{nodes[i]->region().id, 0, 64}, {memory->id, 4096}};
        if (!finish(engine, engine.write(*peer, extent, options)).status) return;
        if (!engine.wait_counter(1, round, kSoon)) return;  // in lockstep with the round before
        ++done;
      }
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(done, static_cast<int>(kEngines) * 200);
}

}  // namespace
}  // namespace fairway::promises
