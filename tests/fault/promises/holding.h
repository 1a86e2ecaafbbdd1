#pragma once

#include <unordered_set>
#include <vector>

#include "cluster.h"
#include "relay.h"

namespace fairway::promises {

// A transport that does not let go: while `hold` is set the ends of slices of these operations stay with it, and
// neither cancel() nor fence() reaches what is below. As a NIC whose driver hangs, or a peer that is stopped inside of
// a copy.
class Holding final : public Relay {
 public:
  Holding(std::unique_ptr<transport::Transport> below, const bool& hold,
          std::uint8_t operations = mask(transport::Op::write, transport::Op::read))
      : Relay(std::move(below)), hold_(hold), operations_(operations) {}

  std::size_t post(std::span<const transport::Slice> slices) override {
    const std::size_t taken = below_->post(slices);
    for (const transport::Slice& slice : slices.first(taken))
      if ((operations_ & mask(slice.op)) != 0) held_tokens_.insert(slice.token);
    return taken;
  }
  std::size_t poll(std::span<transport::Event> events, Time now) override {
    std::size_t count = 0;
    if (!hold_) {
      for (const transport::LinkId link : fences_) below_->fence(link);
      fences_.clear();
      for (; count < events.size() && !held_.empty(); ++count) {
        events[count] = std::move(held_.back());
        held_.pop_back();
      }
    }
    const std::size_t first = count;
    const std::size_t came = below_->poll(events.subspan(count), now);
    for (std::size_t i = first; i < first + came; ++i) {
      transport::Event& event = events[i];
      const bool ends = event.kind == transport::EventKind::done || event.kind == transport::EventKind::failed;
      const bool ours = ends && held_tokens_.erase(event.token) > 0;
      if (hold_ && ours)
        held_.push_back(std::move(event));
      else if (count++ != i)
        events[count - 1] = std::move(event);
    }
    return count;
  }
  void fence(transport::LinkId link) override {
    if (hold_)
      fences_.push_back(link);
    else
      below_->fence(link);
  }
  void cancel(transport::SliceToken token) override {
    if (!hold_) below_->cancel(token);
  }
  Time next_timer() const override {
    return !hold_ && (!held_.empty() || !fences_.empty()) ? transport::kPollAgain : below_->next_timer();
  }

 private:
  const bool& hold_;
  const std::uint8_t operations_;
  std::unordered_set<transport::SliceToken> held_tokens_;  // posted and not ended
  std::vector<transport::Event> held_;
  std::vector<transport::LinkId> fences_;
};

}  // namespace fairway::promises
