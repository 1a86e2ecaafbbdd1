#include "engine/staging/pool.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/tables/regions.h"

namespace fairway::engine {

StagedChunk* StagingPool::free_chunk(bool for_inner) {
  if (chunks_.empty()) {
    chunks_.resize(kAllChunks);
    for (std::uint32_t i = 0; i < kAllChunks; ++i) chunks_[i].inner = first_inner_ + i;
  }
  const auto begin = chunks_.begin() + (for_inner ? kChunks : 0);
  const auto found = std::find_if(begin, begin + kChunks,
                                  [](const StagedChunk& chunk) { return chunk.state == StagedChunk::State::free; });
  return found == begin + kChunks ? nullptr : &*found;
}

std::uint8_t StagingPool::take_slot(Status& why) {
  using Readiness = transport::Copier::Readiness;
  if (copier_ == nullptr) {
    why = {ErrorCode::unsupported, "no transport in use here copies a device's memory"};
    return kInPlace;
  }
  if (buffer_ == nullptr) buffer_ = copier_->allocate_staging(kStagingBytes);
  const Readiness is = buffer_->state.load(std::memory_order_acquire);
  if (is == Readiness::opening) return kInPlace;
  if (is == Readiness::refused) why = {ErrorCode::resource_exhausted, "no memory to stage in: " + buffer_->why};
  if (is == Readiness::ready && !region_) {
    const auto region = add_region(*buffer_, Access::none);
    why = region.status();
    if (region) region_ = *region;
  }
  if (!why) {
    buffer_.reset();  // the next request for it tries again
    return kInPlace;
  }
  const std::uint8_t slot = SlotSet::outside(used_, {});
  if (slot != kInPlace) used_.add(slot);
  return slot;
}

void StagingPool::give_back(std::uint8_t slot) {
  used_.remove(slot);
  worker_.again();
}

std::string StagingPool::why_slow() const {
  using Readiness = transport::Copier::Readiness;
  const bool ready = buffer_ != nullptr && buffer_->state.load(std::memory_order_acquire) == Readiness::ready;
  return ready ? buffer_->why : std::string();
}

Result<RegionId> StagingPool::add_region(const transport::Copier::StagingBuffer& buffer, Access access) {
  return locals_.add_own(buffer.memory.address(), kStagingBytes, access, buffer.memory.fd());
}

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

std::uint8_t StagingLease::free_slot(Status& why) {
  if (!refused_ && peer_.now() < refused_until_) {
    why = refused_;
    return kInPlace;
  }
  if (state_ == State::none) {
    state_ = State::asked;
    leaving_ = false;
    busy_ = lost_ = {};
    peer_.send(record::StageAsk{++number_});
  }
  if (state_ != State::open || leaving_) return kInPlace;
  const std::uint8_t slot = SlotSet::outside(busy_, lost_);
  if (slot == kInPlace && !lost_.empty()) leaving_ = true;
  return slot;
}

void StagingLease::give_back(std::uint8_t slot) {
  busy_.remove(slot);
  idle_since_ = peer_.now();
  peer_.wake_at(after(idle_since_, kIdleLease));
  peer_.again();
  end_if_unused();
}

void StagingLease::on_grant(const record::StageGrant& grant) {
  const auto& [number, code, described] = grant;
  if (state_ != State::asked || number != number_) return peer_.violation("a staging buffer that was not asked for");
  state_ = State::none;
  refused_ = Status(code, "the peer stages nothing: " + std::string(to_string(code))).with_peer(peer_.text());
  peer_.again();
  if (code == ErrorCode::ok) {
    const auto buffer = parse_description(described.bytes);
    if (!buffer || buffer->size_bytes != kStagingBytes || !reached_by_cpu(buffer->kind))
      return peer_.violation("a malformed staging buffer");
    refused_ = {};
    state_ = State::open;
    region_ = peer_.remotes().import(peer_.owner(), *buffer, refused_);
    idle_since_ = peer_.now();
    peer_.wake_at(after(idle_since_, kIdleLease));
    leaving_ |= !refused_;
  }
  if (!refused_) refused_until_ = after(peer_.now(), kIdleLease);
  end_if_unused();
}

void StagingLease::on_recall(std::uint32_t number) {
  if (state_ == State::none || number != number_) return;  // it was returned meanwhile
  leaving_ = true;
  end_if_unused();
}

// Returns the lease if that was asked for and nothing uses it.
void StagingLease::end_if_unused() {
  if (state_ != State::open || !busy_.empty() || !(leaving_ || !lost_.empty())) return;
  state_ = State::none;
  if (region_) peer_.remotes().release(region_);
  region_ = {};
  peer_.send(record::StageEnd{number_});
}

Time StagingLease::run_timer(Time now) {
  if (state_ != State::open || !busy_.empty()) return kNever;
  const Time ends = after(idle_since_, kIdleLease);
  if (now < ends) return ends;
  leaving_ = true;
  end_if_unused();
  return kNever;
}

}  // namespace fairway::engine
