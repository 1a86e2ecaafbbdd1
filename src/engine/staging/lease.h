#pragma once

#include <cstdint>

#include "engine/peer_context.h"
#include "engine/remote_regions.h"
#include "engine/staging/pool.h"

namespace fairway::engine {

inline constexpr Time kIdleLease = kSecond;  // a lease without work is returned to the peer

// This side's lease on a staging buffer of the peer. It is requested with the first slot, and returned when it is idle,
// when the peer recalls it, or when one of its slots was lost. Owner: the peer's worker.
class StagingLease {
 public:
  // `owner`: the peer.
  StagingLease(PeerContext& peer, RemoteRegions& remotes, const RegionOwner& owner)
      : peer_(peer), remotes_(remotes), owner_(owner) {}

  [[nodiscard]] bool is_open() const { return state_ == State::open; }
  [[nodiscard]] std::uint32_t number() const { return number_; }
  [[nodiscard]] RemoteRegionId region() const { return region_; }  // while it is open
  [[nodiscard]] bool uses(std::uint32_t number, std::uint8_t slot) const {
    return is_open() && number == number_ && slot < kSlots && busy_.has(slot);
  }

  // ---- slots of the peer's ----
  std::uint8_t free_slot(Status& why);  // kInPlace: not now, or with `why` set, not for a while
  void use(std::uint8_t slot) { busy_.add(slot); }
  void give_back(std::uint8_t slot);
  void lose(std::uint8_t slot) { lost_.add(slot); }  // late bytes may still come there

  // ---- records ----
  void on_grant(const record::StageGrant& grant);
  void on_recall(std::uint32_t number);

  Time run_timer(Time now);  // when to run again
  void peer_gone() { state_ = State::none; }

 private:
  enum class State : std::uint8_t { none, asked, open };
  void end_if_unused();

  PeerContext& peer_;
  RemoteRegions& remotes_;
  const RegionOwner& owner_;
  State state_ = State::none;
  bool leaving_ = false;      // takes nothing new: the peer wants it back, or a slot was lost
  std::uint32_t number_ = 0;  // of this lease, among those of the session
  RemoteRegionId region_;
  SlotSet busy_, lost_;
  Time idle_since_ = 0;
  Status refused_;
  Time refused_until_ = 0;
};

}  // namespace fairway::engine
