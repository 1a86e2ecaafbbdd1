#include "soak_engine.h"

#include <thread>

#include <fmt/format.h>

#include "via.h"

namespace fairway::tool::soak {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kMeeting = std::chrono::seconds(20);

std::string name_of(unsigned memory) {
  return fmt::format("soak-{}", memory);
}

}  // namespace

Endpoint::Endpoint(Engine engine, const Settings& settings, unsigned process)
    : engine_(std::move(engine)), settings_(settings), process_(process), known_(settings.engines) {}

Result<std::unique_ptr<Endpoint>> Endpoint::open(const Settings& settings, unsigned process) {
  EngineOptions options;
  options.name = fmt::format("process {}", process);
  options.workers = 1 + process % 2;
  options.peer_timeout = kPeerTimeout;
  options.rdma = settings.rdma;
  options.notifications_per_peer = 1024;
  use_only(options, settings.via);
  auto engine = Engine::open(options);
  if (!engine) return engine.status();
  std::unique_ptr<Endpoint> endpoint(new Endpoint(std::move(*engine), settings, process));
  for (const std::string& name : settings.memories) {
    auto memory = Memory::open(endpoint->engine_, name, memory_bytes(settings));
    if (!memory) return memory.status();
    endpoint->memories_.push_back(std::move(*memory));
  }
  for (unsigned i = 0; i < settings.memories.size(); ++i)
    if (Status status = endpoint->publish(i); !status) return status;
  return endpoint;
}

Status Endpoint::publish(unsigned memory) {
  return engine_.publish(name_of(memory), memories_[memory]->region());
}

Status Endpoint::meet(unsigned process, const std::string& address) {
  const auto until = Clock::now() + kMeeting;
  for (;;) {
    const Status status = meet_once(process, address);
    if (status || Clock::now() >= until) return status;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

Status Endpoint::meet_once(unsigned process, const std::string& address) {
  Known& known = known_[process];
  for (const RemoteRegion& memory : known.memories) (void)engine_.release(memory);  // of a former life it has ended
  known.memories.clear();
  const auto peer = engine_.connect(address);
  if (!peer) return peer.status();
  known.peer = *peer;
  for (unsigned i = 0; i < settings_.memories.size(); ++i) {
    const auto memory = engine_.lookup(*peer, name_of(i));
    if (!memory) return memory.status();
    known.memories.push_back(*memory);
  }
  const auto id = engine_.write(*peer, Extent{{memories_[0]->region().id, 0, 0}, {known.memories[0].id, 0}});
  if (!id) return id.status();
  const auto done = engine_.wait(*id, std::chrono::seconds(10));
  return done ? done->status : done.status();
}

unsigned Endpoint::process_of(PeerId peer) const {
  unsigned process = 0;
  while (process < known_.size() && known_[process].peer != peer) ++process;
  return process;
}

}  // namespace fairway::tool::soak
