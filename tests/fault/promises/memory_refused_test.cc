// A NIC refuses memory that it cannot pin. The region still exists for every other link, routes avoid the NIC on either
// side, and explain() says why.
#include <string>
#include <vector>

#include "cluster.h"
#include "relay.h"

namespace fairway::promises {
namespace {

// Peers access its regions by keys. Refuses regions of one size.
class SmallNic : public Relay {
 public:
  struct Count {
    int registered = 0, deregistered = 0;
  };
  SmallNic(std::unique_ptr<transport::Transport> below, std::size_t refused, Count& count)
      : Relay(std::move(below), "keyed"), refused_(refused), count_(count) {
    for (transport::Device& device : devices_) {
      device.name = "small";
      device.capabilities.needs_keys = true;
    }
  }
  Result<transport::RegisteredMemory> register_memory(const Region& memory, const MemorySource& source) override {
    if (memory.size_bytes == refused_) return Status(ErrorCode::resource_exhausted, "cannot pin it: ulimit -l");
    auto made = Relay::register_memory(memory, source);
    if (made) made->keys = {{std::byte{7}}};
    count_.registered += made ? 1 : 0;
    return made;
  }
  void deregister(std::uint64_t handle) override {
    ++count_.deregistered;
    Relay::deregister(handle);
  }
  Result<std::uint64_t> import(transport::PeerIndex peer, const transport::RemoteMemory& memory,
                               std::span<const std::vector<std::byte>> keys) override {
    if (keys.size() != 1) return Status(ErrorCode::invalid_argument, "no key");
    return Relay::import(peer, memory, {});
  }

 private:
  const std::size_t refused_;
  Count& count_;
};

struct MemoryRefused : testing::Test {
  Cluster::Node& add(std::size_t refused, const Cluster::Wrap& other = {}) {
    return cluster.add({nic()}, {}, other, [this, refused](auto below) {
      return std::make_unique<SmallNic>(std::move(below), refused, count);
    });
  }
  // The link that carried a transfer, from explain().
  std::string taken(Cluster::Node& node, TransferId id) {
    std::string names;
    const auto told = node.engine->explain(id);
    if (!told) return told.status().to_string();
    for (const ExplainedLink& link : told->links)
      if (link.taken) names += link.name.substr(0, link.name.find('/'));
    return names;
  }
  std::string why_not(Cluster::Node& node, const Request& request) {
    const auto told = node.engine->explain(request);
    if (!told) return told.status().to_string();
    for (const ExplainedLink& link : told->links)
      if (link.name.starts_with("keyed/")) return link.taken ? "taken" : link.reason;
    return "no such link";
  }

  SmallNic::Count count;
  Cluster cluster;
};

TEST_F(MemoryRefused, OfThisSideGoesAnotherWay) {
  auto& a = add(Cluster::kBytes);
  auto& b = add(0);
  const auto road = cluster.connect(a, b);
  cluster.verify_links(a, road.peer);
  std::fill_n(a.data(), 3000, std::uint8_t{9});
  const Extent extent = Cluster::extent(a, road, 0, 100, 3000);
  const auto id = a.engine->write(road.peer, extent);
  ASSERT_TRUE(cluster.finish(a, id).status);
  EXPECT_EQ(b.data()[3099], 9);
  EXPECT_EQ(taken(a, *id), "loopback");
  Request request;
  request.peer = road.peer;
  request.layout = extent;
  EXPECT_NE(why_not(a, request).find("ulimit -l"), std::string::npos) << why_not(a, request);
  // Other memory of the same side still uses the NIC.
  std::vector<std::uint64_t> words(100, 5);
  const auto region = a.engine->register_memory(words.data(), 800, Access::none);
  ASSERT_TRUE(region);
  const auto other = a.engine->write(road.peer, Extent{{region->id, 0, 800}, {road.memory.id, 0}});
  ASSERT_TRUE(cluster.finish(a, other).status);
  EXPECT_EQ(taken(a, *other), "keyed");
}

TEST_F(MemoryRefused, OfThePeerGoesAnotherWay) {
  auto& a = add(0);
  auto& b = add(Cluster::kBytes);
  const auto road = cluster.connect(a, b);
  cluster.verify_links(a, road.peer);
  for (const bool outwards : {true, false}) {
    const Extent extent = Cluster::extent(a, road, 0, 100, 3000);
    const auto id = outwards ? a.engine->write(road.peer, extent) : a.engine->read(road.peer, extent);
    ASSERT_TRUE(cluster.finish(a, id).status);
    EXPECT_EQ(taken(a, *id), "loopback");
  }
  EXPECT_TRUE(cluster.finish(a, a.engine->fetch_add(road.peer, {road.memory.id, 8}, 1)).status);
  Request request;
  request.peer = road.peer;
  request.layout = Cluster::extent(a, road, 0, 0, 8);
  EXPECT_NE(why_not(a, request).find("the peer's memory"), std::string::npos) << why_not(a, request);
}

TEST_F(MemoryRefused, MessagesArriveInItAllTheSame) {
  constexpr std::size_t kMessage = 20'000;  // announced, then written into a window of that size
  auto& a = add(0);
  auto& b = add(kMessage);
  const auto road = cluster.connect(a, b);
  const auto back = cluster.connect(b, a);
  std::fill_n(a.data(), kMessage, std::uint8_t{3});
  const auto received = b.engine->receive(back.peer, 4, {b.region.id, 0, kMessage});
  const auto sent = a.engine->send(road.peer, 4, {a.region.id, 0, kMessage});
  EXPECT_TRUE(cluster.finish(a, sent).status);
  EXPECT_TRUE(cluster.finish(b, received).status);
  EXPECT_EQ(b.data()[kMessage - 1], 3);
  EXPECT_EQ(taken(a, *sent), "loopback");
}

// A transport that takes no part in that memory, and neither do peers that know the region only by its id.
class Refuses : public Relay {
 public:
  using Relay::Relay;
  Result<transport::RegisteredMemory> register_memory(const Region& memory, const MemorySource& source) override {
    if (memory.size_bytes == 800) return Status(ErrorCode::resource_exhausted, "its table is full");
    return Relay::register_memory(memory, source);
  }
};

TEST_F(MemoryRefused, ByOneWhosePeersCannotSeeItEndsRegistrationAndLeavesNothing) {
  auto& a = add(0, [](auto below) { return std::make_unique<Refuses>(std::move(below)); });
  std::vector<std::uint64_t> words(100);
  const SmallNic::Count before = count;
  const std::uint32_t slots = EngineOptions().max_regions;
  for (std::uint32_t i = 0; i < slots + 1; ++i) {
    const auto region = a.engine->register_memory(words.data(), 800, Access::all);
    ASSERT_FALSE(region);
    ASSERT_NE(region.status().message().find("its table is full"), std::string::npos) << region.status().to_string();
  }
  EXPECT_EQ(count.registered - before.registered, static_cast<int>(slots) + 1);
  EXPECT_EQ(count.deregistered - before.deregistered, static_cast<int>(slots) + 1);
}

}  // namespace
}  // namespace fairway::promises
