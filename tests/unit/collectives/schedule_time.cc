#include "unit/collectives/schedule_time.h"

#include <algorithm>
#include <deque>
#include <unordered_map>
#include <vector>

namespace fairway::collectives {
namespace {

// From one rank to another.
struct Between {
  std::deque<double> arrivals;  // of messages that were not taken yet
  std::deque<double> taken;     // when; of the last ones
  std::uint64_t sent = 0, received = 0;
};

struct Rank {
  Schedule schedule;
  std::size_t next = 0;
  double now = 0;
};

class Clockwork {
 public:
  Clockwork(const Shape& shape, const Costs& costs) : costs_(costs), ranks_(static_cast<std::size_t>(shape.size)) {
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      Shape own = shape;
      own.rank = static_cast<int>(i);
      make_schedule(own, ranks_[i].schedule);
    }
  }

  // Each as far as it can, again and again: times follow from what waits for what, and not from this order.
  ScheduleTime run() {
    std::vector<std::size_t> ready(ranks_.size());
    for (std::size_t i = 0; i < ready.size(); ++i) ready[i] = i;
    while (!ready.empty()) {
      const std::size_t rank = ready.back();
      ready.pop_back();
      while (step(rank)) {
        const Step& done = ranks_[rank].schedule.steps[ranks_[rank].next - 1];
        if (done.peer >= 0) ready.push_back(static_cast<std::size_t>(done.peer));  // may go on by that
      }
    }
    ScheduleTime time;
    time.messages = messages_;
    time.ends = true;
    for (const Rank& rank : ranks_) {
      time.nanoseconds = std::max(time.nanoseconds, rank.now);
      time.ends = time.ends && rank.next == rank.schedule.steps.size();
    }
    return time;
  }

 private:
  Between& between(std::size_t from, std::size_t to) { return between_[from * ranks_.size() + to]; }

  bool step(std::size_t number) {
    Rank& rank = ranks_[number];
    if (rank.next == rank.schedule.steps.size()) return false;
    const Step& step = rank.schedule.steps[rank.next];
    const auto bytes = static_cast<double>(step.bytes);
    const double half = costs_.message / 2 + bytes * costs_.byte / 2;
    if (step.kind == Step::Kind::send) {
      Between& out = between(number, static_cast<std::size_t>(step.peer));
      if (out.sent - out.received >= kLeastRoom) return false;
      if (out.sent >= kLeastRoom) {  // the slot of the message so far back
        rank.now = std::max(rank.now, out.taken.front());
        out.taken.pop_front();
      }
      rank.now += half;
      out.arrivals.push_back(rank.now + costs_.round);
      ++out.sent;
      ++messages_;
    } else if (takes(step.kind)) {
      Between& in = between(static_cast<std::size_t>(step.peer), number);
      if (in.arrivals.empty()) return false;
      rank.now = std::max(rank.now, in.arrivals.front()) + half;
      in.arrivals.pop_front();
      in.taken.push_back(rank.now);
      ++in.received;
      if (step.kind != Step::Kind::receive) rank.now += bytes * costs_.combine;
    } else {
      rank.now += bytes * costs_.combine;
    }
    ++rank.next;
    return true;
  }

  const Costs& costs_;
  std::vector<Rank> ranks_;
  std::unordered_map<std::uint64_t, Between> between_;
  std::uint64_t messages_ = 0;
};

}  // namespace

ScheduleTime time_of(const Shape& shape, const Costs& costs) {
  return Clockwork(shape, costs).run();
}

}  // namespace fairway::collectives
