#include "engine/staging/leases.h"

#include <algorithm>
#include <utility>

namespace fairway::engine {

void StagingLeases::wait(LeaseHolder& holder) {
  waiting_.push_back(&holder);
  pool_.watch();
  pool_.again();
}

void StagingLeases::wait_no_more(LeaseHolder& holder) {
  if (std::erase(waiting_, &holder) > 0) pool_.unwatch();
}

void StagingLeases::drop(LeaseHolder& holder) {
  std::erase(holders_, &holder);
  pool_.again();
}

void StagingLeases::close(LeaseHolder& holder) {
  std::erase(holders_, &holder);
  ++closing_;
}

// The buffer is freed, not leased again.
void StagingLeases::ended(RegionId region, bool recalled, std::shared_ptr<transport::Copier::StagingBuffer> buffer,
                          const Status& fenced) {
  if (recalled) --recalled_;
  if (!fenced) return pool_.keep(std::move(buffer));
  regions_.remove(region);
  --closing_;
  pool_.again();  // another peer may wait for its slot
}

bool StagingLeases::proceed(Time now) {
  bool queued = false;
  for (std::size_t i = 0; i < holders_.size();) {
    LeaseHolder* const holder = holders_[i];
    queued |= holder->proceed();
    if (i < holders_.size() && holders_[i] == holder) ++i;  // else its lease has ended
  }
  share(now);
  return queued;
}

void StagingLeases::share(Time now) {
  while (!waiting_.empty() && holders_.size() + closing_ < kMostLeases) {
    LeaseHolder& next = *waiting_.front();
    waiting_.pop_front();
    pool_.unwatch();
    holders_.push_back(&next);
    next.lend();
  }
  while (recalled_ < waiting_.size()) {
    LeaseHolder* oldest = nullptr;
    for (LeaseHolder* const holder : holders_)
      if (holder->had_turn(now) && (oldest == nullptr || holder->lent_since() < oldest->lent_since())) oldest = holder;
    if (oldest == nullptr) return;  // checked again when a copy ends
    ++recalled_;
    oldest->recall();
  }
}

bool StagingLeases::copies(RegionId region) const {
  return std::any_of(holders_.begin(), holders_.end(),
                     [&](const LeaseHolder* holder) { return holder->copies(region); });
}

}  // namespace fairway::engine
