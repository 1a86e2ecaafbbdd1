#include <utility>

#include "engine/worker.h"

// Worker: receives of any peer. Each worker has them at their place among its own peers' receives; of one that nobody
// has taken, its home answers for what is asked and ends it early.
namespace fairway::engine {

// In its order of submission. Messages that wait are looked at now, those that come later by MessageReceiver.
void Worker::take_any(std::uint32_t index) {
  const AnyReceives::One one = engine_.any.find(index);
  const bool late = one.deadline <= now_;
  if (late && !is_home()) return engine_.any.drop(index);  // its home ends it
  any_.push(index);
  if (one.taker != AnyReceives::kNobody) return forget_any();
  if (shut_) return end_all_any({ErrorCode::closed, "the engine is closed"});
  if (is_home()) {
    any_deadline_ = std::min(any_deadline_, one.deadline);
    const auto is_it = [&](const AnyReceives::One& each) { return each.id == one.id; };
    if (late)
      any_.take_if(is_it, [this](std::uint32_t slot) {
        end_any(slot, {ErrorCode::deadline_exceeded, "the deadline passed before it began"});
      });
    transport::RegionTable::Resolved memory;
    const ErrorCode there =
        engine_.regions.resolve(one.into.region, one.into.offset, one.into.length, Access::none, memory);
    if (there != ErrorCode::ok)
      any_.take_if(is_it, [this](std::uint32_t slot) {
        end_any(slot, {ErrorCode::cancelled, "the local region was deregistered"});
      });
  }
  for (std::size_t i = 0; i < live_.size() && any_.has(one.id); ++i) peers_[live_[i]]->match(one.tag);
}

void Worker::took_any() {
  for (std::uint32_t i = 0; i < engine_.options.workers; ++i)
    if (Worker& other = owner_of(i); &other != this) other.post([](Worker& there) { there.forget_any(); });
}

// Who waited here for its end is told by whoever has it.
void Worker::forget_any() {
  any_.drop_taken([this](TransferId id) {
    for (std::size_t i = 0; i < foreign_.size();) {
      if (foreign_[i].first != id) {
        ++i;
        continue;
      }
      auto answer = std::move(foreign_[i].second);
      foreign_.erase(foreign_.begin() + static_cast<std::ptrdiff_t>(i));
      when_ended(id, std::move(answer));
    }
  });
}

Worker* Worker::elsewhere(TransferId id) {
  const std::uint32_t taker = any_.taker(id);
  Worker& owner = owner_of(taker != AnyReceives::kNobody ? taker : engine_.transfers[id.slot].peer.load());
  return &owner == this ? nullptr : &owner;
}

bool Worker::stop_any(TransferId id, const Status& why, std::shared_ptr<CancelTicket>& ticket) {
  if (!engine_.transfers.is_active(id)) return false;
  const auto again = [&](Worker& there) {
    there.post([id, why, ticket = std::move(ticket)](Worker& worker) { worker.stop(id, why, ticket); });
    return true;
  };
  if (Worker* const other = elsewhere(id)) return again(*other);
  bool ended = false;
  any_.take_if([id](const AnyReceives::One& one) { return one.id == id; },
               [&](std::uint32_t slot) {
                 engine_.transfers[slot].ticket = std::move(ticket);
                 end_any(slot, why);
                 ended = true;
               });
  if (ended) return true;
  // Taken just now; or another thread is still putting there what came before it.
  const bool somewhere = any_.has(id) || engine_.transfers[id.slot].peer.load() == kNoSlot;
  return somewhere && again(*this);
}

void Worker::end_any(std::uint32_t slot, const Status& status) {
  Transfer& t = engine_.transfers[slot];
  t.completion = {engine_.transfers.id(slot), status.with_effect(Effect::not_applied), 0, 0,
                  t.request.options.user_data};
  ended(slot);
  took_any();
}

void Worker::end_all_any(const Status& status) {
  forget_any();
  if (is_home())
    any_.take_if([](const AnyReceives::One&) { return true; }, [&](std::uint32_t slot) { end_any(slot, status); });
  any_.clear();
}

void Worker::end_late_any() {
  any_deadline_ = kNever;
  if (!is_home()) return;
  any_.take_if(
      [this](const AnyReceives::One& one) {
        if (one.deadline > now_) any_deadline_ = std::min(any_deadline_, one.deadline);
        return one.deadline <= now_;
      },
      [this](std::uint32_t slot) {
        end_any(slot, {ErrorCode::deadline_exceeded, "the request's deadline passed before it was done"});
      });
}

}  // namespace fairway::engine
