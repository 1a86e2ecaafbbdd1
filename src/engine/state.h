#pragma once

#include <memory>

#include "engine/arrivals.h"
#include "engine/introspection.h"
#include "engine/mapped_regions.h"
#include "engine/open.h"
#include "engine/peer_sessions.h"
#include "engine/region_exchange.h"
#include "engine/registered_regions.h"
#include "engine/submissions.h"
#include "engine/tables/engine_tables.h"
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
  engine::EngineTables tables;
  engine::Workers workers{tables};  // without any before start(), and in the parts' destructors
  engine::Waiting waiting{tables.runtime, tables.options.progress, workers};
  engine::RegisteredRegions regions{tables, workers, waiting};
  engine::Submissions submissions{tables, workers, waiting};
  engine::TransferWaits transfer_waits{tables, workers, waiting};
  engine::MessageProbe message_probe{tables, workers, waiting};
  engine::Arrivals arrivals{tables, workers, waiting};
  engine::PeerSessions sessions{tables, workers, waiting};
  engine::RegionExchange exchange{tables, regions, workers, waiting, sessions};
  engine::MappedRegions mappings{tables, workers, waiting};
  engine::Introspection introspection;
};

}  // namespace fairway
