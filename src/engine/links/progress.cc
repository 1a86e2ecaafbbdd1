#include <algorithm>
#include <string>
#include <utility>

#include "engine/links/link_set.h"
#include "transport/optional_calls.h"

// Links on which nothing moves. A slow link is not one: where the transport tells of bytes, any that move count, and
// elsewhere slices are cut shorter once a link seemed to stall.
namespace fairway::engine {
namespace {

constexpr Time kLooks = 16;                    // at the bytes that moved, within peer_timeout
constexpr Time kKnown = 2 * kSecond;           // the longest wait where the transport knows why nothing moves
constexpr std::uint64_t kAtWork = 64 * 1024;   // bytes of an epoch: more than a proof and some records move
constexpr std::uint64_t kCareful = 64 * 1024;  // bytes of a slice
constexpr Time kBoundsOfASlice = 4;            // times peer_timeout

}  // namespace

// The first slice in flight starts the bound within which the link must make progress.
void LinkSet::entered(Link& link, bool waits_for_stream) {
  if (waits_for_stream) {
    ++link.waits_for_streams;
  } else if (link.in_flight == link.waits_for_streams) {
    link.last_progress = since_now();
    peer_.wake_at(after(peer_.now(), parts_.bound / kLooks));
  }
  ++link.in_flight;
  ++out_;
}

void LinkSet::left(Link& link, std::uint64_t bytes) {
  --link.in_flight;
  link.queued_bytes -= std::min(link.queued_bytes, bytes);
  link.last_progress = since_now();
  link.full = false;
  --out_;
}

void LinkSet::works(Link& link) {
  link.stalled = false;
  no_link_since_ = kNever;
}

void LinkSet::forgive_stalls() {
  for (Link& link : links_)
    if (std::exchange(link.stalled, false) && link.state == LinkState::ready) no_link_since_ = kNever;
}

Time LinkSet::watch_progress(std::uint8_t index) {
  Link& link = links_[index];
  auto* const tells = dynamic_cast<transport::TellsProgress*>(parts_.transports[link.transport].get());
  const Time look = parts_.bound / kLooks;
  if (tells != nullptr && is_over(link.last_progress, look)) {
    const std::uint64_t moved = tells->moved(link.id);
    if (moved != std::exchange(link.moved, moved)) link.last_progress = since_now();
    if (link.stalled && moved >= kAtWork) works(link);
  }
  const bool known = tells != nullptr && is_over(link.last_progress, kKnown) && !tells->why_stalled(link.id).empty();
  if (known || is_over(link.last_progress, parts_.bound))
    close_stalled(index);
  else if (tells == nullptr && forgets_a_slice(index))
    close(index, {ErrorCode::link_failed,
                  "a slice did not complete within four times the peer timeout, though "
                  "later ones did"});
  if (!link.is_up()) return kNever;
  const Time end = look_at(link.last_progress, parts_.bound);
  return tells == nullptr ? end : std::min(end, after(peer_.now(), look));
}

// A link that has stalled is tried again, but once it stalls twice in a row without anything done, and no other works,
// its transfers end: each further attempt would only take peer_timeout.
void LinkSet::close_stalled(std::uint8_t index) {
  Link& link = links_[index];
  std::string why = "no slice completed within the peer timeout";
  if (auto* const tells = dynamic_cast<transport::TellsProgress*>(parts_.transports[link.transport].get())) {
    why = "no byte has moved within the peer timeout";
    if (const std::string cause = tells->why_stalled(link.id); !cause.empty()) why = cause;
  } else if (link.capabilities->max_slice_bytes > kCareful) {
    link.careful = std::make_unique<transport::Capabilities>(*link.capabilities);
    link.careful->max_slice_bytes = kCareful;
  }
  link.stalled = true;
  close(index, {ErrorCode::link_failed, why});
}

// Checked at intervals: while slices are in flight, run_timers() runs within the bound. Not where the transport tells
// of bytes: a stream loses no slice alone, and a short one may pass a long one that waits for a slow link.
bool LinkSet::forgets_a_slice(std::uint8_t index) {
  Link& link = links_[index];
  if (link.look_at > peer_.now()) return false;
  link.look_at = after(peer_.now(), parts_.bound);
  return parts_.slices.any_of(peer_.id().slot, [&](const SliceEntry& entry) {
    if (entry.use == SliceUse::request || entry.link != index || entry.parked || entry.retry) return false;
    if (entry.use == SliceUse::data && peer_.transfer(entry.owner).request.options.start_after != nullptr) return false;
    return entry.posted < link.newest_done && is_over(entry.posted, kBoundsOfASlice * parts_.bound);
  });
}

}  // namespace fairway::engine
