#include "engine/messages/armed_events.h"

#include <algorithm>
#include <utility>

namespace fairway::engine {

std::optional<Notification> ArmedEvents::take(std::uint32_t number) {
  const auto found = std::find(numbers_.begin(), numbers_.end(), number);
  if (found == numbers_.end()) return std::nullopt;
  const auto at = static_cast<std::size_t>(found - numbers_.begin());
  std::optional<Notification> taken(std::move(waiting_[at]));
  numbers_[at] = numbers_.back();
  waiting_[at] = waiting_.back();
  numbers_.pop_back();
  waiting_.pop_back();
  return taken;
}

void ArmedEvents::keep(Early early) {
  if (std::find(early_.begin(), early_.end(), early) == early_.end()) early_.push_back(early);
}

ArmedEvents::Heard ArmedEvents::hear(std::uint32_t number, Notification& notification) {
  bool set_off = false;
  const bool sign = std::erase_if(early_, [&](const Early& early) {
                      set_off |= early.number == number && early.set_off;
                      return early.number == number;
                    }) != 0;
  if (set_off) return Heard::deliver;
  if (sign) return Heard::given_up;
  numbers_.push_back(number);
  waiting_.push_back(std::move(notification));
  return Heard::waits;
}

std::optional<Notification> ArmedEvents::set_off(std::uint32_t number, bool taken) {
  if (taken) return take(number);
  keep({number, true});
  return std::nullopt;
}

bool ArmedEvents::give_up(std::uint32_t number, bool taken) {
  if (taken) return take(number).has_value();
  keep({number, false});
  return false;
}

bool ArmedEvents::take_early(std::uint32_t number) {
  return std::erase_if(early_, [&](const Early& early) { return early.number == number; }) != 0;
}

}  // namespace fairway::engine
