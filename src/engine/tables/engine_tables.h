#pragma once

#include <atomic>
#include <cstdint>

#include "fairway/options.h"

#include "core/runtime.h"
#include "engine/tables/any_receives.h"
#include "engine/tables/mappings.h"
#include "engine/tables/notify.h"
#include "engine/tables/peer_table.h"
#include "engine/tables/transfer.h"
#include "engine/waiting.h"
#include "transport/region_table.h"

namespace fairway::engine {

// What the workers of an engine share with each other and with the callers of its API. Each is safe for any thread.
// Owner: the engine; it outlives them all.
struct EngineTables {
  // `on` outlives it. `by_short_path`: false: nothing is done within its call.
  EngineTables(const EngineOptions& given, Runtime& on, bool by_short_path);

  const EngineOptions options;
  Runtime& runtime;
  const bool short_path;
  transport::RegionTable regions;
  transport::RegionTable remotes;  // bounds of imported regions; their address is null
  TransferTable transfers;
  CompletionQueue completions;  // for poll()
  PeerTable peers;
  PeerEvents peer_events{peers};
  CounterSpaces spaces;
  NotificationQueue notifications;
  CounterTable counters;
  PolledCounts polled;
  AnyReceives any;
  Mappings mappings;
  std::atomic<std::uint32_t> probes{0};  // callers that wait for a message to come
  std::atomic_flag device_atomics;       // held by the worker that executes one on a device's memory
};

}  // namespace fairway::engine
