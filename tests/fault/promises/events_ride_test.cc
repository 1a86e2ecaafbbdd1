// Events carried by their own write (src/engine/messages/notifier.h): one message instead of three, where the
// data's acknowledgement and a message after it would be needed. The target gets each event once, whatever breaks, and
// no credit is lost with a write.
#include <array>
#include <map>
#include <string>
#include <vector>

#include "cluster.h"
#include "relay.h"

namespace fairway::promises {
namespace {

using transport::Op;

// Records what is posted, in order. Accepts no messages while they are held.
class RecordingRelay : public Relay {
 public:
  RecordingRelay(std::unique_ptr<transport::Transport> below, std::vector<Op>& ops, const bool& holds)
      : Relay(std::move(below)), ops_(ops), holds_(holds) {}
  std::size_t post(std::span<const transport::Slice> slices) override {
    if (holds_ && slices.front().op == Op::message) return 0;
    const std::size_t taken = Relay::post(slices);
    for (const transport::Slice& slice : slices.first(taken)) ops_.push_back(slice.op);
    return taken;
  }

 private:
  std::vector<Op>& ops_;
  const bool& holds_;
};

struct EventsRide : testing::Test {
  Cluster::Node& noted(std::vector<NicDevice> devices, EngineOptions options = {}) {
    return cluster.add(std::move(devices), std::move(options),
                       [this](auto below) { return std::make_unique<RecordingRelay>(std::move(below), ops, holds); });
  }
  static RequestOptions event(std::uint32_t immediate, std::string_view message = "hello") {
    RequestOptions options;
    options.notify = notify_event(immediate, std::as_bytes(std::span(message)));
    return options;
  }
  // How often each immediate was delivered to `node` since the last call.
  std::map<std::uint32_t, int> told(Cluster::Node& node) {
    cluster.run(kMillisecond);  // polls what has arrived at its link
    std::map<std::uint32_t, int> all;
    std::array<Notification, 8> some;
    while (const std::size_t count = node.engine->poll_notifications(some))
      for (const Notification& each : std::span(some).first(count)) ++all[each.immediate];
    return all;
  }

  static constexpr std::uint32_t kMostInImmediate = (1u << 30) - 1;
  std::vector<Op> ops;
  bool holds = false;
  Cluster cluster;
};

struct EventsOfBothKinds : EventsRide, testing::WithParamInterface<const char*> {
  static RequestOptions event(std::uint32_t immediate) { return EventsRide::event(immediate, GetParam()); }
  // More events than there are credits arrive one after the other.
  void all_credits_are_there(Cluster::Node& a, Cluster::Node& b, const Cluster::Road& road) {
    for (std::uint32_t i = 1000; i < 1012; ++i) {
      const auto id = a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 64), event(i));
      ASSERT_TRUE(cluster.finish(a, id).status) << i;
      EXPECT_EQ(told(b)[i], 1) << i;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Messages, EventsOfBothKinds, testing::Values("", "hello"),
                         [](const auto& given) { return *given.param == 0 ? "none" : "some"; });

TEST_F(EventsRide, TheRecordGoesAheadAndTheWriteSetsItOff) {
  auto& a = noted({nic()});
  auto& b = cluster.add({nic()});
  const auto road = cluster.connect(a, b);
  ops.clear();
  const auto id = a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 4096), event(0xfffffff0));
  ASSERT_TRUE(cluster.finish(a, id).status);
  EXPECT_EQ(ops, (std::vector<Op>{Op::message, Op::write_immediate}));
  cluster.run(kMillisecond);  // the target passes it on in its next step
  std::array<Notification, 2> got;
  ASSERT_EQ(b.engine->poll_notifications(got), 1u);
  EXPECT_EQ(got[0].immediate, 0xfffffff0);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(got[0].message), got[0].message_bytes), "hello");
}

TEST_F(EventsRide, WithoutAMessageTheImmediateIsTheEvent) {
  auto& a = noted({nic()});
  auto& b = cluster.add({nic()});
  const auto road = cluster.connect(a, b);
  for (const std::uint32_t immediate : {0u, 7u, kMostInImmediate, kMostInImmediate + 1, 0x80000007u, 0xffffffffu}) {
    ops.clear();
    const auto id = a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 64), event(immediate, ""));
    ASSERT_TRUE(cluster.finish(a, id).status);
    EXPECT_EQ(ops.size(), immediate <= kMostInImmediate ? 1u : 2u) << immediate;
    EXPECT_EQ(ops.back(), Op::write_immediate);
    EXPECT_EQ(told(b), (std::map<std::uint32_t, int>{{immediate, 1}}));
    EXPECT_EQ(b.engine->counter(immediate), 0u);
  }
}

TEST_F(EventsRide, BehindTheBytesWhereTheyAreManyOrNothingIsInOrder) {
  NicDevice loose = nic(), short_slices = nic();
  loose.device.capabilities.ordered = false;
  short_slices.device.capabilities.max_slice_bytes = 32 * 1024;
  for (const bool ordered : {true, false}) {
    auto& a = noted({ordered ? short_slices : loose});
    auto& b = cluster.add({ordered ? short_slices : loose});
    const auto road = cluster.connect(a, b);
    ops.clear();
    const auto id = a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, ordered ? 40'000 : 64), event(1));
    ASSERT_TRUE(cluster.finish(a, id).status);
    EXPECT_EQ(ops, ordered ? (std::vector<Op>{Op::write, Op::write, Op::message})
                           : (std::vector<Op>{Op::write, Op::message}));
    EXPECT_EQ(told(b), (std::map<std::uint32_t, int>{{1, 1}}));
  }
}

TEST_F(EventsRide, IsNotOkBeforeTheRecordHasArrivedToo) {
  auto& a = noted({nic()});
  auto& b = cluster.add({nic()});
  const auto road = cluster.connect(a, b);
  ops.clear();
  holds = true;
  const auto id = a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 64), event(3));
  EXPECT_EQ(a.engine->wait(*id, std::chrono::milliseconds(20)).status().code(), ErrorCode::timed_out);
  EXPECT_EQ(ops, std::vector<Op>{Op::write_immediate});
  EXPECT_TRUE(told(b).empty());
  holds = false;
  EXPECT_TRUE(cluster.finish(a, id).status);
  EXPECT_EQ(told(b), (std::map<std::uint32_t, int>{{3, 1}}));
}

TEST_F(EventsRide, NothingRidesWhereAnImmediateSaysNothingOfTheTargetsBytes) {
  NicDevice other = nic();
  other.device.capabilities.immediate_kinds = 1 << static_cast<unsigned>(MemoryKind::pinned);
  auto& a = noted({other});
  auto& b = cluster.add({other});
  const auto road = cluster.connect(a, b);
  RequestOptions counted;
  counted.notify = notify_counter(5);
  for (const RequestOptions& options : {event(4), event(4, ""), counted}) {
    ops.clear();
    ASSERT_TRUE(cluster.finish(a, a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 64), options)).status);
    EXPECT_EQ(ops, (std::vector<Op>{Op::write, Op::message}));
  }
  EXPECT_EQ(told(b), (std::map<std::uint32_t, int>{{4, 2}}));
  EXPECT_EQ(b.engine->counter(5), 1u);
}

TEST_F(EventsRide, ACounterOfAnyImmediateIsStillACounter) {
  auto& a = cluster.add({nic()});
  auto& b = cluster.add({nic()});
  const auto road = cluster.connect(a, b);
  for (const std::uint32_t immediate : {5u, 0x80000005u, 0xffffffffu}) {
    RequestOptions options;
    options.notify = notify_counter(immediate);
    ASSERT_TRUE(cluster.finish(a, a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 64), options)).status);
    EXPECT_EQ(b.engine->counter(immediate), 1u) << immediate;
  }
  EXPECT_TRUE(told(b).empty());
}

// More failures than there are credits and names: refused by the target, or cancelled in flight.
TEST_P(EventsOfBothKinds, OneWhoseWriteFailsGivesItsCreditBack) {
  EngineOptions few;
  few.notifications_per_peer = 4;
  auto& a = cluster.add({nic()}, few);
  auto& b = cluster.add({nic()}, few);
  const auto road = cluster.connect(a, b);
  std::vector<std::uint64_t> words(512);
  const auto region = b.engine->register_memory(words.data(), 4096, Access::write);
  ASSERT_TRUE(region);
  const auto far = a.engine->import_region(road.peer, *b.engine->describe(*region));
  ASSERT_TRUE(far);
  ASSERT_TRUE(b.engine->deregister(*region, Cluster::kWithin));
  for (int i = 0; i < 40; ++i) {
    const auto id = a.engine->write(road.peer, Extent{{a.region.id, 0, 64}, {far->id, 0}}, event(1));
    EXPECT_FALSE(cluster.finish(a, id).status);
  }
  int cancelled = 0;
  for (int i = 0; i < 40; ++i) {
    const auto id = a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 16'000), event(2));
    ASSERT_TRUE(id);
    (void)a.engine->cancel(*id, Cluster::kWithin);
    cancelled += cluster.finish(a, id).status ? 0 : 1;
    told(b);  // drops the events that were faster
  }
  EXPECT_GT(cancelled, 0);
  all_credits_are_there(a, b, road);
}

// Whether the peer was notified is known only once both ends are closed, not when the transfer ends.
TEST_P(EventsOfBothKinds, CancelledOnALinkThatBreaksLeavesNoCreditBehind) {
  EngineOptions few;
  few.notifications_per_peer = 4;
  auto& a = cluster.add({nic(), nic()}, few);
  auto& b = cluster.add({nic(), nic()}, few);
  const auto road = cluster.connect(a, b);
  sim::Random random(11);
  int cancelled = 0, of_those_told = 0;
  for (std::uint32_t i = 0; i < 200; ++i) {
    const auto id = a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 1 + random.below(16'000)), event(i));
    ASSERT_TRUE(id);
    cluster.run(random.below(12'000));
    cluster.fabric().break_between(*a.host, *b.host);
    (void)a.engine->cancel(*id, Cluster::kWithin);
    const bool ok = cluster.finish(a, id).status.is_ok();
    const int count = told(b)[i];
    EXPECT_LE(count, 1) << i;
    EXPECT_TRUE(!ok || count == 1) << i;
    cancelled += ok ? 0 : 1;
    of_those_told += ok ? 0 : count;
  }
  EXPECT_GT(cancelled, 20);
  std::printf("%d of 200 cancelled, %d of those told\n", cancelled, of_those_told);
  all_credits_are_there(a, b, road);
}

TEST_P(EventsOfBothKinds, ToldOnceWhateverBreaksMeanwhile) {
  auto& a = cluster.add({nic(), nic()});
  auto& b = cluster.add({nic(), nic()});
  const auto road = cluster.connect(a, b);
  sim::Random random(7);
  std::map<std::uint32_t, int> counts;
  for (std::uint32_t i = 0; i < 300; ++i) {
    const auto id = a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 1 + random.below(8000)), event(i));
    ASSERT_TRUE(id);
    cluster.run(random.below(12'000));
    if (random.chance(300)) cluster.fabric().break_between(*a.host, *b.host);
    const Completion done = cluster.finish(a, id);
    for (const auto& [immediate, count] : told(b)) counts[immediate] += count;
    EXPECT_EQ(counts[i], 1) << i << ": " << done.status.to_string();
    ASSERT_TRUE(done.status) << done.status.to_string();
  }
}

}  // namespace
}  // namespace fairway::promises
