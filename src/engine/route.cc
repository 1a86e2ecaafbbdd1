#include "engine/route.h"

#include <algorithm>

namespace fairway::engine {
namespace {

// A region's atomics have one executing agent, its CPU: an operation that a NIC would do beside it is not the same one.
bool can(const transport::Capabilities& capabilities, transport::Op op) {
  const bool atomic = op == transport::Op::fetch_add || op == transport::Op::compare_swap;
  if (atomic && !capabilities.atomics_by_cpu) return false;
  if (op == transport::Op::message && capabilities.max_message_bytes < kSmallestMessage) return false;
  return (capabilities.operations & static_cast<std::uint8_t>(op)) != 0;
}

// Nanoseconds until `bytes` more would have left the link.
double finish(const LinkView& link, std::uint64_t bytes) {
  return static_cast<double>(link.queued_bytes + bytes) / static_cast<double>(rate_of(link));
}

}  // namespace

Route route(const RouteRequest& request, std::span<const LinkView> links) {
  Route choice;
  std::uint64_t best_rate = 0;
  // On a device's memory its owner's engine executes atomics, and no other agent does.
  const bool atomic = request.op == transport::Op::fetch_add || request.op == transport::Op::compare_swap;
  const bool on_device = (request.memory_kinds & kDeviceBit) != 0;
  const bool by_cpu = !request.stream_ordered && (!on_device || atomic);
  for (const transport::Op wanted : {request.op, transport::Op::message}) {
    if (wanted == request.op && atomic && on_device) continue;
    if (wanted != request.op && !by_cpu) continue;  // neither engine's CPU reaches a device's memory
    std::uint16_t best_rank = 0xffff;
    for (std::size_t i = 0; i < links.size() && i < kMaxLinks; ++i) {
      const LinkView& link = links[i];
      if (!link.usable || !can(*link.capabilities, wanted)) continue;
      if (wanted == request.op && (link.capabilities->memory_kinds & request.memory_kinds) != request.memory_kinds)
        continue;
      if (wanted == request.op && ((request.without >> link.rank | request.without_links >> i) & 1) != 0) continue;
      if (request.stream_ordered && !link.capabilities->stream_ordered) continue;
      if (link.rank > best_rank) continue;
      if (link.rank < best_rank) {
        best_rank = link.rank;
        best_rate = 0;
        choice.count = 0;
      }
      choice.links[choice.count++] = static_cast<std::uint8_t>(i);
      best_rate = std::max(best_rate, rate_of(link));
    }
    if (choice.count == 0) continue;
    choice.method = wanted == request.op ? Method::native : Method::by_messages;
    break;
  }
  const auto end = std::remove_if(choice.links.begin(), choice.links.begin() + choice.count,
                                  [&](std::uint8_t i) { return rate_of(links[i]) < best_rate / kSlowestPart; });
  choice.count = static_cast<std::uint8_t>(end - choice.links.begin());
  const std::uint64_t first = std::min(request.bytes, kStripeMinimum);
  // By insertion: a few links, and std::stable_sort would allocate.
  for (auto next = choice.links.begin(); next != end; ++next) {
    const auto place = std::upper_bound(choice.links.begin(), next, *next, [&](std::uint8_t a, std::uint8_t b) {
      return finish(links[a], first) < finish(links[b], first);
    });
    std::rotate(place, next, next + 1);
  }
  if (choice.method == Method::native && request.bytes <= kStripeMinimum)
    choice.count = std::min<std::uint8_t>(choice.count, 1);
  if (choice.method != Method::none || by_cpu || !request.staged) return choice;
  Route through = route({request.op, request.bytes}, links);
  if (through.method != Method::none) through.method = Method::staged;
  return through;
}

}  // namespace fairway::engine
