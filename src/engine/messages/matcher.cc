#include "engine/messages/matcher.h"

#include "engine/operation.h"

namespace fairway::engine {

void MessageMatcher::hold_place(std::uint32_t slot) {
  if (peer_.transfer(slot).request.operation == Operation::send)
    sender_.push(slot);
  else
    receiver_.push(slot);
}

void MessageMatcher::start(std::uint32_t slot) {
  Transfer& t = peer_.transfer(slot);
  if (t.request.operation != Operation::send) return receiver_.start(slot);
  t.phase = Phase::matching;
  if (!t.queued) sender_.push(slot);
  peer_.again();
}

void MessageMatcher::start_now(std::uint32_t slot) {
  Transfer& t = peer_.transfer(slot);
  if (t.request.operation != Operation::send) return receiver_.start(slot);
  t.phase = Phase::matching;
  sender_.start_now(slot);
}

void MessageMatcher::stop(std::uint32_t slot) {
  if (peer_.transfer(slot).request.operation == Operation::send)
    sender_.stop(slot);
  else
    receiver_.stop(slot);
}

void MessageMatcher::ended(Transfer& transfer) {
  sender_.ended(transfer.rendezvous);
  receiver_.ended(transfer.rendezvous);
}

}  // namespace fairway::engine
