// Promise 1, at the end of a session: a peer that closes says goodbye by control, and what it acknowledged before may
// come later, by a link. It still counts, and is not waited for without end.
#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include "cluster.h"
#include "relay.h"

namespace fairway::promises {
namespace {

// Tells the ends of slices, and behind them that of their link, `late` after they came.
class LateRelay final : public Relay {
 public:
  LateRelay(std::unique_ptr<transport::Transport> below, const Time& late) : Relay(std::move(below)), late_(late) {}
  std::size_t poll(std::span<transport::Event> events, Time now) override {
    using transport::EventKind;
    std::size_t count = 0;
    const std::size_t came = below_->poll(events, now);
    for (std::size_t i = 0; i < came; ++i) {
      const EventKind kind = events[i].kind;
      if (late_ != 0 && (kind == EventKind::done || kind == EventKind::failed || kind == EventKind::link_down))
        kept_.emplace_back(now + late_, std::move(events[i]));
      else if (count++ != i)
        events[count - 1] = std::move(events[i]);
    }
    for (; count < events.size() && !kept_.empty() && kept_.front().first <= now; kept_.pop_front())
      events[count++] = std::move(kept_.front().second);
    return count;
  }
  Time next_timer() const override {
    return kept_.empty() ? below_->next_timer() : std::min(kept_.front().first, below_->next_timer());
  }

 private:
  const Time& late_;
  std::deque<std::pair<Time, transport::Event>> kept_;
};

// a has written to b, which saw it and closed; a has not heard of the write's end.
struct Closed {
  explicit Closed(Time how_late) {
    late = how_late;
    RequestOptions told;
    told.notify = notify_counter(7);
    id = a.engine->write(road.peer, Cluster::extent(a, road, 0, 0, 64), told);
    EXPECT_TRUE(cluster.run_until(kSecond, [&] { return b.engine->counter(7) == 1; }));
    cluster.run(kMillisecond);
    b.engine->close();
    closed_at = cluster.simulation().now();
  }
  Time until_down(Status& reason) {
    std::array<PeerEvent, 8> events;
    while (cluster.simulation().now() < closed_at + 5 * kSecond) {
      const std::size_t count = a.engine->poll_peer_events(events);
      for (std::size_t i = 0; i < count; ++i)
        if (events[i].kind == PeerEvent::Kind::down) {
          reason = events[i].reason;
          return cluster.simulation().now() - closed_at;
        }
      cluster.run(kMillisecond);
    }
    return kNever;
  }

  Time late = 0;
  Time closed_at = 0;
  Cluster cluster;
  Cluster::Node& a =
      cluster.add({nic()}, {}, [this](auto below) { return std::make_unique<LateRelay>(std::move(below), late); });
  Cluster::Node& b = cluster.add({nic()});
  const Cluster::Road road = cluster.connect(a, b);
  Result<TransferId> id = Status(ErrorCode::cancelled, "not written yet");
};

TEST(Goodbye, WhatWasAcknowledgedBeforeItCountsThoughItComesLater) {
  Closed pair(10 * kMillisecond);
  const Completion done = pair.cluster.finish(pair.a, pair.id);
  EXPECT_TRUE(done.status) << done.status.to_string();
  Status reason;
  EXPECT_LT(pair.until_down(reason), 50 * kMillisecond);
  EXPECT_EQ(reason.code(), ErrorCode::closed) << reason.to_string();
}

TEST(Goodbye, IsNotHeldUpForLongByWhatNeverComes) {
  Closed pair(kSecond);
  Status reason;
  const Time took = pair.until_down(reason);
  EXPECT_GE(took, 40 * kMillisecond);
  EXPECT_LT(took, 100 * kMillisecond);
  EXPECT_EQ(reason.code(), ErrorCode::closed) << reason.to_string();
  const Completion done = pair.cluster.finish(pair.a, pair.id);
  EXPECT_EQ(done.status.code(), ErrorCode::closed) << done.status.to_string();
}

}  // namespace
}  // namespace fairway::promises
