#pragma once

#include <array>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "fairway/engine.h"

#include "process/control/child_process.h"
#include "support/cuda/device_memory.h"
#include "support/open_engine.h"

// Two processes with GPU memory, on the stand-in driver, or on the one that FAIRWAY_CUDA_DRIVER names.
namespace fairway::gpu_pair {

using control::ChildProcess;
using support::DeviceMemory;

inline constexpr Timeout kSoon = std::chrono::seconds(20);
inline constexpr Timeout kServed = std::chrono::minutes(5);  // a child serves until its peer goes
inline constexpr std::uint64_t kBytes = 4u << 20;

inline const std::vector<std::string> kAll{"shm", "cuda", "tcp"};

inline EngineOptions options_of(const std::string& name, const std::vector<std::string>& transports = kAll) {
  EngineOptions options;
  options.name = name;
  options.transports = transports;
  options.peer_timeout = std::chrono::milliseconds(1000);
  return options;
}

inline std::byte pattern(std::uint64_t seed, std::uint64_t i) {
  return static_cast<std::byte>((i * 131 + (i >> 8) * 29 + seed * 197) >> 1);
}
inline std::vector<std::byte> patterns(std::uint64_t seed, std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = pattern(seed, i);
  return bytes;
}

inline std::byte* make(DeviceMemory& gpus, const std::string& kind, int device) {
  if (kind == "malloc") return gpus.allocate(kBytes, device);
  return gpus.map(kBytes, device, kind != "locked", kind == "expanded" ? 2 : 1);
}

// The child: publishes memory of that kind on its GPU 1, and of the host, sends what it receives under tag 1 back under
// tag 2, and deregisters when it is told to.
inline void serve(ChildProcess::Line& line, const std::string& kind, const std::vector<std::string>& transports) {
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
  DeviceMemory gpus;
  auto engine = open_engine(options_of("child", transports));
  if (!engine) return line.write(engine.status().to_string());
  const int device = gpus.devices() > 1 ? 1 : 0;
  std::byte* bytes = make(gpus, kind, device);
  std::byte* letters = make(gpus, kind, device);
  const auto memory = engine->register_memory(bytes, kBytes, Access::all);
  const auto letter = engine->register_memory(letters, kBytes, Access::none);
  const auto plain = engine->allocate(kBytes, Access::all);
  if (!memory || !letter || !plain || !engine->publish("memory", *memory) || !engine->publish("plain", *plain))
    return line.write("no memory: " + memory.status().to_string());
  line.write(engine->address());
  std::array<PeerEvent, 1> events;
  while (engine->wait_peer_event(kServed))
    while (engine->poll_peer_events(events) == 1) {
      if (events[0].kind == PeerEvent::Kind::down) return;
      if (events[0].kind != PeerEvent::Kind::up) continue;
      for (int i = 0; i < 3; ++i) {
        const auto in = engine->receive(events[0].peer, 1, {letter->id, 0, kBytes});
        if (!in) return;
        const auto got = engine->wait(*in, kServed);  // which ends with the peer
        if (!got || !got->status) return;
        const auto out = engine->send(events[0].peer, 2, {letter->id, 0, got->bytes});
        if (out) (void)engine->wait(*out, kSoon);
      }
      const Status fenced = engine->deregister(*memory, kSoon);
      std::vector<std::byte> before(kBytes), after(kBytes);
      gpus.read(before, bytes, device);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      gpus.read(after, bytes, device);
      line.write(!fenced ? fenced.to_string() : before == after ? "fenced" : "written after the fence");
    }
}

inline Status finish(Engine& engine, const Result<TransferId>& id) {
  if (!id) return id.status();
  const auto completion = engine.wait(*id, kSoon);
  return completion ? completion->status : completion.status();
}

// The parent's side: an engine, its GPUs, the child's memory. The child is forked before the driver has threads here.
class GpuPair : public testing::Test {
 protected:
  void meet(const std::string& kind, const std::vector<std::string>& transports = kAll) {
    meet_one_who([=](auto& line) { serve(line, kind, transports); }, transports);
  }
  void meet_one_who(std::function<void(ChildProcess::Line&)> does, const std::vector<std::string>& transports) {
    child_ = std::make_unique<ChildProcess>(std::move(does));
    child_address_ = child_->read();
    ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
    gpus_ = std::make_unique<DeviceMemory>();
    EngineOptions options = options_of("parent", transports);
    options.keep_links_awake = keep_awake_;
    auto engine = open_engine(options);
    ASSERT_TRUE(engine) << engine.status().to_string();
    engine_ = std::make_unique<Engine>(std::move(*engine));
    const auto peer = engine_->connect(child_address_, kSoon);
    ASSERT_TRUE(peer) << child_address_ << ": " << peer.status().to_string();
    peer_ = *peer;
    const auto remote = engine_->lookup(peer_, "memory", kSoon);
    ASSERT_TRUE(remote) << remote.status().to_string();
    remote_ = *remote;
  }
  Region on_gpu(std::uint64_t size = kBytes) {
    places_.push_back(gpus_->allocate(size, 0));
    return engine_->register_memory(places_.back(), size, Access::read | Access::write).value();
  }
  std::vector<std::byte> content(const Region& region, std::size_t size) {
    std::vector<std::byte> bytes(size);
    if (size != 0) gpus_->read(bytes, region.address);
    return bytes;
  }
  Status write(const Region& from, std::uint64_t length) {
    return finish(*engine_, engine_->write(peer_, Extent{{from.id, 0, length}, {remote_.id, 0}}));
  }
  Status read(const Region& into, std::uint64_t length) {
    return finish(*engine_, engine_->read(peer_, Extent{{into.id, 0, length}, {remote_.id, 0}}));
  }
  ~GpuPair() override {
    engine_.reset();
    for (std::byte* place : places_) gpus_->free(place);
  }

  bool keep_awake_ = false;
  std::unique_ptr<ChildProcess> child_;
  std::string child_address_;
  std::unique_ptr<DeviceMemory> gpus_;
  std::unique_ptr<Engine> engine_;
  PeerId peer_;
  RemoteRegion remote_;
  std::vector<std::byte*> places_;
};

}  // namespace fairway::gpu_pair
