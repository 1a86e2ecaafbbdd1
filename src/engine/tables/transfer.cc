#include "engine/tables/transfer.h"

#include <algorithm>

#include "engine/tables/route.h"

namespace fairway::engine {

void Transfer::begin(const Request& given, Time now, NamedQueue* named) {
  request = given;
  queue = named;
  if (is_atomic(given.operation))
    request.layout = Extent{{{}, 0, sizeof(std::uint64_t)}, given.target};  // one piece of eight bytes
  const std::span<const std::byte> given_message = given.options.notify.message;
  std::copy(given_message.begin(), given_message.end(), message.begin());
  message_bytes = static_cast<std::uint32_t>(given_message.size());
  request.options.notify.message = {};
  const auto* const one = std::get_if<Extent>(&request.layout);
  total = one != nullptr ? one->local.length : total_bytes(request.layout);
  blocks = one != nullptr ? 1 : block_count(request.layout);
  peer.store(given.peer.slot, std::memory_order_relaxed);
  submitted = now;
  timed = true;
  deadline = given.options.deadline == kForever ? kNever : passes_at(now, given.options.deadline);

  phase = Phase::submitted;
  credit_taken = immediate_sent = signals = false;
  cursor = checked = {};
  route = {};
  route_version = memory_kinds = 0;
  pieces_out = retried = 0;
  bytes_done = bytes_posted = links_used = 0;
  status = {};
  rendezvous = {};
  if (!pieces.empty()) pieces = {};
  notify_record = arming = next = first_dependent = next_dependent = previous_active = next_active = kNoSlot;
  queued = needs_flush = in_doubt = armed = gated = false;
  chunk = kNoSlot;
  ticket.reset();
  completion = {};
}

}  // namespace fairway::engine
