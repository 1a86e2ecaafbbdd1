#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fairway/fairway.h"

#include "support/sanitized.h"

// Real engines in this process, for promises that need threads and no faults.
namespace fairway::promises {

inline constexpr Timeout kSoon = std::chrono::seconds(30);  // time limit for anything on a busy machine

// An engine with one region, which it publishes as "memory".
class Node {
 public:
  explicit Node(EngineOptions options, std::size_t size_bytes = 1 << 20, Access access = Access::all)
      : memory_(size_bytes / sizeof(std::uint64_t) + 1) {
    auto opened = Engine::open(options);
    EXPECT_TRUE(opened) << opened.status().to_string();
    engine_.emplace(std::move(opened).value());
    auto region = engine_->register_memory(memory_.data(), size_bytes, access);
    EXPECT_TRUE(region) << region.status().to_string();
    region_ = *region;
    EXPECT_TRUE(engine_->publish("memory", region_));
  }

  Engine& engine() { return *engine_; }
  std::uint8_t* data() { return reinterpret_cast<std::uint8_t*>(memory_.data()); }
  std::uint64_t* words() { return memory_.data(); }
  const Region& region() const { return region_; }
  void close() { engine_->close(); }

 private:
  std::vector<std::uint64_t> memory_;  // declared before the engine, so it outlives it
  std::optional<Engine> engine_;
  Region region_;
};

inline EngineOptions options_of(const std::shared_ptr<Loopback>& loopback, const std::string& name) {
  EngineOptions options;
  options.loopback = loopback;
  options.transports = {"loopback"};
  options.name = name;
  options.max_peers = 128;
  return options;
}

// Two connected nodes; `left` has imported the memory of `right`.
struct Pair {
  explicit Pair(EngineOptions left_options = {}, EngineOptions right_options = {}, std::size_t size_bytes = 1 << 20)
      : loopback(make_loopback()),
        left(named(left_options, "left"), size_bytes),
        right(named(right_options, "right"), size_bytes) {
    auto peer = left.engine().connect(right.engine().address(), kSoon);
    EXPECT_TRUE(peer) << peer.status().to_string();
    to_right = *peer;
    auto found = left.engine().lookup(to_right, "memory", kSoon);
    EXPECT_TRUE(found) << found.status().to_string();
    remote = *found;
  }
  EngineOptions named(EngineOptions options, const char* name) const {
    options.loopback = loopback;
    options.name = name;
    options.transports = {"loopback"};
    return options;
  }
  Extent extent(std::uint64_t local, std::uint64_t far, std::uint64_t length) const {
    return {{left.region().id, local, length}, {remote.id, far}};
  }
  // The peer id of `left` at `right`.
  PeerId to_left() {
    std::vector<PeerEvent> events(8);
    while (right.engine().wait_peer_event(kSoon)) {
      const std::size_t count = right.engine().poll_peer_events(events);
      for (std::size_t i = 0; i < count; ++i)
        if (events[i].kind == PeerEvent::Kind::up) return events[i].peer;
    }
    return {};
  }

  std::shared_ptr<Loopback> loopback;
  Node left, right;
  PeerId to_right;
  RemoteRegion remote;
};

// Waits for the completion, which must come.
inline Completion finish(Engine& engine, const Result<TransferId>& id) {
  EXPECT_TRUE(id) << id.status().to_string();
  if (!id) return {};
  auto completion = engine.wait(*id, kSoon);
  EXPECT_TRUE(completion) << completion.status().to_string();
  return completion ? *completion : Completion{};
}

}  // namespace fairway::promises
