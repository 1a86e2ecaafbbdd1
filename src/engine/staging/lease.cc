#include "engine/staging/lease.h"

#include <string>

#include "engine/description.h"

namespace fairway::engine {

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
    region_ = remotes_.import(owner_, *buffer, refused_);
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
  if (region_) remotes_.release(region_);
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
