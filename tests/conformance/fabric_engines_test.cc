#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "conformance/fabric_shim.h"
#include "engine/open.h"
#include "support/alone.h"
#include "support/sanitized.h"
#include "sys/system_runtime.h"
#include "transport/fabric/fabric.h"

// Two engines of this process over two of libfabric's domains, of which one takes less memory than the other.
namespace fairway::conformance {
namespace {

constexpr std::uint64_t kBytes = 256 << 10;
constexpr Timeout kPatience{20'000'000};

class EnginesOverFabric : public testing::Test {
 protected:
  void SetUp() override {
    calls_ = shim_calls({.copies = 2});
    if (calls_ == nullptr) GTEST_SKIP() << "no libfabric";
  }
  Engine open() {
    EngineOptions options;
    options.transports = {"fabric"};
    options.peer_timeout = bound_;
    auto made = EngineAccess::open(options, runtime_, [this](transport::RegionTable& regions, Runtime& runtime) {
      transport::FabricOptions fabric;
      fabric.providers = {"tcp"};
      fabric.calls = calls_;
      return support::alone(transport::open_fabric_transport(regions, runtime, fabric));
    });
    EXPECT_TRUE(made) << made.status().to_string();
    return std::move(*made);
  }
  void meet() {
    near_.emplace(open());
    far_.emplace(open());
    const auto peer = near_->connect(far_->address(), kPatience);
    ASSERT_TRUE(peer) << peer.status().to_string();
    peer_ = *peer;
    const auto ready = [&] {
      std::size_t count = 0;
      for (const auto& link : near_->metrics().links) count += link.up ? 1 : 0;
      return count;
    };
    const auto end = std::chrono::steady_clock::now() + 2 * kPatience;
    while (ready() != 2 && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_EQ(ready(), 2U);
  }
  // Memory of both; the second domain (or the first) of the sides for which it is said takes none of it.
  void share(bool near_refused, bool far_refused, bool first = false) {
    shim_takes(near_refused ? kBytes / 2 : 0, first);
    auto from = near_->allocate(kBytes, Access::all);
    shim_takes(far_refused ? kBytes / 2 : 0);
    auto to = far_->allocate(kBytes, Access::all);
    shim_takes(0);
    ASSERT_TRUE(from) << from.status().to_string();
    ASSERT_TRUE(to) << to.status().to_string();
    from_ = *from, to_ = *to;
    ASSERT_TRUE(far_->publish("memory", to_));
    const auto remote = near_->lookup(peer_, "memory");
    ASSERT_TRUE(remote) << remote.status().to_string();
    remote_ = *remote;
  }
  Extent whole() const { return {{from_.id, 0, kBytes}, {remote_.id, 0}}; }
  Explanation told() {
    Request request;
    request.operation = Operation::write;
    request.peer = peer_;
    request.layout = whole();
    auto told = near_->explain(request);
    EXPECT_TRUE(told) << told.status().to_string();
    return std::move(*told);
  }
  void moves() {
    for (std::uint64_t i = 0; i < kBytes; ++i) from_.address[i] = static_cast<std::byte>(i * 7 + i / 251);
    std::memset(to_.address, 0, kBytes);
    ends(near_->write(peer_, whole()));
    EXPECT_EQ(std::memcmp(from_.address, to_.address, kBytes), 0);
    std::memset(from_.address, 0, kBytes);
    ends(near_->read(peer_, whole()));
    EXPECT_EQ(std::memcmp(from_.address, to_.address, kBytes), 0);
  }
  void ends(const Result<TransferId>& id) {
    ASSERT_TRUE(id) << id.status().to_string();
    const auto done = near_->wait(*id, kPatience);
    ASSERT_TRUE(done && done->status) << (done ? done->status : done.status()).to_string();
  }

  std::chrono::milliseconds bound_{kSanitized ? 8000 : 2000};
  sys::SystemRuntime system_;
  Runtime runtime_ = system_.runtime();
  std::shared_ptr<const transport::fabric::Calls> calls_;
  std::optional<Engine> near_, far_;
  Region from_, to_;
  PeerId peer_;
  RemoteRegion remote_;
};

TEST_F(EnginesOverFabric, MemoryThatOneDomainRefusesGoesByTheOthersAndExplainSaysWhy) {
  ASSERT_NO_FATAL_FAILURE(meet());
  ASSERT_NO_FATAL_FAILURE(share(true, false));
  const Explanation explained = told();
  ASSERT_EQ(explained.links.size(), 2U) << explained.text();
  for (const ExplainedLink& link : explained.links) {
    const bool refused = link.name.find("#1") != std::string::npos;
    EXPECT_EQ(link.taken, !refused) << explained.text();
    const bool says = link.reason.find("#1 cannot register the memory: Cannot allocate memory") != std::string::npos;
    EXPECT_EQ(says, refused) << link.reason;
  }
  moves();
}

TEST_F(EnginesOverFabric, ExplainNamesTheDomainByWhichTheBytesGo) {
  ASSERT_NO_FATAL_FAILURE(meet());
  ASSERT_NO_FATAL_FAILURE(share(true, false, true));
  for (const std::string& note : told().notes)
    if (note.find("by libfabric's provider") != std::string::npos)
      EXPECT_NE(note.find("#1"), std::string::npos) << note;
  EXPECT_NE(told().text().find("by libfabric's provider"), std::string::npos) << told().text();
}

TEST_F(EnginesOverFabric, ARegionOfThePeersThatOneDomainRefusedIsGoneRoundToo) {
  ASSERT_NO_FATAL_FAILURE(meet());
  ASSERT_NO_FATAL_FAILURE(share(false, true));
  EXPECT_NE(told().text().find("the peer's device at its other end refused the peer's memory"), std::string::npos)
      << told().text();
  moves();
}

TEST_F(EnginesOverFabric, MemoryThatAllDomainsTakeIsRefusedByNone) {
  ASSERT_NO_FATAL_FAILURE(meet());
  ASSERT_NO_FATAL_FAILURE(share(false, false));
  EXPECT_EQ(told().text().find("refused"), std::string::npos) << told().text();
  moves();
}

TEST_F(EnginesOverFabric, AnEndThatTheProviderNeverTellsCostsTheLinkAndNothingElse) {
  bound_ = std::chrono::milliseconds(kSanitized ? 4000 : 1000);
  ASSERT_NO_FATAL_FAILURE(meet());
  ASSERT_NO_FATAL_FAILURE(share(false, false));
  std::this_thread::sleep_for(bound_ + std::chrono::milliseconds(300));  // whoever looked at the links does no more
  shim_forget(1);
  moves();
  EXPECT_EQ(shim_forgets(), 0U);
  std::uint64_t failures = 0;
  for (const auto& link : near_->metrics().links) failures += link.failures;
  EXPECT_GE(failures, 1U);
}

}  // namespace
}  // namespace fairway::conformance
