#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/open.h"
#include "support/verbs/nic.h"
#include "sys/system_runtime.h"
#include "transport/verbs/verbs.h"

// Two engines of this process over NICs that stand in for real ones: what many ports, and ports that differ, mean to
// them.
namespace fairway {
namespace {

namespace nic = support::nic;

constexpr std::uint64_t kBytes = 2 << 20;
constexpr Timeout kPatience{20'000'000};

class EnginesOverNics : public testing::Test {
 protected:
  void TearDown() override {
    near_.reset();
    far_.reset();
    nic::settings() = {};
  }
  Engine open() {
    EngineOptions options;
    options.transports = {"verbs"};
    auto made = EngineAccess::open(options, runtime_, [](transport::RegionTable& regions, Runtime& runtime) {
      transport::VerbsOptions verbs;
      verbs.library = nic::library();
      std::vector<std::unique_ptr<transport::Transport>> all;
      all.push_back(transport::make_verbs_transport(regions, runtime, verbs));
      const Status works = all.back()->probe();
      return works ? Result(std::move(all)) : Result<std::vector<std::unique_ptr<transport::Transport>>>(works);
    });
    EXPECT_TRUE(made) << made.status().to_string();
    return std::move(*made);
  }
  void meet(std::size_t links) {
    near_.emplace(open());
    far_.emplace(open());
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
    const auto ready = [&] {
      std::size_t count = 0;
      for (const auto& link : near_->metrics().links) count += link.up ? 1 : 0;
      return count;
    };
    for (int i = 0; i < 2000 && ready() != links; ++i) (void)near_->wait_peer_event(Timeout(10'000));
    ASSERT_EQ(ready(), links);
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

  sys::SystemRuntime system_;
  Runtime runtime_ = system_.runtime();
  std::optional<Engine> near_, far_;
  Region from_, to_;
  PeerId peer_;
  RemoteRegion remote_;
};

// The links of NIC nic0 have it on both sides, those of nic1 on neither, and the engines' own memory is at both.
TEST_F(EnginesOverNics, MemoryThatSomePortsRefuseGoesByTheOthersAndExplainSaysWhy) {
  nic::settings().small = "nic1";
  nic::settings().small_takes = kBytes / 2;
  ASSERT_NO_FATAL_FAILURE(meet(2));
  const auto told = near_->explain(whole(Operation::write));
  ASSERT_TRUE(told);
  ASSERT_EQ(told->links.size(), 2U) << told->text();
  for (const ExplainedLink& link : told->links) {
    const bool good = link.name.find("nic0") != std::string::npos;
    EXPECT_EQ(link.taken, good) << told->text();
    const char* why = "its device refused this memory: verbs: nic1/1: the memory cannot be registered";
    EXPECT_EQ(link.reason.find(why) != std::string::npos, !good) << link.reason;
  }
  moves();
  const auto back = near_->read(peer_, whole(Operation::read).layout);
  ASSERT_TRUE(back);
  const auto done = near_->wait(*back, kPatience);
  EXPECT_TRUE(done && done->status) << (done ? done->status : done.status()).to_string();
}

TEST_F(EnginesOverNics, ARegionOfThePeersThatSomePortsRefusedIsGoneRoundToo) {
  ASSERT_NO_FATAL_FAILURE(meet(2));
  nic::settings().small = "nic1";
  nic::settings().small_takes = kBytes / 2;
  const auto large = far_->allocate(kBytes, Access::all);
  ASSERT_TRUE(large) << large.status().to_string();
  nic::settings() = {};
  ASSERT_TRUE(far_->publish("partly", *large));
  const auto remote = near_->lookup(peer_, "partly");
  ASSERT_TRUE(remote);
  to_ = *large, remote_ = *remote;
  const auto told = near_->explain(whole(Operation::write));
  ASSERT_TRUE(told);
  EXPECT_NE(told->text().find("the peer's device at its other end refused the peer's memory"), std::string::npos)
      << told->text();
  moves();
}

// A window has a key for each, and all of them travel in one record.
TEST_F(EnginesOverNics, WithSixteenPortsEachReceiveOfMuchIsReachedByAllOfThem) {
  nic::settings().ports = 8;
  ASSERT_NO_FATAL_FAILURE(meet(16));
  moves();
  std::array<PeerEvent, 4> events;
  ASSERT_GT(far_->poll_peer_events(events), 0U);
  std::memset(to_.address, 0, kBytes);
  const auto taken = far_->receive(events[0].peer, 5, {to_.id, 0, kBytes});
  const auto sent = near_->send(peer_, 5, {from_.id, 0, kBytes});
  ASSERT_TRUE(taken && sent);
  const auto done = near_->wait(*sent, kPatience);
  EXPECT_TRUE(done && done->status) << (done ? done->status : done.status()).to_string();
  EXPECT_TRUE(far_->wait(*taken, kPatience));
  EXPECT_EQ(std::memcmp(from_.address, to_.address, kBytes), 0);
}

}  // namespace
}  // namespace fairway
