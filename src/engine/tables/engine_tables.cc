#include "engine/tables/engine_tables.h"

#include <algorithm>

namespace fairway::engine {
namespace {

constexpr std::uint64_t kMostNotifications = 8192;

std::uint32_t shared_by_peers(const EngineOptions& options) {
  return static_cast<std::uint32_t>(
      std::min(std::uint64_t{options.max_peers} * options.notifications_per_peer, kMostNotifications));
}

}  // namespace

EngineTables::EngineTables(const EngineOptions& given, Runtime& on, bool by_short_path)
    : options(given),
      runtime(on),
      short_path(by_short_path),
      regions(given.max_regions),
      remotes(given.max_remote_regions),
      transfers(given.max_transfers, given.workers * kAllChunks, given.workers),
      completions(given.max_transfers + given.workers * AtOnceTable<>::kSize),
      peers(given.max_peers),
      spaces(given.max_counters, NotificationQueue::room(given.max_peers, shared_by_peers(given))),
      notifications(given.max_peers, shared_by_peers(given), &spaces),
      counters(given.max_counters, &spaces),
      polled(given.max_peers),
      any(given.workers) {}

}  // namespace fairway::engine
