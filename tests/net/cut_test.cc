#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "net/side.h"

// Single connections of two engines are destroyed by the kernel.
namespace fairway::net {
namespace {

class Cut : public TwoHosts {
 protected:
  void SetUp() override {
    TwoHosts::SetUp();
    if (IsSkipped()) return;
    if (const std::string why = why_not_destroy(); !why.empty()) GTEST_SKIP() << why;
    far_.emplace(there(), options_of("far", "10.77.1.2:0"));
    ASSERT_EQ(far_->failure, "");
    near_.emplace(options_of("near", "10.77.1.1:0"));
    const Status met = near_->meet(far_->address);
    ASSERT_TRUE(met) << met.to_string();
    near_->fill(7);
  }
  void TearDown() override {
    near_.reset();
    far_.reset();
    TwoHosts::TearDown();
  }

  std::vector<TransferId> start_many() {
    std::vector<TransferId> ids;
    for (int i = 0; i < 20; ++i) {
      const auto id = near_->write(kBytes);
      EXPECT_TRUE(id) << id.status().to_string();
      if (id) ids.push_back(*id);
    }
    return ids;
  }
  void all_end_well(const std::vector<TransferId>& ids) {
    for (const TransferId id : ids) {
      const Status status = near_->finish(id);
      EXPECT_TRUE(status) << status.to_string();
    }
  }
  // Filters for ss that name one connection each: that of control, which either side may have dialed, or the lanes,
  // which are this side's.
  std::vector<std::string> connections(bool control) {
    const auto port = [](const std::string& address) { return address.substr(address.rfind(':')); };
    std::istringstream lines(here().must("ss -Htn state established dst 10.77.1.2"));
    std::vector<std::string> found;
    std::string received, sent, local, peer;
    for (std::string line; std::getline(lines, line);) {
      std::istringstream(line) >> received >> sent >> local >> peer;
      const bool is_control = port(peer) == port(far_->address) || port(local) == port(near_->engine->address());
      if (is_control == control) found.push_back("dst 10.77.1.2 sport = " + port(local) + " dport = " + port(peer));
    }
    return found;
  }

  std::optional<Far> far_;
  std::optional<Near> near_;
};

TEST_F(Cut, ALaneThatIsDestroyedCostsNoTransferAndComesBack) {
  for (int round = 0; round < 3; ++round) {
    while (near_->links().size() < 2 && near_->next(PeerEvent::Kind::link_up)) continue;
    ASSERT_EQ(near_->links().size(), 2U) << near_->links_text();
    const auto lanes = connections(false);
    ASSERT_EQ(lanes.size(), 2U);
    const auto ids = start_many();
    destroy(here(), lanes[static_cast<std::size_t>(round) % 2]);
    all_end_well(ids);
    const auto down = near_->next(PeerEvent::Kind::link_down);
    ASSERT_TRUE(down);
    EXPECT_NE(down->reason.link(), "") << down->reason.to_string();
  }
  EXPECT_EQ(far_->check(7, kBytes), "");
  while (near_->links().size() < 2 && near_->next(PeerEvent::Kind::link_up)) continue;
  near_->verify(*far_, 8);
}

TEST_F(Cut, WithEveryLaneDestroyedAtOnceTransfersWaitForTheNextOnes) {
  const auto ids = start_many();
  for (const std::string& lane : connections(false)) destroy(here(), lane);
  all_end_well(ids);
  EXPECT_EQ(far_->check(7, kBytes), "");
  EXPECT_FALSE(near_->next(PeerEvent::Kind::down, Timeout(0)));
  near_->verify(*far_, 8);
}

TEST_F(Cut, ControlThatIsDestroyedResumesAndNobodyNotices) {
  for (int round = 0; round < 3; ++round) {
    const auto ids = start_many();
    std::vector<std::string> control = connections(true);
    for (int i = 0; control.empty() && i < 400; ++i, control = connections(true))
      (void)near_->engine->wait_peer_event(Timeout(5'000));
    ASSERT_EQ(control.size(), 1U);
    destroy(here(), control[0]);
    all_end_well(ids);
    // Asks through control.
    const auto found = near_->engine->lookup(near_->peer, "memory", kHang);
    EXPECT_TRUE(found) << found.status().to_string();
  }
  EXPECT_FALSE(near_->next(PeerEvent::Kind::down, Timeout(0)));
  near_->verify(*far_, 8);
}

TEST_F(Cut, EverythingDestroyedAtOnceIsRebuilt) {
  const auto ids = start_many();
  destroy(here(), "dst 10.77.1.2");
  all_end_well(ids);
  EXPECT_EQ(far_->check(7, kBytes), "");
  EXPECT_FALSE(near_->next(PeerEvent::Kind::down, Timeout(0)));
  near_->verify(*far_, 8);
}

}  // namespace
}  // namespace fairway::net
