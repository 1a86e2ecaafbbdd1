// Networks that are slow, that delay and that swallow, with tcp's own lanes on simulated sockets: what is slow is not
// taken for dead, and what is swallowed is sent otherwise.
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fairway/engine.h"

#include "cluster.h"
#include "engine/open.h"
#include "sim/host.h"
#include "sim/simulation.h"
#include "transport/tcp/tcp.h"

namespace fairway::promises {
namespace {

constexpr std::uint64_t kMegabit = 125'000;  // bytes per second
constexpr Timeout kWithin = std::chrono::minutes(5);

struct OverTcp : testing::Test {
  struct Node {
    sim::Host* host = nullptr;
    std::vector<std::uint64_t> words;
    std::unique_ptr<Engine> engine;
    Region region;
    std::uint8_t* data() { return reinterpret_cast<std::uint8_t*>(words.data()); }
  };

  explicit OverTcp(std::chrono::milliseconds peer_timeout = EngineOptions().peer_timeout, std::size_t bytes = 4 << 20,
                   sim::SimulationOptions wanted = {})
      : simulation(options(std::move(wanted))) {
    for (Node* node : {&a, &b}) {
      node->words.resize(bytes / 8);
      node->host = &simulation.add_host();
      EngineOptions options;
      options.name = node == &a ? "a" : "b";
      options.listen = node->host->address() + ":7000";
      options.job_key = "a key for all";
      options.max_peers = 8;
      options.peer_timeout = peer_timeout;
      const std::string host = node->host->address();
      auto opened =
          EngineAccess::open(options, node->host->runtime(), [host](transport::RegionTable& regions, Runtime& runtime) {
            transport::TcpOptions tcp;
            tcp.listen_host = host;
            auto made = transport::open_tcp_transport(regions, runtime, tcp);
            EXPECT_TRUE(made) << made.status().to_string();
            std::vector<std::unique_ptr<transport::Transport>> transports;
            transports.push_back(std::move(*made));
            return transports;
          });
      EXPECT_TRUE(opened) << opened.status().to_string();
      node->engine = std::make_unique<Engine>(std::move(*opened));
      node->region = *node->engine->register_memory(node->data(), node->words.size() * 8, Access::all);
    }
    peer = *a.engine->connect(b.engine->address(), std::chrono::seconds(20));
    remote = *a.engine->import_region(peer, *b.engine->describe(b.region));
    simulation.run_until(simulation.now() + kSecond);  // all lanes are there
    for (std::size_t i = 0; i < a.words.size(); ++i) a.words[i] = i * 0x9e3779b97f4a7c15;
  }
  ~OverTcp() override {
    a.engine.reset();
    b.engine.reset();
  }
  static sim::SimulationOptions options(sim::SimulationOptions made) {
    made.stuck = [](const std::string& why) { ADD_FAILURE() << "stuck: " << why; };
    return made;
  }

  sim::Path& way(const Node& from, const Node& to) { return simulation.path(from.host->index(), to.host->index()); }
  Extent extent(std::uint64_t length) const { return {{a.region.id, 0, length}, {remote.id, 0}}; }
  Completion finish(const Result<TransferId>& id, Timeout within = kWithin) {
    EXPECT_TRUE(id) << id.status().to_string();
    if (!id) return {};
    const auto done = a.engine->wait(*id, within);
    EXPECT_TRUE(done) << done.status().to_string();
    return done ? *done : Completion{};
  }
  // What is said of the way that a write would take.
  std::string notes() {
    Request request;
    request.peer = peer;
    request.layout = extent(1 << 20);
    std::string text;
    const auto told = a.engine->explain(request);
    for (const std::string& note : told->notes) text += note + "\n";
    return text;
  }

  sim::Simulation simulation;
  Node a, b;
  PeerId peer;
  RemoteRegion remote;
};

TEST_F(OverTcp, ASlowPathTakesTheTimeOfItsWireAndLosesNoLink) {
  struct Wire {
    std::uint64_t bytes_per_second;
    Time delay;
  };
  for (const Wire& wire : {Wire{kMegabit, 0}, Wire{kMegabit, 150 * kMillisecond}, Wire{4 * kMegabit, kMillisecond}}) {
    SCOPED_TRACE(wire.bytes_per_second);
    for (sim::Path* path : {&way(a, b), &way(b, a)}) {
      path->bytes_per_second = wire.bytes_per_second;
      path->delay = wire.delay;
    }
    const std::uint64_t length = a.words.size() * 8;
    const Time at_best = length * kSecond / wire.bytes_per_second;
    std::fill(b.words.begin(), b.words.end(), 0);
    Time start = simulation.now();
    const auto write = a.engine->write(peer, extent(length));
    simulation.run_until(simulation.now() + kSecond);
    const auto sum = a.engine->fetch_add(peer, {remote.id, 0}, 0);  // on a link that is busy for half a minute
    const Completion added = finish(sum);
    EXPECT_TRUE(added.status) << added.status.to_string();
    const Completion wrote = finish(write);
    EXPECT_TRUE(wrote.status) << wrote.status.to_string();
    EXPECT_LT(simulation.now() - start, at_best + at_best * 3 / 10);
    EXPECT_EQ(a.engine->explain(*write)->retried_slices, 0u);
    EXPECT_EQ(a.words, b.words);

    std::fill(a.words.begin(), a.words.end(), 0);
    start = simulation.now();
    const auto read = a.engine->read(peer, extent(length));
    const Completion back = finish(read);
    EXPECT_TRUE(back.status) << back.status.to_string();
    EXPECT_LT(simulation.now() - start, at_best + at_best * 3 / 10);
    EXPECT_EQ(a.engine->explain(*read)->retried_slices, 0u);
    EXPECT_EQ(a.words, b.words);
  }
}

// Rate and round trip at their ends. One connection has a window's bytes on their way, at most: as Linux lets a socket
// grow (net.ipv4.tcp_wmem), so where rate x round trip is beyond that of all lanes, these are what bounds.
struct CornersOverTcp : OverTcp {
  static constexpr std::uint64_t kBytes = 32 << 20, kLanes = 2;
  static sim::SimulationOptions steady() {
    sim::SimulationOptions made;
    made.steady_ways = true;
    return made;
  }
  CornersOverTcp() : OverTcp(EngineOptions().peer_timeout, kBytes, steady()) {}
};
TEST_F(CornersOverTcp, ATransferTakesTheTimeOfItsWireOrOfItsWindows) {
  for (const std::uint64_t rate : {kMegabit, 1000 * kMegabit, 100'000 * kMegabit, 1'000'000 * kMegabit})
    for (const Time trip : {Time{0}, 10 * kMillisecond, 100 * kMillisecond, 300 * kMillisecond}) {
      SCOPED_TRACE(testing::Message() << rate / kMegabit << " Mbit/s, " << trip / kMillisecond << " ms");
      for (sim::Path* path : {&way(a, b), &way(b, a)}) {
        path->bytes_per_second = rate;
        path->delay = trip / 2;
      }
      const std::uint64_t length = rate == kMegabit ? 2 << 20 : kBytes;
      const Time whole_trip = trip + 10 * kMicrosecond;  // what the simulator's empty way takes
      const Time by_wire = length * kSecond / rate;
      const Time by_windows = length * whole_trip / (kLanes * simulation.most_window());
      const Time at_best = whole_trip + std::max(by_wire, by_windows);
      for (const bool reads : {false, true}) {
        const Time start = simulation.now();
        const auto id = reads ? a.engine->read(peer, extent(length)) : a.engine->write(peer, extent(length));
        const Completion done = finish(id);
        EXPECT_TRUE(done.status) << done.status.to_string();
        const Time took = simulation.now() - start;
        EXPECT_LT(took, at_best + at_best * 3 / 10) << (reads ? "read" : "write");
        EXPECT_GT(took, at_best - at_best / 10) << (reads ? "read" : "write") << ": no wire does that";
        EXPECT_EQ(a.engine->explain(*id)->retried_slices, 0u);
      }
    }
}

// The connection of control is there still, and small frames pass: only what is long never arrives.
TEST_F(OverTcp, WhereLongSegmentsAreSwallowedTheNextConnectionUsesShortOnes) {
  for (const bool out : {true, false}) {
    SCOPED_TRACE(out);
    sim::Path& path = out ? way(a, b) : way(b, a);
    path.longest = 1400;
    const Time start = simulation.now();
    const auto id = out ? a.engine->write(peer, extent(1 << 20)) : a.engine->read(peer, extent(1 << 20));
    const Completion done = finish(id, std::chrono::seconds(30));
    EXPECT_TRUE(done.status) << done.status.to_string();
    EXPECT_LT(simulation.now() - start, 3 * kSecond) << "once, and not for each lane";
    EXPECT_NE(notes().find("in segments of 1024 bytes"), std::string::npos) << notes();
    path.longest = 0;
    if (!out) break;
    // From the other end's side: who dialed is told.
    ASSERT_TRUE(a.engine->disconnect(peer));
    simulation.run_until(simulation.now() + kSecond);
    peer = *a.engine->connect(b.engine->address(), std::chrono::seconds(20));
    remote = *a.engine->import_region(peer, *b.engine->describe(b.region));
    simulation.run_until(simulation.now() + kSecond);
  }
}

struct PatientOverTcp : OverTcp {
  PatientOverTcp() : OverTcp(std::chrono::minutes(1)) {}
};
TEST_F(PatientOverTcp, ASwallowingWayIsKnownLongBeforeThePeerTimeout) {
  way(a, b).longest = 1400;
  const Time start = simulation.now();
  const Completion done = finish(a.engine->write(peer, extent(1 << 20)));
  EXPECT_TRUE(done.status) << done.status.to_string();
  EXPECT_LT(simulation.now() - start, 8 * kSecond);
}

TEST_F(OverTcp, WhereEverythingLongIsSwallowedTransfersEndWithTheReason) {
  way(a, b).longest = 700;
  const Completion done = finish(a.engine->write(peer, extent(1 << 20)), std::chrono::seconds(30));
  EXPECT_EQ(done.status.code(), ErrorCode::link_failed);
  EXPECT_NE(done.status.message().find("MTU"), std::string::npos) << done.status.to_string();
  way(a, b).longest = 0;
  simulation.run_until(simulation.now() + 5 * kSecond);
  EXPECT_TRUE(finish(a.engine->write(peer, extent(1 << 20)), std::chrono::seconds(30)).status) << "it is well again";
}

TEST_F(OverTcp, ALookupInSlicesShorterThanTheRoundTripSucceeds) {
  way(a, b).delay = way(b, a).delay = 100 * kMillisecond;
  ASSERT_TRUE(b.engine->publish("inbox", b.region));
  const Time start = simulation.now();
  Result<RemoteRegion> found = Status(ErrorCode::timed_out, "");
  while (found.status().code() == ErrorCode::timed_out && simulation.now() - start < 10 * kSecond)
    found = a.engine->lookup(peer, "inbox", std::chrono::milliseconds(50));
  EXPECT_TRUE(found) << found.status().to_string();
  EXPECT_LT(simulation.now() - start, kSecond);
}

// Nobody hears the one side, which hears the other.
TEST_F(OverTcp, ACutInOneDirectionEndsTheSessionOnBothSides) {
  way(a, b).cut = true;
  const auto id = a.engine->write(peer, extent(4096));
  const Completion done = finish(id, std::chrono::seconds(20));
  EXPECT_FALSE(done.status);
  const auto down = [](Node& node) {
    std::vector<PeerEvent> events(32);
    const std::size_t count = node.engine->poll_peer_events(events);
    for (std::size_t i = 0; i < count; ++i)
      if (events[i].kind == PeerEvent::Kind::down) return true;
    return false;
  };
  bool here = false, there = false;
  EXPECT_TRUE(simulation.run_until(simulation.now() + 10 * kSecond, [&] {
    here = here || down(a);
    there = there || down(b);
    return here && there;
  }));
}

// What the simulator's NICs do to those who share one: many that write to it, and many that read from it.
TEST(SharedNic, TakesTheTimeOfAllThatGoesThroughIt) {
  constexpr std::uint64_t kRate = 100'000'000, kLength = 32 * 1024, kTimes = 8, kOthers = 3;
  for (const bool reads : {false, true}) {
    SCOPED_TRACE(reads);
    Cluster cluster;
    Cluster::Node& shared = cluster.add({nic(kRate)});
    std::vector<Cluster::Node*> others;
    std::vector<Cluster::Road> roads;
    for (std::uint64_t i = 0; i < kOthers; ++i) {
      others.push_back(&cluster.add({nic(kRate)}));
      roads.push_back(cluster.connect(*others.back(), shared));
    }
    const Time start = cluster.simulation().now();
    std::vector<std::pair<Cluster::Node*, Result<TransferId>>> all;
    for (std::uint64_t i = 0; i < kOthers * kTimes; ++i) {
      Cluster::Node& other = *others[i % kOthers];
      const auto& road = roads[i % kOthers];
      const Extent extent = Cluster::extent(other, road, 0, 0, kLength);
      all.emplace_back(&other, reads ? other.engine->read(road.peer, extent) : other.engine->write(road.peer, extent));
    }
    for (const auto& [node, id] : all) EXPECT_TRUE(cluster.finish(*node, id).status);
    EXPECT_GT(cluster.simulation().now() - start, kOthers * kTimes * kLength * kSecond / kRate * 9 / 10);
  }
}

}  // namespace
}  // namespace fairway::promises
