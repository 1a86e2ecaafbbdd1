// Several threads at once on an engine whose peer's process is killed in the middle of it: what was accepted ends, each
// wait ends, nothing is left behind, and the engine serves its next peer.
#include <functional>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "mortal.h"
#include "pair.h"
#include "process/control/child_process.h"
#include "sys/system_runtime.h"

namespace fairway::threads {
namespace {

using control::ChildProcess;

EngineOptions options_of(const std::string& name, const std::string& transport) {
  EngineOptions options;
  options.name = name;
  options.transports = {transport};
  if (transport == "cuda") options.transports = {"shm", "cuda"};
  options.providers = {"tcp"};  // of fabric
  options.max_transfers = kTransfers;
  return options;
}

// Where transfers begin and end: the engine's own memory, or with cuda that of a GPU.
struct Place {
  Place(const std::string& transport, int gpu) {
    if (transport != "cuda") return;
    driver.emplace();
    memory.emplace(kLent, gpu);
  }
  Result<Region> in(Engine& engine) const {
    return memory ? engine.register_memory(memory->address(), memory->bytes().size(), Access::all)
                  : engine.allocate(kLent, Access::all);
  }
  std::optional<StandInDriver> driver;
  std::optional<Memory> memory;
};

// Lends memory, and takes what is sent under tag 1, until it is killed.
void serve(ChildProcess::Line& line, const std::string& transport) {
  const Place place(transport, 1);
  auto engine = Engine::open(options_of("dies", transport));
  const auto region = engine ? place.in(*engine) : Result<Region>(engine.status());
  if (!region || !engine->publish("memory", *region)) return line.write(region.status().to_string());
  line.write(engine->address());
  for (;;) {
    const auto id = engine->receive({}, 1, {region->id, kTaken, kArea});
    if (!id || !engine->wait(*id)) return;
  }
}

struct Side {
  Engine& engine;
  PeerId peer;
  Region region;
  RemoteRegion remote;
};

// One accepted transfer, which must end. False: the peer is gone.
bool act(const Side& side, std::size_t number, std::mt19937_64& random) {
  const std::uint64_t bytes = 1 + random() % kArea, at = number * kArea;
  const Extent extent{{side.region.id, at, bytes}, {side.remote.id, at}};
  RequestOptions options;
  options.local_completion = random() % 2 == 0;
  const auto id = random() % 3 == 0   ? side.engine.send(side.peer, 1, extent.local, options)
                  : random() % 2 == 0 ? side.engine.read(side.peer, extent)
                                      : side.engine.write(side.peer, extent);
  if (!id) return id.status().code() == ErrorCode::queue_full;
  const std::vector<TransferId> one{*id};
  switch (random() % 4) {
    case 0: EXPECT_NE(side.engine.flush(side.peer, kEver).code(), ErrorCode::timed_out); break;
    case 1: EXPECT_NE(side.engine.drain(kEver).code(), ErrorCode::timed_out); break;
    case 2: (void)side.engine.cancel(*id, Timeout(100)); break;
    default: break;
  }
  const auto done = side.engine.wait_any(one, kEver);
  EXPECT_TRUE(done) << "accepted, and never completed: " << done.status().to_string();
  EXPECT_EQ(side.engine.wait(*id, Timeout(0)).status().code(), ErrorCode::not_found) << "it completed twice";
  return done && (done->status || done->status.code() == ErrorCode::cancelled);
}

// Threads on `engine` and a peer that is killed in the middle of what they do.
void lose_one(Engine& engine, const Region& region, const std::string& address, const std::function<void()>& kill) {
  const auto peer = engine.connect(address, kEver);
  ASSERT_TRUE(peer) << address << ": " << peer.status().to_string();
  const auto remote = engine.lookup(*peer, "memory", kEver);
  ASSERT_TRUE(remote) << remote.status().to_string();
  const Side side{engine, *peer, region, *remote};
  std::atomic<std::size_t> acts{0};
  std::random_device truly;
  std::vector<std::thread> threads;
  for (std::size_t number = 0; number < kThreads; ++number)
    threads.emplace_back([&side, &acts, number, seed = truly()] {
      std::mt19937_64 random(seed);
      while (act(side, number, random)) ++acts;
    });
  const auto until = std::chrono::steady_clock::now() + kEver;
  while (acts < 200 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_GE(acts, 200U);
  kill();
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(engine.drain(kEver));
  EXPECT_EQ(engine.metrics().transfers_in_use, 0U);
}

constexpr std::size_t kPeers = 3;

class Killed : public testing::TestWithParam<const char*> {};

TEST_P(Killed, PeersLeaveNothingThatDoesNotEnd) {
  std::vector<std::unique_ptr<ChildProcess>> peers;  // forked before this process has threads
  std::vector<std::string> addresses;
  for (std::size_t i = 0; i < kPeers; ++i)
    peers.push_back(std::make_unique<ChildProcess>([](ChildProcess::Line& line) { serve(line, GetParam()); }));
  for (const auto& peer : peers) addresses.push_back(peer->read());
  const Place place(GetParam(), 0);
  auto engine = Engine::open(options_of("stays", GetParam()));
  if (!engine && engine.status().code() == ErrorCode::unsupported) GTEST_SKIP() << engine.status().to_string();
  ASSERT_TRUE(engine) << engine.status().to_string();
  const auto region = place.in(*engine);
  ASSERT_TRUE(region) << region.status().to_string();
  for (std::size_t i = 0; i < kPeers; ++i) lose_one(*engine, *region, addresses[i], [&] { peers[i]->kill(); });
  EXPECT_TRUE(engine->deregister(*region, kEver));
}

INSTANTIATE_TEST_SUITE_P(Over, Killed, testing::Values("shm", "tcp", "fabric"),
                         [](const auto& each) { return std::string(each.param); });
#ifndef __SANITIZE_THREAD__  // which takes a GPU's two mappings of a memory for two memories
INSTANTIATE_TEST_SUITE_P(OverGpus, Killed, testing::Values("cuda"),
                         [](const auto& each) { return std::string(each.param); });
#endif

TEST(KilledOnNics, PeersLeaveNothingThatDoesNotEnd) {
  sys::SystemRuntime system;
  Runtime runtime = system.runtime();
  std::vector<std::unique_ptr<Mortal>> peers;
  auto engine = open_on_nic(options_of("stays", "verbs"), "nic0", runtime);
  ASSERT_TRUE(engine) << engine.status().to_string();
  const auto region = engine->allocate(kThreads * kArea, Access::all);
  ASSERT_TRUE(region) << region.status().to_string();
  for (std::size_t i = 0; i < kPeers; ++i) {
    auto peer = Mortal::open(options_of("dies", "verbs"));
    ASSERT_TRUE(peer) << peer.status().to_string();
    peers.push_back(std::move(*peer));
    lose_one(*engine, *region, peers[i]->address(),
             [&] { EXPECT_GE(peers[i]->die(), 2U) << "it listens, and has a connection"; });
  }
  EXPECT_TRUE(engine->deregister(*region, kEver));
  engine->close();
}

}  // namespace
}  // namespace fairway::threads
