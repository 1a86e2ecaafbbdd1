// Promise 12, checks: an end-to-end checksum can be switched on, and a path is proven by writing and reading back on
// our own scratch memory before it is trusted. Tried here: a transport that spoils bytes on the way, in either
// direction and of messages too, with and without the checksum; links that lie from the first byte on, or from the
// second epoch on.
#include <functional>
#include <unordered_map>
#include <vector>

#include "cluster.h"
#include "nodes.h"
#include "relay.h"

namespace fairway::promises {
namespace {

using transport::Event;
using transport::EventKind;
using transport::Op;

// What it may do to the memories of a slice that is done, before the engine hears of it.
using Spoil = std::function<void(const transport::Slice&)>;

class Faulty final : public Relay {
 public:
  Faulty(std::unique_ptr<transport::Transport> below, Spoil spoil)
      : Relay(std::move(below)), spoil_(std::move(spoil)) {}
  std::size_t post(std::span<const transport::Slice> slices) override {
    const std::size_t taken = below_->post(slices);
    for (const transport::Slice& slice : slices.first(taken)) posted_[slice.token] = slice;
    return taken;
  }
  std::size_t poll(std::span<Event> events, Time now) override {
    const std::size_t count = below_->poll(events, now);
    for (const Event& event : events.first(count))
      if (event.kind == EventKind::done && posted_.contains(event.token)) spoil_(posted_[event.token]);
    return count;
  }

 private:
  Spoil spoil_;
  std::unordered_map<transport::SliceToken, transport::Slice> posted_;
};

Cluster::Wrap faulty(Spoil spoil) {
  return [spoil](std::unique_ptr<transport::Transport> below) {
    return std::make_unique<Faulty>(std::move(below), spoil);
  };
}

TEST(Checks, AByteThatWasSpoiledOnTheWayIsFoundWhereverItIs) {
  std::uint8_t* target = nullptr;  // spoiled when a write or read is done; outlives the cluster
  Cluster cluster;
  auto& a = cluster.add({nic()}, {}, faulty([&](const transport::Slice& slice) {
                          if (target != nullptr && slice.op != Op::message && slice.length > 64) *target ^= 1;
                        }));
  auto& b = cluster.add({nic()});
  const auto road = cluster.connect(a, b);
  std::memset(a.data(), 0x33, Cluster::kBytes);
  RequestOptions checked;
  checked.checksum = true;
  const Extent extent = Cluster::extent(a, road, 100, 200, 30'000);
  EXPECT_TRUE(cluster.finish(a, a.engine->write(road.peer, extent, checked)).status);
  for (const std::size_t at : {std::size_t{200}, std::size_t{15'000}, std::size_t{30'199}}) {
    target = b.data() + at;
    const Completion done = cluster.finish(a, a.engine->write(road.peer, extent, checked));
    EXPECT_EQ(done.status.code(), ErrorCode::checksum_mismatch) << at;
    EXPECT_FALSE(done.status.peer().empty());
    EXPECT_NE(done.status.effect(), Effect::not_applied);
    EXPECT_TRUE(cluster.finish(a, a.engine->write(road.peer, extent)).status) << "nobody asked";
    target = a.data() + at - 100;
    EXPECT_EQ(cluster.finish(a, a.engine->read(road.peer, extent, checked)).status.code(),
              ErrorCode::checksum_mismatch);
    target = nullptr;
    std::memset(a.data(), 0x33, Cluster::kBytes);
    EXPECT_TRUE(cluster.finish(a, a.engine->write(road.peer, extent, checked)).status);
    EXPECT_TRUE(cluster.finish(a, a.engine->read(road.peer, extent, checked)).status);
  }
}

TEST(Checks, ASpoiledWriteDoesNotNotify) {
  std::uint8_t* target = nullptr;
  Cluster cluster;
  auto& a = cluster.add({nic()}, {}, faulty([&](const transport::Slice& slice) {
                          if (target != nullptr && slice.op != Op::message) *target ^= 1;
                        }));
  auto& b = cluster.add({nic()});
  const auto road = cluster.connect(a, b);
  target = b.data();
  RequestOptions options;
  options.checksum = true;
  options.notify = notify_counter(5);
  const auto id = a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 64), options);
  EXPECT_EQ(cluster.finish(a, id).status.code(), ErrorCode::checksum_mismatch);
  cluster.run(100 * kMillisecond);
  EXPECT_EQ(b.engine->counter(5), 0u);
}

TEST(Checks, PagesAndMessagesAreCheckedToo) {
  std::uint8_t* target = nullptr;
  Cluster cluster;
  auto& a = cluster.add({nic()}, {}, faulty([&](const transport::Slice& slice) {
                          if (target != nullptr && slice.op != Op::message) *target ^= 1;
                        }));
  auto& b = cluster.add({nic()});
  const auto road = cluster.connect(a, b);
  const auto back = b.engine->connect(a.engine->address(), Cluster::kWithin);
  RequestOptions checked;
  checked.checksum = true;
  const std::uint64_t near_index[] = {0, 1, 2, 3}, far_index[] = {7, 5, 3, 1};
  const Paged pages{a.region.id, road.memory.id, 512, 512, 512, near_index, far_index};
  EXPECT_TRUE(cluster.finish(a, a.engine->write(road.peer, pages, checked)).status);
  target = b.data() + 3 * 512 + 17;
  EXPECT_EQ(cluster.finish(a, a.engine->write(road.peer, pages, checked)).status.code(), ErrorCode::checksum_mismatch);
  target = b.data() + 40'000 + 5;
  const auto receive = b.engine->receive(*back, 1, {b.region.id, 40'000, 1000});
  const auto send = a.engine->send(road.peer, 1, {a.region.id, 0, 300}, checked);
  EXPECT_EQ(cluster.finish(a, send).status.code(), ErrorCode::checksum_mismatch);
  EXPECT_FALSE(cluster.finish(b, receive).status) << "the receiver must not take what the sender knows to be spoiled";
}

TEST(Checks, APathThatSpoilsItsProofIsNeverTrusted) {
  Cluster cluster;
  auto& a = cluster.add({nic()}, {}, faulty([](const transport::Slice& slice) {
                          if (slice.op == Op::read) slice.local[0] ^= std::byte{1};
                        }));
  auto& b = cluster.add({nic()});
  const auto peer = a.engine->connect(b.engine->address(), std::chrono::milliseconds(500));
  EXPECT_FALSE(peer);
  std::array<PeerEvent, 8> events;
  std::size_t count = a.engine->poll_peer_events(events);
  ASSERT_GT(count, 0u);
  const auto lines = a.engine->explain(events[0].peer);
  ASSERT_TRUE(lines);
  EXPECT_NE(lines->text().find("the proof read back other bytes than it wrote"), std::string::npos) << lines->text();
  for (std::size_t i = 0; i < count; ++i) EXPECT_NE(events[i].kind, PeerEvent::Kind::link_up);
}

TEST(Checks, ABadPathBesideAGoodOneCarriesNothing) {
  transport::LinkId bad{~0u, 0};
  Cluster cluster;
  auto& a = cluster.add({nic(), nic()}, {}, faulty([&](const transport::Slice& slice) {
                          if (bad.slot == ~0u) bad = slice.link;
                          if (slice.link.slot == bad.slot && slice.op == Op::read) slice.local[0] ^= std::byte{1};
                        }));
  auto& b = cluster.add({nic(), nic()});
  const auto road = cluster.connect(a, b);
  std::memset(b.data(), 0x44, Cluster::kBytes);
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(cluster.finish(a, a.engine->read(road.peer, Cluster::extent(a, road, 0, 0, 60'000))).status);
    for (std::size_t k = 0; k < 60'000; ++k) ASSERT_EQ(a.data()[k], 0x44);
  }
  std::size_t up = 0;
  for (const LinkMetrics& link : a.engine->metrics().links) up += link.up;
  EXPECT_EQ(up, 1u);
}

TEST(Checks, MessageOnlyPathsAreProvenByAnEcho) {
  Cluster cluster;
  auto& a = cluster.add({message_nic()});
  auto& b = cluster.add({message_nic()});
  const auto road = cluster.connect(a, b);
  a.data()[0] = 7;
  EXPECT_TRUE(cluster.finish(a, a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 8))).status);
  EXPECT_EQ(b.data()[0], 7);
}

}  // namespace
}  // namespace fairway::promises
