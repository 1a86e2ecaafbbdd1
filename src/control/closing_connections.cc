#include "control/closing_connections.h"

#include <algorithm>

namespace fairway::control {

void ClosingConnections::add(std::unique_ptr<Connection> connection, Time now) {
  connection->pump();
  if (!connection->failure()) return;
  if (leaving_.size() == kMaxLingering) leaving_.erase(leaving_.begin());
  leaving_.push_back({std::move(connection), after(now, kLinger)});
}

Time ClosingConnections::step(Time now) {
  Time next = kNever;
  std::erase_if(leaving_, [&](Leaving& each) {
    each.connection->pump();
    while (each.connection->next()) {
    }
    if (!each.connection->failure() || now >= each.until) return true;
    next = std::min(next, each.connection->has_unread() ? now : each.until);
    return false;
  });
  return next;
}

}  // namespace fairway::control
