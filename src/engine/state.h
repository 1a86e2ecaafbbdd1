#pragma once

#include <atomic>
#include <memory>

#include "engine/introspection.h"
#include "engine/mapped_regions.h"
#include "engine/messages/any_receives.h"
#include "engine/messages/arrivals.h"
#include "engine/open.h"
#include "engine/peer_sessions.h"
#include "engine/region_exchange.h"
#include "engine/registered_regions.h"
#include "engine/transfers/submissions.h"
#include "engine/waiting.h"
#include "engine/workers.h"

namespace fairway {

// What one engine is made of: its workers, the tables that they share with callers, and a part for each subject of the
// API. It wires them, and begins and ends them in order.
struct Engine::State {
  // `owner`, if any, keeps `on` alive.
  State(const EngineOptions& given, Runtime& on, engine::MachineDiscovery::Source model, std::shared_ptr<void> owner,
        bool short_path);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Status start(const TransportFactory& factory);
  void close();
  Status wait_untouched(Time deadline);  // once it is closed; not_fenced: the deadline passed

  const std::shared_ptr<void> runtime_owner;  // first, so that it goes last
  const EngineOptions options;
  engine::PeerTable peers;
  engine::Workers workers{peers};  // without any before start(), and in the parts' destructors
  engine::Waiting waiting;
  engine::RegisteredRegions regions;
  transport::RegionTable remotes;  // bounds of imported regions
  engine::AnyReceives any;
  engine::Submissions submissions;
  engine::TransferWaits transfer_waits;
  std::atomic<std::uint32_t> probes{0};
  engine::MessageProbe message_probe{workers, waiting, probes};
  engine::Arrivals arrivals;
  engine::PeerSessions sessions;
  engine::RegionExchange exchange;
  engine::MappedRegions mappings;
  engine::Introspection introspection;
  std::atomic_flag device_atomics;
  engine::Services services;  // the above, as workers see it
};

}  // namespace fairway
