#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fairway/engine.h"

#include "process/control/child_process.h"
#include "process/leaks/held.h"
#include "support/open_engine.h"

// Connecting and disconnecting, ten thousand times where FAIRWAY_CONNECTS says so, leaves nothing behind on either
// side; neither do peers that are killed.
namespace fairway::leaks {
namespace {

using control::ChildProcess;

constexpr Timeout kSoon = std::chrono::seconds(20);
constexpr std::uint64_t kSize = 1 << 20;
// Of the heap, over all rounds: a leak of 50 bytes a round shows in the long run, one of 2 KiB in the short one.
constexpr std::uint64_t kHeapSlack = 256 * 1024;

unsigned rounds() {
  const char* set = std::getenv("FAIRWAY_CONNECTS");
  return set == nullptr ? 160 : static_cast<unsigned>(std::max(40, std::atoi(set)));
}

EngineOptions options_of(const std::string& name, const std::string& transport) {
  EngineOptions options;
  options.name = name;
  options.job_key = "a job";
  options.transports = {transport};
  return options;
}

Held settled(const Held& wanted, const std::function<Held()>& look) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  Held held = look();
  while (more(wanted, held, kHeapSlack) != "" && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    held = look();
  }
  return held;
}

// An engine that publishes memory and says its address; then `next` has the line.
void stay(ChildProcess::Line& line, const std::string& transport, const std::function<void()>& next) {
  auto engine = open_engine(options_of("stays", transport));
  const auto region = engine ? engine->allocate(kSize, Access::all) : Result<Region>(engine.status());
  if (!region || !engine->publish("memory", *region)) return line.write("failed " + region.status().to_string());
  line.write(engine->address());
  next();
}

Status visit(Engine& engine, const Region& ours, const std::string& address, std::uint64_t bytes, bool leave) {
  const auto peer = engine.connect(address, kSoon);
  if (!peer) return peer.status();
  const auto remote = engine.lookup(*peer, "memory", kSoon);
  if (!remote) return remote.status();
  const auto id = engine.write(*peer, Extent{{ours.id, 0, bytes}, {remote->id, 0}});
  if (!id) return id.status();
  const auto done = engine.wait(*id, kSoon);
  if (!done || !done->status) return done ? done->status : done.status();
  return leave ? engine.disconnect(*peer) : Status();
}

class Leaks : public testing::TestWithParam<const char*> {};

TEST_P(Leaks, NothingOfAConnectionStaysOnEitherSide) {
  ChildProcess child([](ChildProcess::Line& line) {
    stay(line, GetParam(), [&] {
      while (!line.read().empty()) line.write(Held::now().text());
    });
  });
  const std::string address = child.read();
  ASSERT_EQ(address.find("failed"), std::string::npos) << address;
  const auto there = [&] {
    child.write("held");
    return Held::of(child.read());
  };
  auto engine = open_engine(options_of("comes and goes", GetParam()));
  ASSERT_TRUE(engine) << engine.status().to_string();
  const auto ours = engine->allocate(kSize, Access::none);
  ASSERT_TRUE(ours);
  // Half of a bounded part first: tables that grow to their size and stay.
  const unsigned all = rounds(), first = std::min(all / 2, 2000u);
  Held before_here, before_there;
  for (unsigned i = 0; i < all; ++i) {
    if (i == first) {
      before_here = settled(Held::now(), Held::now);
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      before_here = Held::now();
      before_there = there();
    }
    const Status status = visit(*engine, *ours, address, 4096, true);
    ASSERT_TRUE(status) << "round " << i << ": " << status.to_string();
  }
  EXPECT_EQ(more(before_here, settled(before_here, Held::now), kHeapSlack), "") << "on this side";
  EXPECT_EQ(more(before_there, settled(before_there, there), kHeapSlack), "") << "on the other side";
}

TEST_P(Leaks, NothingOfAKilledPeerStays) {
  const std::string transport = GetParam();
  // Forks peers while it has one thread itself, and kills them.
  ChildProcess nursery([&](ChildProcess::Line& line) {
    while (!line.read().empty()) {
      const pid_t peer = ::fork();
      if (peer == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        stay(line, transport, [] { ::pause(); });
        ::_exit(0);
      }
      line.read();  // the word to kill
      ::kill(peer, SIGKILL);
      ::waitpid(peer, nullptr, 0);
      line.write("killed");
    }
  });
  auto engine = open_engine(options_of("outlives", transport));
  ASSERT_TRUE(engine) << engine.status().to_string();
  const auto ours = engine->allocate(kSize, Access::none);
  ASSERT_TRUE(ours);
  const unsigned all = std::max(8u, rounds() / 10);
  Held before;
  for (unsigned i = 0; i < all; ++i) {
    if (i == all / 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      before = Held::now();
    }
    nursery.write("another");
    const std::string address = nursery.read();
    const Status status = visit(*engine, *ours, address, 4096, false);
    ASSERT_TRUE(status) << "peer " << i << ": " << status.to_string();
    // In the middle of work, for every other one.
    std::vector<TransferId> under_way;
    if (i % 2 == 0) {
      const auto peer = engine->connect(address, kSoon);
      const auto remote = peer ? engine->lookup(*peer, "memory", kSoon) : Result<RemoteRegion>(peer.status());
      for (int k = 0; k < 8 && remote; ++k)
        if (const auto id = engine->write(*peer, Extent{{ours->id, 0, kSize}, {remote->id, 0}}))
          under_way.push_back(*id);
    }
    nursery.write("kill");
    ASSERT_EQ(nursery.read(), "killed");
    for (const TransferId id : under_way) EXPECT_TRUE(engine->wait(id, kSoon)) << "it ends, one way or the other";
  }
  EXPECT_EQ(more(before, settled(before, Held::now), kHeapSlack), "");
}

INSTANTIATE_TEST_SUITE_P(Over, Leaks, testing::Values("shm", "tcp"),
                         [](const auto& row) { return std::string(row.param); });

}  // namespace
}  // namespace fairway::leaks
