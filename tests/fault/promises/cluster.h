#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fairway/engine.h"

#include "engine/open.h"
#include "sim/fabric.h"
#include "sim/host.h"
#include "sim/simulation.h"
#include "transport/loopback/direct_wire.h"
#include "transport/loopback/loopback.h"

// Engines on simulated hosts, in virtual time, with faults on request. One thread.
namespace fairway::promises {

using sim::NicDevice;

template <class... Bits>
constexpr std::uint8_t mask(Bits... bits) {
  return static_cast<std::uint8_t>((0u | ... | static_cast<unsigned>(bits)));
}

// How many of a thousand small slices a NIC takes at once, so that the short path does them: the suite runs with none
// and with all.
inline std::uint32_t at_once_per_mille() {
  const char* const told = std::getenv("FAIRWAY_TEST_AT_ONCE");
  return told == nullptr ? 0 : static_cast<std::uint32_t>(std::stoul(told));
}

// A NIC with every capability and without loss.
inline NicDevice nic(std::uint64_t bytes_per_second = 1'000'000'000) {
  NicDevice device;
  device.device = transport::loopback::DirectWire::default_device();
  device.device.bytes_per_second = bytes_per_second;
  device.nature.at_once_per_mille = at_once_per_mille();
  if (device.nature.at_once_per_mille != 0) {  // as between processes that share memory
    device.device.capabilities.visible_when_done = true;
    device.device.capabilities.ordered = true;
  }
  return device;
}

// A NIC that supports only messages: the peer's engine executes every operation.
inline NicDevice message_nic() {
  NicDevice device = nic();
  device.device.capabilities.operations = mask(transport::Op::message);
  return device;
}

class Cluster {
 public:
  static constexpr std::size_t kBytes = 64 * 1024;

  struct Node {
    sim::Host* host = nullptr;
    std::size_t place = 0;
    std::vector<std::uint64_t> words = std::vector<std::uint64_t>(kBytes / 8);
    std::unique_ptr<Engine> engine;
    Region region;
    std::uint8_t* data() { return reinterpret_cast<std::uint8_t*>(words.data()); }
  };
  // Wraps an engine's transport.
  using Wrap = std::function<std::unique_ptr<transport::Transport>(std::unique_ptr<transport::Transport>)>;

  explicit Cluster(std::uint64_t seed = 1) : simulation_(options(seed, this)), fabric_(simulation_) {}
  // The machine model that engines opened from now on see.
  void set_machine(engine::MachineDiscovery::Source machine) { machine_ = std::move(machine); }
  ~Cluster() {
    for (const auto& node : nodes_) {
      node->host->dead() ? node->host->bury() : node->host->thaw();
    }
    for (const auto& node : nodes_) node->engine.reset();
  }

  // `preferred`: a second transport over the same devices, ranked before the first one.
  Node& add(std::vector<NicDevice> devices, EngineOptions given = {}, const Wrap& wrap = {},
            const Wrap& preferred = {}) {
    return open(nodes_.size(), std::move(devices), std::move(given), wrap, preferred);
  }
  // Starts a new incarnation of a killed host.
  Node& restart(const Node& dead, std::vector<NicDevice> devices, EngineOptions given = {}) {
    return open(dead.place, std::move(devices), std::move(given), {}, {});
  }
  void kill(Node& node) {
    node.host->kill();
    fabric_.host_killed(*node.host);
  }

  struct Road {
    PeerId peer;
    RemoteRegion memory;
  };
  Road connect(Node& from, Node& to, Access = Access::all) {
    const auto peer = from.engine->connect(to.engine->address(), kWithin);
    EXPECT_TRUE(peer) << peer.status().to_string();
    if (!peer) return {};
    const auto memory = from.engine->import_region(*peer, *to.engine->describe(to.region));
    EXPECT_TRUE(memory) << memory.status().to_string();
    return {*peer, memory ? *memory : RemoteRegion{}};
  }
  static Extent extent(const Node& from, const Road& road, std::uint64_t local, std::uint64_t far,
                       std::uint64_t length) {
    return {{from.region.id, local, length}, {road.memory.id, far}};
  }
  Completion finish(Node& node, const Result<TransferId>& id) {
    EXPECT_TRUE(id) << id.status().to_string();
    if (!id) return {};
    auto completion = node.engine->wait(*id, kWithin);
    EXPECT_TRUE(completion) << completion.status().to_string();
    return completion ? *completion : Completion{};
  }

  sim::Simulation& simulation() { return simulation_; }
  sim::Fabric& fabric() { return fabric_; }
  // Until none of the links to the peer is on its way: microseconds decide which of them is verified first.
  void verify_links(Node& node, PeerId peer) {
    EXPECT_TRUE(run_until(kSecond, [&] {
      const auto told = node.engine->explain(peer);
      return told && std::ranges::none_of(told->links, [](const ExplainedLink& link) {
               return link.reason == "not verified yet" || link.reason == "not connected yet";
             });
    }));
  }
  void run(Time time) { simulation_.run_until(simulation_.now() + time); }
  template <class Done>
  bool run_until(Time limit, Done done) {
    return simulation_.run_until(simulation_.now() + limit, done);
  }

  static constexpr Timeout kWithin = std::chrono::seconds(20);  // of virtual time

 private:
  static sim::SimulationOptions options(std::uint64_t seed, Cluster*) {
    sim::SimulationOptions made;
    made.seed = seed;
    made.stuck = [](const std::string& why) { ADD_FAILURE() << "stuck: " << why; };
    return made;
  }
  Node& open(std::size_t place, std::vector<NicDevice> devices, EngineOptions given, const Wrap& wrap,
             const Wrap& preferred) {
    auto node = std::make_unique<Node>();
    node->host = &simulation_.add_host(place);
    node->place = place;
    for (std::size_t i = 0; i < devices.size(); ++i) devices[i].device.name = "nic" + std::to_string(i);
    auto loopback = fabric_.plug_in(*node->host, std::move(devices));
    given.name = given.name.empty() ? "n" + std::to_string(nodes_.size()) : given.name;
    given.listen = node->host->address() + ":7000";
    if (given.job_key.empty()) given.job_key = "a key for all";
    given.max_peers = std::min<std::uint32_t>(given.max_peers, 64);
    auto opened = EngineAccess::open(
        given, node->host->runtime(),
        [&](transport::RegionTable& regions, Runtime& runtime) {
          std::vector<std::unique_ptr<transport::Transport>> transports;
          if (preferred)
            transports.push_back(preferred(transport::open_loopback_transport(loopback, regions, runtime)));
          transports.push_back(transport::open_loopback_transport(loopback, regions, runtime));
          if (wrap) transports.back() = wrap(std::move(transports.back()));
          return transports;
        },
        machine_);
    EXPECT_TRUE(opened) << opened.status().to_string();
    node->engine = std::make_unique<Engine>(std::move(*opened));
    auto region = node->engine->register_memory(node->words.data(), kBytes, Access::all);
    EXPECT_TRUE(region) << region.status().to_string();
    node->region = *region;
    nodes_.push_back(std::move(node));
    return *nodes_.back();
  }

  sim::Simulation simulation_;
  sim::Fabric fabric_;
  engine::MachineDiscovery::Source machine_;
  std::vector<std::unique_ptr<Node>> nodes_;
};

}  // namespace fairway::promises
