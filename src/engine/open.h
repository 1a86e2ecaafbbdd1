#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "fairway/engine.h"

#include "core/counter_ranges.h"
#include "core/runtime.h"
#include "engine/expectation.h"
#include "transport/region_table.h"
#include "transport/transport.h"

namespace fairway::engine {
class Worker;
}

namespace fairway {

// Makes one worker's transports.
using TransportFactory = std::function<Result<std::vector<std::unique_ptr<transport::Transport>>>(
    transport::RegionTable& regions, Runtime& runtime)>;

// Opens engines on any runtime and set of transports: Engine::open with the operating system's, the simulator with its
// own.
struct EngineAccess {
  // `runtime` outlives the engine, or `owner` keeps it alive.
  // `machine`: its model, for what links should reach; null: no figures.
  // `short_path`: false, for tests: every transfer goes the ordinary way.
  static Result<Engine> open(const EngineOptions& options, Runtime& runtime, const TransportFactory& transports,
                             engine::MachineDiscovery::Source machine = nullptr, std::shared_ptr<void> owner = nullptr,
                             bool short_path = true);
  // Engine::open, where tests turn the short path off.
  static Result<Engine> open(const EngineOptions& options, bool short_path);
  static std::shared_ptr<CounterRanges> counter_ranges(const Engine& engine);  // null: it was moved from
  // For tests of what another thread might post there.
  static engine::Worker& worker(Engine& engine, std::size_t index);
};

}  // namespace fairway
