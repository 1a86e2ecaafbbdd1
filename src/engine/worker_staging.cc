#include <algorithm>

#include "engine/worker.h"

// The worker's part of staging (staging.h): its own slots, the steps of all its peers' transfers, and their turns.
namespace fairway::engine {

// For a step's own transfer: of those that wait for nobody but links of host memory.
Step* Worker::free_step(bool for_step) {
  if (staging_.steps.empty()) {
    staging_.steps.resize(kAllSteps);
    for (std::uint32_t i = 0; i < kAllSteps; ++i)
      staging_.steps[i].inner = services_.transfers.capacity() + index_ * kAllSteps + i;
  }
  const auto begin = staging_.steps.begin() + (for_step ? kSteps : 0);
  const auto found =
      std::find_if(begin, begin + kSteps, [](const Step& step) { return step.state == Step::State::free; });
  return found == begin + kSteps ? nullptr : &*found;
}

// kInPlace: none is free now, or with `why` set, there will be none.
std::uint8_t Worker::own_slot(Status& why) {
  using Readiness = transport::Copier::Readiness;
  if (copier_ == nullptr) {
    why = {ErrorCode::unsupported, "no transport in use here copies a device's memory"};
    return kInPlace;
  }
  if (staging_.room == nullptr) staging_.room = copier_->make_room(kRoomBytes);
  const Readiness is = staging_.room->state.load(std::memory_order_acquire);
  if (is == Readiness::opening) return kInPlace;
  if (is == Readiness::refused) why = {ErrorCode::resource_exhausted, "no room to stage in: " + staging_.room->why};
  if (is == Readiness::ready && !staging_.region) staging_.region = register_room(*staging_.room, Access::none, why);
  if (why) return SlotSet::outside(staging_.used, {});
  staging_.room.reset();  // the next one that needs it tries again
  return kInPlace;
}

std::byte* Worker::own_place(std::uint8_t slot) const {
  return staging_.room->memory.address() + slot * kSlotBytes;
}

RegionId Worker::register_room(const transport::Copier::Room& room, Access access, Status& why) {
  const auto id = locals_.add_own(room.memory.address(), kRoomBytes, access, room.memory.fd());
  why = id.status();
  return id ? *id : RegionId{};
}

void Worker::keep_room(std::shared_ptr<transport::Copier::Room> room) {
  kept_rooms_.push_back(std::move(room));
}

// Who waits is served in order; for each that goes on waiting a room is called back, the one lent longest first.
void Worker::share_landings() {
  Staging& staging = staging_;
  while (!staging.awaiting.empty() && staging.landings < kMostLandings) {
    const std::uint32_t next = staging.awaiting.front();
    staging.awaiting.pop_front();
    peers_[next]->make_landing();
  }
  while (staging.recalled < staging.awaiting.size()) {
    Peer* oldest = nullptr;
    for (const std::uint32_t slot : live_) {
      const Landing* const landing = peers_[slot]->landing();
      if (landing == nullptr || !landing->had_turn(now())) continue;
      if (oldest == nullptr || landing->opened < oldest->landing()->opened) oldest = peers_[slot].get();
    }
    if (oldest == nullptr) return;  // looked at again when a copy ends
    oldest->recall_landing();
  }
}

// True: a device has copies, of whose end it wakes nobody.
bool Worker::turn_staging() {
  bool queued = false;
  for (Step& step : staging_.steps)
    if (step.state == Step::State::copying) queued |= peers_[step.peer]->turn_copy(step);
  for (std::size_t i = 0; i < live_.size(); ++i) queued |= peers_[live_[i]]->turn_landing();
  share_landings();
  for (std::size_t i = 0; i < staging_.errands.size(); ++i) {  // by index: one may lead to another
    Errand errand = staging_.errands[i];
    peers_[errand.peer]->turn_errand(errand);
    queued |= errand.queued;
    staging_.errands[i] = errand;
  }
  std::erase_if(staging_.errands, [](const Errand& errand) { return errand.peer == kNoSlot; });
  if (copier_ != nullptr) copier_->flush();
  if (queued) again();
  return queued;
}

bool Worker::serves(RegionId id) const {
  if (staging_.watched == 0) return false;
  return std::any_of(staging_.errands.begin(), staging_.errands.end(),
                     [&](const Errand& errand) { return errand.queued && errand.region == id; }) ||
         std::any_of(live_.begin(), live_.end(), [&](std::uint32_t slot) { return peers_[slot]->serves(id); });
}

}  // namespace fairway::engine
