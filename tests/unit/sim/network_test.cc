#include "sim/network.h"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "sim/host.h"

namespace fairway::sim {
namespace {

class Idle final : public Stepper {
 public:
  Time step(Time) override { return kNever; }
};

// A connection between two hosts, driven by hand.
struct Wired {
  explicit Wired(std::uint64_t seed)
      : simulation([&] {
          SimulationOptions options;
          options.seed = seed;
          return options;
        }()) {
    task_a = std::move(*a.start({}, idle));
    task_b = std::move(*b.start({}, idle));
    listener = std::move(*b.network().listen("10.0.0.2:0", *task_b));
    dialed = std::move(*a.network().dial(listener->address(), *task_a));
    rest();
    accepted = std::move(*listener->accept(*task_b));
  }
  void rest(Time time = 50 * kMillisecond) { simulation.run_until(simulation.now() + time); }

  Simulation simulation;
  Host& a = simulation.add_host();
  Host& b = simulation.add_host();
  Idle idle;
  std::unique_ptr<Task> task_a, task_b;
  std::unique_ptr<Listener> listener;
  std::unique_ptr<Channel> dialed, accepted;
};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

TEST(SimNetwork, BytesArriveInOrderHoweverTheyAreCut) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Wired wired(seed);
    ASSERT_TRUE(wired.accepted);
    std::vector<std::byte> sent(200'000), got;
    for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i * 7 + i / 251);
    std::size_t gone = 0;
    for (int rounds = 0; got.size() < sent.size() && rounds < 10'000; ++rounds) {
      if (gone < sent.size()) {
        const auto took = wired.dialed->send(std::span(sent).subspan(gone));
        ASSERT_TRUE(took);
        gone += *took;
      }
      wired.rest(kMillisecond);
      std::vector<std::byte> some(3000);
      const auto count = wired.accepted->receive(some);
      ASSERT_TRUE(count);
      got.insert(got.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(*count));
    }
    EXPECT_EQ(got, sent);
  }
}

TEST(SimNetwork, AFullWindowTakesNoMore) {
  Wired wired(1);
  std::vector<std::byte> much(1 << 20);
  std::size_t taken = 0;
  for (int i = 0; i < 100; ++i) taken += *wired.dialed->send(much);
  EXPECT_LE(taken, 65536u);
  EXPECT_GT(taken, 0u);
}

TEST(SimNetwork, AnOrderlyCloseComesAfterTheBytes) {
  Wired wired(2);
  ASSERT_TRUE(wired.dialed->send(bytes_of("last words")));
  wired.dialed.reset();
  wired.rest();
  std::string got;
  for (;;) {
    std::vector<std::byte> some(4);
    const auto count = wired.accepted->receive(some);
    if (!count) {
      EXPECT_EQ(count.status().code(), ErrorCode::closed);
      break;
    }
    ASSERT_NE(*count, 0u);
    got.append(reinterpret_cast<const char*>(some.data()), *count);
  }
  EXPECT_EQ(got, "last words");
}

TEST(SimNetwork, NobodyListeningIsRefused) {
  Wired wired(3);
  auto channel = std::move(*wired.a.network().dial("10.0.0.2:9", *wired.task_a));
  wired.rest();
  EXPECT_EQ(channel->send(bytes_of("x")).status().code(), ErrorCode::unreachable);
}

TEST(SimNetwork, AKilledProcessResetsItsConnections) {
  Wired wired(4);
  wired.b.kill();
  wired.rest();
  std::vector<std::byte> some(4);
  EXPECT_EQ(wired.dialed->receive(some).status().code(), ErrorCode::system_error);
  auto channel = std::move(*wired.a.network().dial(wired.listener->address(), *wired.task_a));
  wired.rest();
  EXPECT_EQ(channel->send(bytes_of("x")).status().code(), ErrorCode::unreachable);
}

TEST(SimNetwork, APartitionDelaysAndLosesNothing) {
  Wired wired(5);
  wired.simulation.set_partition(0, 1, true);
  ASSERT_TRUE(wired.dialed->send(bytes_of("hello")));
  wired.rest(kSecond);
  std::vector<std::byte> some(16);
  EXPECT_EQ(*wired.accepted->receive(some), 0u);
  wired.simulation.set_partition(0, 1, false);
  wired.rest();
  std::size_t got = 0;
  for (int i = 0; i < 10; ++i) got += *wired.accepted->receive(some);
  EXPECT_EQ(got, 5u);
}

TEST(SimNetwork, AWayThatIsCutInOneDirectionPassesTheOther) {
  Wired wired(7);
  wired.simulation.path(wired.a.index(), wired.b.index()).cut = true;
  ASSERT_TRUE(wired.dialed->send(bytes_of("lost for now")));
  ASSERT_TRUE(wired.accepted->send(bytes_of("heard")));
  wired.rest();
  std::vector<std::byte> some(64);
  EXPECT_EQ(wired.accepted->unacknowledged(), 5u) << "it arrived, but nobody can say so";
  EXPECT_EQ(*wired.accepted->receive(some), 0u);
  EXPECT_EQ(*wired.dialed->receive(some), 5u);
  EXPECT_EQ(wired.dialed->unacknowledged(), 12u);
  wired.simulation.path(wired.a.index(), wired.b.index()).cut = false;
  wired.rest();
  EXPECT_EQ(*wired.accepted->receive(some), 12u);
}

TEST(SimNetwork, ASlowWayTakesTheTimeOfItsBytes) {
  Wired wired(8);
  wired.simulation.path(wired.a.index(), wired.b.index()).bytes_per_second = 100'000;
  std::size_t taken = 0;
  for (int i = 0; i < 20; ++i) {
    taken += *wired.dialed->send(std::vector<std::byte>(10'000 - taken));
    wired.rest(kMillisecond);
  }
  ASSERT_EQ(taken, 10'000u);
  std::vector<std::byte> some(20'000);
  EXPECT_LT(*wired.accepted->receive(some), 10'000u);
  wired.rest(200 * kMillisecond);
  EXPECT_EQ(wired.dialed->unacknowledged(), 0u);
}

TEST(SimNetwork, ALongSegmentIsSwallowedAndWhatIsBehindItWaits) {
  for (const std::uint32_t segment : {SimNetwork::kSegment, 1024u}) {
    Wired wired(9);
    auto dialed = std::move(*wired.a.network().dial_in_segments(wired.listener->address(), segment, *wired.task_a));
    wired.rest();
    auto accepted = std::move(*wired.listener->accept(*wired.task_b));
    wired.simulation.path(wired.a.index(), wired.b.index()).longest = 1400;
    ASSERT_TRUE(dialed->send(bytes_of("short")));
    wired.rest();
    std::size_t taken = 0;
    for (int i = 0; i < 20 && taken < 8000; ++i) {
      taken += *dialed->send(std::vector<std::byte>(8000 - taken));
      wired.rest(2 * kMillisecond);
    }
    ASSERT_TRUE(dialed->send(bytes_of("behind")));
    wired.rest();
    const bool swallowed = segment > 1400;
    EXPECT_EQ(dialed->swallowed_segment(), swallowed ? segment : 0u);
    EXPECT_EQ(dialed->unacknowledged() > 0, swallowed);
  }
}

TEST(SimNetwork, AnAddressThatIsNoneIsRefused) {
  Wired wired(6);
  for (const char* bad : {"", "host", ":1", "host:", "host:x"}) EXPECT_FALSE(wired.a.network().is_loopback(bad)) << bad;
  EXPECT_TRUE(*wired.a.network().is_loopback("127.0.0.1:5"));
  EXPECT_FALSE(*wired.a.network().is_loopback("10.0.0.1:5"));
}

}  // namespace fairway::sim
