// Promise 5, revocable, when something holds the memory: fenced is reported only once it was released, not fenced names
// who holds it, and what ends meanwhile reports what its owner asked for. Cases: transports that keep slices, for
// cancel, deregister and a deadline; memory that is deregistered while the worker posts.
#include <functional>
#include <vector>

#include "cluster.h"
#include "stalling_relay.h"

namespace fairway::promises {
namespace {

using std::chrono::milliseconds;

class Held : public testing::TestWithParam<Operation> {
 protected:
  Held()
      : a(cluster.add({nic()}, long_timeout_options(),
                      [this](auto below) { return std::make_unique<StallingRelay>(std::move(below), hold); })),
        b(cluster.add({nic()}, long_timeout_options())),
        road(cluster.connect(a, b)) {}
  static EngineOptions long_timeout_options() {  // longer than anything here takes
    EngineOptions options;
    options.peer_timeout = std::chrono::seconds(60);
    return options;
  }
  Result<TransferId> start(const RequestOptions& options = {}) {
    const Extent extent = Cluster::extent(a, road, 0, 0, 16'000);
    auto id = GetParam() == Operation::write ? a.engine->write(road.peer, extent, options)
                                             : a.engine->read(road.peer, extent, options);
    cluster.run(5 * kMillisecond);  // its bytes have moved; no event was reported
    return id;
  }

  bool hold = false;
  Cluster cluster;
  Cluster::Node& a;
  Cluster::Node& b;
  Cluster::Road road;
};

TEST_P(Held, CancelSaysNotFencedAndWhoHoldsUntilItIsLetGo) {
  hold = true;
  const auto id = start();
  ASSERT_TRUE(id);
  for (const auto timeout : {milliseconds(0), milliseconds(2), milliseconds(100), milliseconds(2000)}) {
    const Time before = cluster.simulation().now();
    const auto cancelled = a.engine->cancel(*id, timeout);
    ASSERT_TRUE(cancelled) << cancelled.status().to_string();
    EXPECT_FALSE(cancelled->fenced) << "after " << timeout.count() << " ms, with slices in the transport's hands";
    EXPECT_EQ(cancelled->held_by, "n1");
    EXPECT_GE(cluster.simulation().now() - before, static_cast<Time>(timeout.count()) * kMillisecond);
    EXPECT_EQ(a.engine->wait(*id, Timeout(0)).status().code(), ErrorCode::timed_out) << "it completed while held";
  }
  hold = false;
  const auto cancelled = a.engine->cancel(*id, Cluster::kWithin);
  ASSERT_TRUE(cancelled);
  EXPECT_TRUE(cancelled->fenced);
  EXPECT_EQ(cancelled->held_by, "");
  const Completion done = cluster.finish(a, id);
  EXPECT_TRUE(done.status || done.status.code() == ErrorCode::cancelled) << done.status.to_string();
}

TEST_P(Held, DeregisterSaysNotFencedAndWhoHoldsUntilItIsLetGo) {
  hold = true;
  const auto id = start();
  ASSERT_TRUE(id);
  const Status status = a.engine->deregister(a.region, milliseconds(100));
  EXPECT_EQ(status.code(), ErrorCode::not_fenced) << status.to_string();
  EXPECT_NE(status.message().find("n1"), std::string::npos) << status.to_string();
  EXPECT_EQ(a.engine->wait(*id, Timeout(0)).status().code(), ErrorCode::timed_out) << "it completed while held";
  EXPECT_EQ(a.engine->metrics().regions, 1u) << "its slot was given up while it may be touched";
  hold = false;
  const Completion done = cluster.finish(a, id);
  EXPECT_TRUE(done.status || done.status.code() == ErrorCode::cancelled) << done.status.to_string();
  EXPECT_TRUE(cluster.run_until(kSecond, [&] { return a.engine->metrics().regions == 0; }));
  EXPECT_EQ(a.engine->fence_state(a.region), Fence::fenced);
}

TEST_P(Held, DeregisterIsAskedAgainUntilItIsFenced) {
  hold = true;
  const auto id = start();
  ASSERT_TRUE(id);
  EXPECT_EQ(a.engine->fence_state(a.region), Fence::registered);
  for (const auto timeout : {milliseconds(0), milliseconds(20), milliseconds(100)}) {
    const Status status = a.engine->deregister(a.region, timeout);
    EXPECT_EQ(status.code(), ErrorCode::not_fenced) << status.to_string();
    EXPECT_NE(status.message().find("n1"), std::string::npos) << "every time: " << status.to_string();
    EXPECT_EQ(a.engine->fence_state(a.region), Fence::pending);
  }
  hold = false;
  const Status status = a.engine->deregister(a.region, Cluster::kWithin);
  EXPECT_TRUE(status) << status.to_string();
  EXPECT_EQ(a.engine->fence_state(a.region), Fence::fenced);
  EXPECT_EQ(a.engine->metrics().regions, 0u) << "it was over before its slot was free";
  EXPECT_EQ(a.engine->deregister(a.region, Timeout(0)).code(), ErrorCode::revoked);
  const Completion done = cluster.finish(a, id);
  EXPECT_TRUE(done.status || done.status.code() == ErrorCode::cancelled) << done.status.to_string();
}

TEST_P(Held, ADeadlineEndsItOnceItIsLetGo) {
  hold = true;
  RequestOptions options;
  options.deadline = milliseconds(20);
  const auto id = start(options);
  ASSERT_TRUE(id);
  EXPECT_EQ(a.engine->wait(*id, milliseconds(500)).status().code(), ErrorCode::timed_out) << "it ended while held";
  hold = false;
  (void)a.engine->explain(road.peer);  // asks the worker, which polls its transport
  EXPECT_EQ(cluster.finish(a, id).status.code(), ErrorCode::deadline_exceeded);
}

TEST_P(Held, OneThatWasNeverPostedIsFencedAtOnce) {
  hold = true;
  const auto first = start();
  RequestOptions options;
  options.after = *first;
  const auto second = start(options);
  ASSERT_TRUE(first && second);
  const auto cancelled = a.engine->cancel(*second, milliseconds(10));
  ASSERT_TRUE(cancelled);
  EXPECT_TRUE(cancelled->fenced);
  EXPECT_EQ(cancelled->far_side, Cancelled::Far::nothing);
  hold = false;
  (void)cluster.finish(a, first);
}

INSTANTIATE_TEST_SUITE_P(Both, Held, testing::Values(Operation::write, Operation::read),
                         [](const auto& each) { return each.param == Operation::write ? "write" : "read"; });

TEST(Revocable, AWriteOfWhichOnlyTheNotificationIsUnderWayIsFenced) {
  bool hold = false;
  Cluster cluster;
  auto& a = cluster.add({nic()}, {}, [&](auto below) {
    return std::make_unique<StallingRelay>(std::move(below), hold, mask(transport::Op::message));
  });
  auto& b = cluster.add({nic()});
  const auto road = cluster.connect(a, b);
  hold = true;
  const std::vector<Extent> two{Cluster::extent(a, road, 0, 0, 100), Cluster::extent(a, road, 200, 200, 100)};
  RequestOptions options;
  options.notify = notify_counter(5);
  const auto id = a.engine->write(road.peer, two, options);
  cluster.run(5 * kMillisecond);
  const auto cancelled = a.engine->cancel(*id, milliseconds(1));
  ASSERT_TRUE(cancelled);
  EXPECT_TRUE(cancelled->fenced);
  EXPECT_EQ(cancelled->far_side, Cancelled::Far::all);
  EXPECT_EQ(a.engine->wait(*id, Timeout(0)).status().code(), ErrorCode::timed_out) << "its notification has arrived";
  hold = false;
  (void)a.engine->metrics();
  EXPECT_TRUE(cluster.finish(a, id).status);
  EXPECT_EQ(b.engine->counter(5), 1u);
}

// Runs a hook in the middle of a worker's step: after it has posted, when the first completion is there, and before it
// posts more. The hook does what another thread might do at that moment.
class Hooked final : public Relay {
 public:
  Hooked(std::unique_ptr<transport::Transport> below, std::function<void()>& hook)
      : Relay(std::move(below)), hook_(hook) {}
  std::size_t post(std::span<const transport::Slice> slices) override {
    posted_ = hook_ != nullptr;
    return below_->post(slices);
  }
  std::size_t poll(std::span<transport::Event> events, Time now) override {
    const std::size_t count = below_->poll(events, now);
    if (count > 0 && posted_ && hook_) std::exchange(hook_, nullptr)();
    return count;
  }

 private:
  std::function<void()>& hook_;
  bool posted_ = false;
};

TEST(Revocable, WhatALocalDeregisterEndsSaysCancelledWheneverItMeetsTheEnd) {
  for (const NicDevice& device : {nic(), message_nic()})
    for (const Operation operation : {Operation::write, Operation::read, Operation::send}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(operation)) + ", operations " +
                   std::to_string(device.device.capabilities.operations));
      std::function<void()> hook;
      Cluster cluster;  // destroyed before what its transports refer to
      NicDevice narrow = device;
      narrow.device.capabilities.queue_depth = 4;
      narrow.device.capabilities.max_slice_bytes = 512;
      EngineOptions small;
      small.unexpected_bytes_per_peer = 2048;
      auto& a =
          cluster.add({narrow}, small, [&](auto below) { return std::make_unique<Hooked>(std::move(below), hook); });
      auto& b = cluster.add({narrow}, small);
      const auto road = cluster.connect(a, b);
      cluster.run(10 * kMillisecond);
      std::vector<PeerEvent> events(16);
      PeerId back;
      const std::size_t count = b.engine->poll_peer_events(events);
      for (std::size_t i = 0; i < count; ++i)
        if (events[i].kind == PeerEvent::Kind::up) back = events[i].peer;
      std::vector<TransferId> ids, receives;
      for (std::uint64_t i = 0; i < 40; ++i)
        receives.push_back(*b.engine->receive(back, 1, {b.region.id, i * 1024, 1024}));
      hook = [&] { EXPECT_EQ(a.engine->deregister(a.region, Timeout(0)).code(), ErrorCode::not_fenced); };
      for (std::uint64_t i = 0; i < 40; ++i) {
        const Extent extent = Cluster::extent(a, road, i * 1024, i * 1024, 1000);
        const auto id = operation == Operation::write  ? a.engine->write(road.peer, extent)
                        : operation == Operation::read ? a.engine->read(road.peer, extent)
                                                       : a.engine->send(road.peer, 1, extent.local);
        if (id) ids.push_back(*id);
      }
      cluster.run(10 * kMillisecond);
      EXPECT_FALSE(hook) << "nothing was answered";
      std::size_t ok = 0;
      for (const TransferId id : ids) {
        const Completion done = cluster.finish(a, id);
        ok += done.status ? 1 : 0;
        EXPECT_TRUE(done.status || done.status.code() == ErrorCode::cancelled) << done.status.to_string();
      }
      EXPECT_LT(ok, ids.size());
      // A message that was not sent is no message, and not an empty one.
      for (const TransferId id : receives)
        if (const auto got = b.engine->wait(id, Timeout(0)); got && got->status) {
          EXPECT_EQ(got->bytes, 1000u);
        }
    }
}

}  // namespace
}  // namespace fairway::promises
