#include "engine/armed_events.h"

#include <algorithm>
#include <utility>

namespace fairway::engine {

std::uint32_t EventNames::take(std::uint32_t credits) {
  if (free_.empty()) {
    if (generations_.size() >= std::min(credits, EventName::kSlots)) return kNoEvent;
    free_.push_back(static_cast<std::uint32_t>(generations_.size()));
    generations_.push_back(0);
  }
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  return EventName::make(slot, ++generations_[slot]);
}

void EventNames::free(std::uint32_t name) {
  free_.push_back(EventName::slot(name));
}

ArmedEvents::Slot& ArmedEvents::at(std::uint32_t name) {
  const std::uint32_t slot = EventName::slot(name);
  if (slot >= slots_.size()) slots_.resize(slot + 1);
  return slots_[slot];
}

bool ArmedEvents::hear(std::uint32_t name, Notification&& notification, std::optional<Notification>& deliver) {
  Slot& slot = at(name);
  if (slot.generation == EventName::generation(name) && slot.state == State::set_off) {
    slot.state = State::idle;
    deliver = std::move(notification);
    return true;
  }
  if (!is_newer(name, slot) || slot.state == State::armed) return false;
  slot.generation = EventName::generation(name);
  slot.state = State::armed;
  slot.notification = std::move(notification);
  ++waiting_;
  return true;
}

std::optional<Notification> ArmedEvents::set_off(std::uint32_t name) {
  Slot& slot = at(name);
  if (slot.generation == EventName::generation(name) && slot.state == State::armed) {
    slot.state = State::idle;
    --waiting_;
    return std::move(slot.notification);
  }
  if (is_newer(name, slot) && slot.state != State::armed) {  // its record is on the way
    slot.generation = EventName::generation(name);
    slot.state = State::set_off;
  }
  return std::nullopt;
}

bool ArmedEvents::give_up(std::uint32_t name) {
  Slot& slot = at(name);
  if (slot.generation != EventName::generation(name) || slot.state != State::armed) return false;
  slot.state = State::idle;
  --waiting_;
  return true;
}

}  // namespace fairway::engine
