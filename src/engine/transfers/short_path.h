#pragma once

#include <array>
#include <cstdint>
#include <variant>
#include <vector>

#include "fairway/request.h"

#include "engine/links/link_set.h"
#include "engine/links/routes.h"
#include "engine/messages/notifier.h"
#include "engine/tables/completions.h"
#include "engine/tables/peer_context.h"
#include "transport/optional_calls.h"

namespace fairway::engine {

// The short path to one peer: one small contiguous write or read over a link whose transport moves it within the call,
// which is then complete, without a transfer, a slice or an event. It answers only what it has done. All else, each
// error with it, is left to the ordinary path, which a transfer between two memories has to have taken once before.
// docs/decisions/small-operations.md. Owner: the peer's worker.
class ShortPath {
 public:
  ShortPath(PeerContext& peer, LinkSet& links, Routes& routes, Clock& clock)
      : peer_(peer), links_(links), routes_(routes), clock_(clock) {}

  // Any thread: whether a request is of the kind. Those that it asks something else of than to be done go the other
  // way, and so do those that are wrong in a way that shows here.
  static bool may_take(Operation operation, const Layout& layout, const RequestOptions& options) {
    const auto* extent = std::get_if<Extent>(&layout);
    const Notify& notify = options.notify;
    const bool tells =
        notify.message.empty() && operation == Operation::write &&
        (notify.kind == NotifyKind::counter ? (notify.immediate & kEventBit) == 0
                                            : notify.kind == NotifyKind::event && notify.immediate <= kEventValue);
    return extent != nullptr && extent->local.length <= transport::kMostAtOnce &&
           (operation == Operation::write || operation == Operation::read) &&
           (notify.kind == NotifyKind::none || tells) && !options.after && !options.checksum &&
           !options.local_completion && options.start_after == nullptr && options.deliver <= Deliver::to_poll &&
           (!options.queue || options.deliver == Deliver::to_poll) && options.deadline.count() > 0 &&
           options.priority <= Priority::urgent;
  }

  // Moves it now: true, and all of `past` says so; false: nothing has happened that the ordinary path would not do
  // again, and `past` is as it was. Only when nothing of the peer's transfers waits to be posted, and an event has its
  // credit.
  bool move(Operation operation, const Extent& extent, const RequestOptions& options, AtOnceTable<>::Past& past);

 private:
  struct Known {  // two memories, and what moves between them while the version of routes is that
    std::uint64_t version = 0;
    transport::Op op = transport::Op::write;
    RegionId local;
    RemoteRegionId remote;
    transport::MovesAtOnce* by = nullptr;  // null: nothing at once
    std::uint64_t remote_handle = 0;
    // What the tables of regions say of both, while their slots say that they are live.
    const transport::RegionSlot<>*here = nullptr, *there = nullptr;
    std::byte* address = nullptr;
    std::uint64_t here_bytes = 0, there_bytes = 0;
    std::uint8_t link = 0;
    Place place = kNoPlace, far_place = kNoPlace;
  };
  static constexpr std::uint32_t kTimed = 64;  // one of so many reads the clock, and stands for those up to the next

  Known& keep(std::uint32_t place, const Known& learned);
  [[gnu::noinline]] bool learn(Operation operation, transport::Op op, const Extent& extent, Known& known);

  PeerContext& peer_;
  LinkSet& links_;
  Routes& routes_;
  Clock& clock_;
  static constexpr std::size_t kKnown = 16;
  std::vector<Known> known_;  // one at the first small transfer, then kKnown (a power of two): most memories are few
  std::uint32_t count_ = 0;
  Time took_ = 0;  // by the last one that was timed
};

}  // namespace fairway::engine
