#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "fairway/engine.h"
#include "fairway/loopback.h"

namespace fairway {

inline constexpr Timeout kSoon = std::chrono::seconds(5);

// Two engines of one process that know each other, each with 4 MiB for the other.
class TwoEngines : public testing::TestWithParam<Progress> {
 protected:
  static constexpr std::size_t kBytes = 4u << 20;

  void SetUp() override {
    EngineOptions options;
    options.loopback = make_loopback();
    options.progress = GetParam();
    change(options);
    options.name = "left";
    left_.emplace(open(options));
    options.name = "right";
    options.progress = Progress::threads;
    right_.emplace(open(options));
    auto peer = left_->connect(right_->address(), kSoon);
    ASSERT_TRUE(peer) << peer.status().to_string();
    right_peer_ = *peer;
    near_.resize(kBytes);
    far_.resize(kBytes);
    std::iota(near_.begin(), near_.end(), std::uint8_t{1});
    auto near_region = left_->register_memory(near_.data(), kBytes, Access::all);
    auto far_region = right_->register_memory(far_.data(), kBytes, Access::all);
    ASSERT_TRUE(near_region && far_region);
    near_region_ = *near_region;
    far_region_ = *far_region;
    ASSERT_TRUE(right_->publish("far", far_region_));
    auto remote = left_->lookup(right_peer_, "far", kSoon);
    ASSERT_TRUE(remote) << remote.status().to_string();
    remote_ = *remote;
  }
  virtual void change(EngineOptions&) {}  // of both engines
  void renew() {                          // both, as at first
    left_.reset();
    right_.reset();
    SetUp();
  }
  static Engine open(const EngineOptions& options) {
    auto engine = Engine::open(options);
    EXPECT_TRUE(engine) << engine.status().to_string();
    return std::move(engine).value();
  }
  Extent extent(std::uint64_t local, std::uint64_t remote, std::uint64_t length) const {
    return {{near_region_.id, local, length}, {remote_.id, remote}};
  }
  Completion finish(const Result<TransferId>& id, Engine& engine) {
    EXPECT_TRUE(id) << id.status().to_string();
    if (!id) return {};
    auto completion = engine.wait(*id, kSoon);
    EXPECT_TRUE(completion) << completion.status().to_string();
    return completion ? *completion : Completion{};
  }

  std::vector<std::uint8_t> near_, far_;  // outlive the engines, whose memory they are
  std::optional<Engine> left_, right_;
  PeerId right_peer_;
  Region near_region_, far_region_;
  RemoteRegion remote_;
};

}  // namespace fairway
