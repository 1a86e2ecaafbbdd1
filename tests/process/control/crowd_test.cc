#include <cstdio>
#include <thread>

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include "child_process.h"
#include "live_engine.h"
#include "support/least_share.h"
#include "support/sanitized.h"

namespace fairway::control {
namespace {

// Sanitizers make each process slow enough that 64 of them on two cores are frozen to each other (peer_timeout).
constexpr std::size_t kEngines = kSanitized ? 16 : 64;

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::vector<std::string> words(const std::string& line) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < line.size();) {
    const auto space = std::min(line.find(' ', at), line.size());
    if (space != at) out.push_back(line.substr(at, space - at));
    at = space + 1;
  }
  return out;
}

// Every engine is a process, and each connects to all others in the same moment: each pair dials both ways.
TEST(ControlProcess, SixtyFourEnginesConnectAllToAllAtOnce) {
  std::vector<std::unique_ptr<ChildProcess>> children;
  for (std::size_t i = 0; i < kEngines; ++i)
    children.push_back(std::make_unique<ChildProcess>([](ChildProcess::Line& line) {
      Options options;
      options.job_key = "all to all";
      LiveEngine engine(options);
      line.write(engine.open_status.is_ok() ? engine.address() : "failed");
      const auto peers = words(line.read());
      const double before = cpu_seconds();
      std::vector<std::uint64_t> tokens;
      for (const auto& peer : peers)
        if (peer != engine.address()) tokens.push_back(engine.start_connect(peer, 30 * kSecond));
      engine.until(
          [&](const auto& seen) { return seen.answers.size() == tokens.size() && seen.up.size() == tokens.size(); },
          40 * kSecond);
      const auto seen = engine.seen();
      std::size_t failed = tokens.size() - seen.answers.size();
      for (const auto& [token, answer] : seen.answers) failed += answer.is_ok() ? 0 : 1;
      std::size_t initiated = 0;
      for (const auto& [id, peer] : seen.up) initiated += peer.initiated_here ? 1 : 0;
      line.write(std::to_string(failed) + " " + std::to_string(seen.up.size()) + " " +
                 std::to_string(seen.down.size()) + " " + std::to_string(initiated) + " " +
                 std::to_string(cpu_seconds() - before));
      line.read();
    }));
  std::string all;
  for (auto& child : children) {
    const std::string address = child->read();
    ASSERT_NE(address, "failed");
    all += address + " ";
  }
  sys::SystemClock clock;
  const Time start = clock.now();
  for (auto& child : children) child->write(all);
  std::size_t initiated = 0;
  double cpu = 0;
  for (auto& child : children) {
    const auto result = words(child->read());
    ASSERT_EQ(result.size(), 5U);
    EXPECT_EQ(result[0], "0") << "connects failed";
    EXPECT_EQ(result[1], std::to_string(kEngines - 1)) << "sessions are up";
    EXPECT_EQ(result[2], "0") << "sessions went down";
    initiated += std::stoul(result[3]);
    cpu += std::stod(result[4]);
  }
  const double took = static_cast<double>(clock.now() - start) / 1e9;
  EXPECT_EQ(initiated, kEngines * (kEngines - 1) / 2) << "exactly one side of each session initiated it";
  std::printf("%zu engines, all to all: %.2f s, %.2f s of CPU together\n", kEngines, took, cpu);
  EXPECT_LT(took, kSanitized ? 60.0 : 15.0);
  for (auto& child : children) child->write("done");
}

TEST(ControlProcess, SixtyFourIdleSessionsCostLessThanHalfAPercentOfACore) {
  ChildProcess child([](ChildProcess::Line& line) {
    std::vector<std::unique_ptr<LiveEngine>> engines;
    std::string all;
    for (std::size_t i = 0; i < kEngines; ++i) {
      engines.push_back(std::make_unique<LiveEngine>());
      all += engines.back()->address() + " ";
    }
    line.write(all);
    line.read();
  });
  LiveEngine engine;
  const auto peers = words(child.read());
  ASSERT_EQ(peers.size(), kEngines);
  for (const auto& peer : peers) ASSERT_TRUE(engine.connect(peer).is_ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  constexpr double kMost = kSanitized ? 0.1 : 0.005;  // of a core
  const double share = support::least_share(cpu_seconds, kMost);
  std::printf("%zu idle sessions with a bound of 2 s: %.3f %% of a core\n", kEngines, share * 100);
  EXPECT_EQ(engine.seen().up.size(), kEngines);
  EXPECT_LT(share, kMost);
  child.write("done");
}

TEST(ControlProcess, AConnectedPeerCostsAFewKiB) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's allocator cannot be asked";
  ChildProcess child([](ChildProcess::Line& line) {
    std::vector<std::unique_ptr<LiveEngine>> engines;
    std::string all;
    for (std::size_t i = 0; i < kEngines; ++i) {
      engines.push_back(std::make_unique<LiveEngine>());
      all += engines.back()->address() + " ";
    }
    line.write(all);
    line.read();
  });
  LiveEngine engine;
  const auto peers = words(child.read());
  ASSERT_EQ(peers.size(), kEngines);
  ASSERT_TRUE(engine.connect(peers[0]).is_ok());  // what is allocated once is there
  const auto before = ::mallinfo2().uordblks;
  for (const auto& peer : peers) ASSERT_TRUE(engine.connect(peer).is_ok());
  for (const auto& [session, peer] : engine.seen().up)
    for (int i = 0; i < 100; ++i)
      while (!engine.send(session, std::string(1000, 'x'))) std::this_thread::yield();
  std::this_thread::sleep_for(
      std::chrono::milliseconds(1500));  // everything is acknowledged: nothing with history stays
  const auto each = (::mallinfo2().uordblks - before) / (kEngines - 1);
  std::printf("memory of a connected peer, this test's notes included: %zu bytes\n", static_cast<std::size_t>(each));
  EXPECT_LT(each, 4096U);
  child.write("done");
}

}  // namespace
}  // namespace fairway::control
