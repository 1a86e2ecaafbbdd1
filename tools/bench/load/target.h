#pragma once

#include <memory>
#include <string>

#include "fairway/fairway.h"

#include "bench/memory.h"
#include "load.h"
#include "other_process.h"

namespace fairway::tool::bench {

inline constexpr std::uint64_t kLoadBytes = 64u << 20;  // where much is wanted

// An engine with memory of its own, for as many targets as it meets. Heavy: one per measurement.
struct LoadEngine {
  static Result<LoadEngine> open(EngineOptions options, const LoadPlan& plan, const std::string& path,
                                 std::uint64_t bytes);
  Engine engine;
  NamedMemory ours;
};

// A peer and its published memory, as an engine here knows them.
struct LoadTarget {
  static Result<LoadTarget> meet(Engine& engine, const std::string& address);
  PeerId peer;
  RemoteRegion memory;
};

// One write from the start of the engine's memory to the start of the target's, and its end.
Status write_once(LoadEngine& from, const LoadTarget& to, std::uint64_t size);

double percentile_of(std::vector<double>& values, double part);  // sorts them

}  // namespace fairway::tool::bench
