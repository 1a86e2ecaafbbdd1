#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/open.h"
#include "support/alone.h"
#include "support/verbs/nic.h"
#include "sys/system_runtime.h"
#include "transport/verbs/verbs.h"

// Two engines of this process over NICs that stand in for real ones.
namespace fairway {

namespace nic = support::nic;
namespace abi = transport::verbs::abi;

class EnginesOverNics : public testing::Test {
 protected:
  static constexpr std::uint64_t kBytes = 2 << 20;
  static constexpr Timeout kPatience{20'000'000};

  void TearDown() override {
    near_.reset();
    far_.reset();
    nic::settings() = {};
    for (const char* each : {"nic0", "nic1"}) {
      nic::readdress(each, std::uint8_t{0});
      nic::repartition(each, {0xffff});
    }
    nic::plug_all();
  }
  Engine open(EngineOptions options = {}) {
    options.transports = {"verbs"};
    auto made = EngineAccess::open(options, runtime_, [&](transport::RegionTable& regions, Runtime& runtime) {
      transport::VerbsOptions verbs;
      verbs.library = nic::library();
      verbs.rdma = options.rdma;
      return support::alone(transport::open_verbs_transport(regions, runtime, verbs));
    });
    EXPECT_TRUE(made) << made.status().to_string();
    return std::move(*made);
  }
  void meet(std::size_t links, const EngineOptions& options = {}) {
    near_.emplace(open(options));
    far_.emplace(open(options));
    ASSERT_NO_FATAL_FAILURE(connect(links));
  }
  void connect(std::size_t links) {
    auto from = near_->allocate(kBytes, Access::all), to = far_->allocate(kBytes, Access::all);
    ASSERT_TRUE(from && to);
    from_ = *from, to_ = *to;
    ASSERT_TRUE(far_->publish("memory", to_));
    const auto peer = near_->connect(far_->address(), kPatience);
    ASSERT_TRUE(peer) << peer.status().to_string();
    peer_ = *peer;
    const auto remote = near_->lookup(peer_, "memory");
    ASSERT_TRUE(remote) << remote.status().to_string();
    remote_ = *remote;
    ASSERT_TRUE(until_up(links));
  }
  std::uint64_t failures(const std::string& device) {
    std::uint64_t all = 0;
    for (const auto& link : near_->metrics().links) all += link.name.find(device) != link.name.npos ? link.failures : 0;
    return all;
  }
  template <class Holds>
  static bool until(Holds holds) {
    for (int i = 0; i < 4000 && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return holds();
  }
  bool until_up(std::size_t links) {
    return until([&] {
      (void)near_->poll({});  // where it steps by its caller
      std::size_t count = 0;
      for (const auto& link : near_->metrics().links) count += link.up ? 1 : 0;
      return count == links;
    });
  }
  static void pull(const std::string& nic) {
    nic::unplug(nic);
    nic::befall(nic, abi::kEventDeviceFatal);
    ASSERT_TRUE(until([&] { return nic::users(nic) == 0; }));
  }
  Request whole(Operation operation) const {
    Request request;
    request.operation = operation;
    request.peer = peer_;
    request.layout = Extent{{from_.id, 0, kBytes}, {remote_.id, 0}};
    return request;
  }
  void moves() {
    for (std::uint64_t i = 0; i < kBytes; ++i) from_.address[i] = static_cast<std::byte>(i * 7 + i / 251);
    std::memset(to_.address, 0, kBytes);
    const auto id = near_->write(peer_, whole(Operation::write).layout);
    ASSERT_TRUE(id);
    const auto done = near_->wait(*id, kPatience);
    ASSERT_TRUE(done && done->status) << (done ? done->status : done.status()).to_string();
    EXPECT_EQ(std::memcmp(from_.address, to_.address, kBytes), 0);
  }

  // What a call of the NIC's waits for; open when the test ends, whatever becomes of it.
  struct Door {
    ~Door() { open->store(true); }
    std::shared_ptr<std::atomic<bool>> open = std::make_shared<std::atomic<bool>>(false);
  };

  sys::SystemRuntime system_;
  Runtime runtime_ = system_.runtime();
  std::optional<Engine> near_, far_;
  Region from_, to_;
  PeerId peer_;
  RemoteRegion remote_;
};

}  // namespace fairway
