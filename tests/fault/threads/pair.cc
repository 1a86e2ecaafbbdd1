#include "pair.h"

#include <thread>

#include "fairway/loopback.h"

#include "engine/open.h"
#include "support/alone.h"
#include "support/verbs/nic.h"
#include "sys/system_runtime.h"
#include "transport/verbs/verbs.h"

namespace fairway::threads {
namespace {

// With Progress::caller an engine takes part in what its peer begins only while its program calls.
class Steps {
 public:
  explicit Steps(Engine& engine)
      : thread_([this, &engine] {
          std::array<Completion, 1> none;
          while (!over_) {
            (void)engine.poll(none);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
        }) {}
  ~Steps() {
    over_ = true;
    thread_.join();
  }
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;

 private:
  std::atomic<bool> over_{false};
  std::thread thread_;  // uses what stands before it
};

Runtime& system_runtime() {
  static sys::SystemRuntime system;
  static Runtime runtime = system.runtime();
  return runtime;
}

}  // namespace

Result<Engine> open_on_nic(const EngineOptions& options, const char* nic, Runtime& runtime, bool short_path) {
  static const auto library = support::nic::library();
  return EngineAccess::open(
      options, runtime,
      [nic](transport::RegionTable& regions, Runtime& on) {
        transport::VerbsOptions verbs;
        verbs.rdma.devices = {nic};
        verbs.library = library;
        return support::alone(transport::open_verbs_transport(regions, on, verbs));
      },
      nullptr, nullptr, short_path);
}

Result<std::shared_ptr<Pair>> Pair::open(const std::string& transport, Progress progress) {
  auto pair = std::make_shared<Pair>();
  EngineOptions options;
  options.transports = {transport};
  if (transport == "cuda") options.transports = {"shm", "cuda"};
  if (transport == "loopback") options.loopback = make_loopback();
  options.max_transfers = kTransfers;
  options.max_regions = 64;
  options.providers = {"tcp"};  // of fabric
  for (Side& side : pair->sides) {
    options.name = &side == &pair->sides[0] ? "first" : "second";
    options.progress = &side == &pair->sides[0] ? progress : Progress::threads;
    auto engine = transport == "verbs"
                      ? open_on_nic(options, &side == &pair->sides[0] ? "nic0" : "nic1", system_runtime())
                      : Engine::open(options);
    if (!engine) return engine.status();
    side.engine = std::make_unique<Engine>(std::move(*engine));
    if (transport == "cuda") side.gpu = &side == &pair->sides[0] ? 0 : 1;
    side.owned = Memory(kAreas * kArea + kThreads * kPlaces * kPlace, side.gpu);
    side.memory = side.owned.bytes();
    auto region = side.engine->register_memory(side.owned.address(), side.memory.size(), Access::all);
    if (!region) return region.status();
    side.region = *region;
    if (Status status = side.engine->publish("memory", *region); !status) return status;
  }
  for (Side& side : pair->sides) {
    Side& there = pair->sides[&side == &pair->sides[0] ? 1 : 0];
    const Steps steps(*pair->sides[0].engine);
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
