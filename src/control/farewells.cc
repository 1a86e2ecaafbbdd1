#include "control/farewells.h"

#include <algorithm>

namespace fairway::control {

void Farewells::add(std::unique_ptr<Connection> connection, Time now) {
  connection->pump();
  if (!connection->failure()) return;
  if (leaving_.size() == kMost) leaving_.erase(leaving_.begin());
  leaving_.push_back({std::move(connection), after(now, kLinger)});
}

Time Farewells::step(Time now) {
  Time next = kNever;
  std::erase_if(leaving_, [&](Leaving& each) {
    each.connection->pump();
    while (each.connection->next()) {
    }
    if (!each.connection->failure() || now >= each.until) return true;
    next = std::min(next, each.connection->hungry() ? now : each.until);
    return false;
  });
  return next;
}

}  // namespace fairway::control
