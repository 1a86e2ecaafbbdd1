// A device that never reports the end of one slice, while later slices complete. A link without progress is given up
// after peer_timeout. So is a link that lost a single completion; otherwise the slice's waiters would wait for ever.
#include <optional>
#include <unordered_map>

#include "cluster.h"
#include "relay.h"

namespace fairway::promises {
namespace {

// Drops the completion of the next slice of user data, once. Fencing the link ends the slice, as with a device that
// lost a completion.
class CompletionDropper : public Relay {
 public:
  CompletionDropper(std::unique_ptr<transport::Transport> below, bool& armed)
      : Relay(std::move(below)), armed_(armed) {}
  std::size_t post(std::span<const transport::Slice> slices) override {
    for (const transport::Slice& slice : slices) {
      links_[slice.token] = slice.link;
      if (armed_ && !next_ && slice.op != transport::Op::message) next_ = slice.token;
    }
    return Relay::post(slices);
  }
  std::size_t poll(std::span<transport::Event> events, Time now) override {
    if (fenced_) {
      fenced_ = false;
      events[0] = {};
      events[0].kind = transport::EventKind::failed;
      events[0].token = *std::exchange(forgotten_, std::nullopt);
      events[0].status = Status(ErrorCode::link_failed, "it was forgotten").with_effect(Effect::unknown);
      return 1;
    }
    std::size_t count = Relay::poll(events, now);
    for (std::size_t i = 0; armed_ && i < count; ++i) {
      if (events[i].kind != transport::EventKind::done || events[i].token != next_) continue;
      armed_ = false;
      next_.reset();
      forgotten_ = events[i].token;
      for (std::size_t k = i + 1; k < count; ++k) events[k - 1] = std::move(events[k]);
      --count;
    }
    return count;
  }
  void fence(transport::LinkId link) override {
    fenced_ = forgotten_ && links_[*forgotten_] == link;
    Relay::fence(link);
  }
  Time next_timer() const override { return fenced_ ? 0 : Relay::next_timer(); }

 private:
  bool& armed_;
  bool fenced_ = false;
  std::optional<transport::SliceToken> next_, forgotten_;
  std::unordered_map<transport::SliceToken, transport::LinkId> links_;
};

// Once armed, a's device drops a completion.
struct DroppingPair {
  bool armed = false;
  Cluster cluster;
  EngineOptions options = [] {
    EngineOptions some;
    some.peer_timeout = std::chrono::milliseconds(300);
    return some;
  }();
  Cluster::Node& a = cluster.add(
      {nic()}, options, [this](auto below) { return std::make_unique<CompletionDropper>(std::move(below), armed); });
  Cluster::Node& b = cluster.add({nic()}, options);
  const decltype(cluster.connect(a, b)) road = cluster.connect(a, b);
};

TEST(Unanswered, OneSliceAmongManyEndsTheLinkAndIsSentAgain) {
  DroppingPair pair;
  bool& armed = pair.armed;
  Cluster& cluster = pair.cluster;
  Cluster::Node &a = pair.a, &b = pair.b;
  const auto& road = pair.road;
  cluster.verify_links(a, road.peer);
  const auto write = [&](std::uint64_t at) { return a.engine->write(road.peer, Cluster::extent(a, road, at, at, 64)); };
  ASSERT_TRUE(cluster.finish(a, write(0)).status);
  a.data()[64] = 9;
  armed = true;
  const auto forgotten = write(64);
  ASSERT_TRUE(forgotten);
  const Time start = cluster.simulation().now();
  std::optional<Completion> done;
  while (!done && cluster.simulation().now() - start < 20 * kSecond) {
    EXPECT_TRUE(cluster.finish(a, write(128)).status);  // the link is busy, and works
    cluster.run(10 * kMillisecond);
    if (const auto ended = a.engine->wait(*forgotten, Timeout(0))) done = *ended;
  }
  ASSERT_FALSE(armed);
  ASSERT_TRUE(done) << "it waits though its link is well";
  EXPECT_TRUE(done->status) << done->status.to_string();
  EXPECT_EQ(b.data()[64], 9);
  EXPECT_EQ(a.engine->explain(*forgotten)->retried_slices, 1u);
  EXPECT_GT(cluster.simulation().now() - start, 300 * kMillisecond) << "not at once: ends come in any order";
}

// However long ago the engine last polled the link.
TEST(Unanswered, TheOnlySliceEndsTheLinkHoweverLongThePeerWasIdle) {
  for (const Time idle : {Time{0}, 200 * kMillisecond, 10 * kSecond}) {
    SCOPED_TRACE(idle);
    DroppingPair pair;
    pair.cluster.run(idle);
    pair.armed = true;
    const Time start = pair.cluster.simulation().now();
    const auto id = pair.a.engine->write(pair.road.peer, Cluster::extent(pair.a, pair.road, 0, 0, 64));
    const Completion done = pair.cluster.finish(pair.a, id);
    EXPECT_TRUE(done.status) << done.status.to_string();
    EXPECT_FALSE(pair.armed);
    EXPECT_LT(pair.cluster.simulation().now() - start, kSecond);
  }
}

}  // namespace
}  // namespace fairway::promises
