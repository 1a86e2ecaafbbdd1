#include "engine/messages/waiting_receives.h"

#include <utility>

namespace fairway::engine {

std::uint32_t WaitingReceives::first(std::uint64_t tag) const {
  std::uint32_t slot = queue_.head();
  while (slot != kNoSlot && table_[slot].request.tag != tag) slot = table_[slot].next;
  return slot;
}

void WaitingReceives::tell(Transfer& receive) {
  receive.rendezvous.told = true;
  ++told_;
}

bool WaitingReceives::untell(Transfer& receive) {
  if (!std::exchange(receive.rendezvous.told, false)) return false;
  --told_;
  return true;
}

}  // namespace fairway::engine
