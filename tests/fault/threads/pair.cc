#include "pair.h"

#include "fairway/loopback.h"

namespace fairway::threads {

Result<std::shared_ptr<Pair>> Pair::open(const std::string& transport, Progress progress) {
  auto pair = std::make_shared<Pair>();
  EngineOptions options;
  options.transports = {transport};
  if (transport == "loopback") options.loopback = make_loopback();
  options.max_transfers = kTransfers;
  options.max_regions = 64;
  for (Side& side : pair->sides) {
    options.name = &side == &pair->sides[0] ? "first" : "second";
    options.progress = &side == &pair->sides[0] ? progress : Progress::threads;
    auto engine = Engine::open(options);
    if (!engine) return engine.status();
    side.engine = std::make_unique<Engine>(std::move(*engine));
    side.memory.resize(kAreas * kArea + kThreads * kPlaces * kPlace);
    auto region = side.engine->register_memory(side.memory.data(), side.memory.size(), Access::all);
    if (!region) return region.status();
    side.region = *region;
    if (Status status = side.engine->publish("memory", *region); !status) return status;
  }
  for (Side& side : pair->sides) {
    Side& there = pair->sides[&side == &pair->sides[0] ? 1 : 0];
    auto peer = side.engine->connect(there.engine->address(), kEver);
    if (!peer) return peer.status();
    side.other = *peer;
    auto remote = side.engine->lookup(*peer, "memory", kEver);
    if (!remote) return remote.status();
    side.remote = *remote;
  }
  return pair;
}

}  // namespace fairway::threads
