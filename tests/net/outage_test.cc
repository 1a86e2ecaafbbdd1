#include <algorithm>
#include <thread>

#include "net/side.h"

// A cable is pulled in the middle of transfers and put back, before and after the peer is given up.
namespace fairway::net {
namespace {

using std::chrono::milliseconds;

class Outage : public TwoHosts {
 protected:
  // More than can be through before the cable is out, each over the whole region.
  static std::vector<TransferId> start_many(Near& near, int count = 40) {
    std::vector<TransferId> ids;
    for (int i = 0; i < count; ++i) {
      const auto id = near.write(kBytes);
      EXPECT_TRUE(id) << id.status().to_string();
      if (id) ids.push_back(*id);
    }
    return ids;
  }
  // Until a peer that was lost takes a connection again.
  static Status meet_again(Near& near, const std::string& address) {
    Status met;
    const auto until = std::chrono::steady_clock::now() + kHang;
    do {
      met = near.meet(address, std::chrono::seconds(2));
    } while (!met && std::chrono::steady_clock::now() < until);
    return met;
  }
};

TEST_F(Outage, AShortOneDelaysTransfersAndEndsNone) {
  Far far(there(), options_of("far", "10.77.1.2:0"));
  Near near(options_of("near", "10.77.1.1:0"));
  ASSERT_TRUE(near.meet(far.address));
  near.fill(7);
  auto ids = start_many(near);
  set_link(there(), "one", false);
  ids.push_back(*near.write(kBytes));  // surely not before the cable was out
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_EQ(near.engine->wait(ids.back(), Timeout(0)).status().code(), ErrorCode::timed_out) << "the cable was out";
  set_link(there(), "one", true);
  for (const TransferId id : ids) {
    const Status status = near.finish(id);
    EXPECT_TRUE(status) << status.to_string();
  }
  EXPECT_EQ(far.check(7, kBytes), "");
  EXPECT_FALSE(near.next(PeerEvent::Kind::down, Timeout(0))) << "nobody was given up";
  near.verify(far, 8);
}

TEST_F(Outage, ALongOneEndsTransfersWithAReasonAndThePeerCanBeMetAgain) {
  constexpr milliseconds kBound(1000);
  Far far(there(), options_of("far", "10.77.1.2:0", kBound));
  Near near(options_of("near", "10.77.1.1:0", kBound));
  ASSERT_TRUE(near.meet(far.address));
  near.fill(7);
  auto ids = start_many(near);
  set_link(there(), "one", false);
  const auto out = std::chrono::steady_clock::now();
  ids.push_back(*near.write(kBytes));
  for (const TransferId id : ids) {
    const Status status = near.finish(id);
    EXPECT_TRUE(status || status.code() == ErrorCode::peer_dead) << status.to_string();
    EXPECT_TRUE(status || !status.peer().empty()) << status.to_string();
  }
  const auto took = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - out);
  RecordProperty("milliseconds", std::to_string(took.count()));
  EXPECT_GT(took, kBound / 4);
  EXPECT_LT(took, kBound * 5) << "the bound is what the engine waits for, not TCP's own patience";
  const auto down = near.next(PeerEvent::Kind::down);  // soon after the transfers have ended
  ASSERT_TRUE(down);
  EXPECT_EQ(down->reason.code(), ErrorCode::peer_dead) << down->reason.to_string();
  EXPECT_FALSE(near.write(64)) << "no transfer goes to a peer that is given up";
  EXPECT_TRUE(near.engine->deregister(near.ours, kHang)) << "nobody touches the memory of what ended";
  near.ours = *near.engine->allocate(kBytes, Access::none);

  set_link(there(), "one", true);
  const Status met = meet_again(near, far.address);
  ASSERT_TRUE(met) << met.to_string();
  near.verify(far, 8);
}

TEST_F(Outage, AConnectWhileTheCableIsOutEndsInTimeAndSucceedsOnceItIsBack) {
  Far far(there(), options_of("far", "10.77.1.2:0"));
  Near near(options_of("near", "10.77.1.1:0"));
  set_link(there(), "one", false);
  const auto start = std::chrono::steady_clock::now();
  const Status met = near.meet(far.address, milliseconds(700));
  EXPECT_TRUE(met.code() == ErrorCode::timed_out || met.code() == ErrorCode::unreachable) << met.to_string();
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(5000));
  set_link(there(), "one", true);
  const Status again = meet_again(near, far.address);
  ASSERT_TRUE(again) << again.to_string();
  near.verify(far, 1);
}

// Two addresses at each host. Control has one connection, over the address that was connected to; bytes have lanes to
// every address that the far side offers.
class TwoCables : public Outage {
 protected:
  static constexpr milliseconds kBound{1500};
  void SetUp() override {
    Outage::SetUp();
    if (IsSkipped()) return;
    second_cable();
    far_.emplace(there(), options_of("far", "0.0.0.0:0", kBound));
    ASSERT_EQ(far_->failure, "");
    near_.emplace(options_of("near", "0.0.0.0:0", kBound));
    ASSERT_TRUE(near_->opened);
  }
  // Before the namespace is left, which the engine's threads would not notice, but the next test's would.
  void TearDown() override {
    near_.reset();
    far_.reset();
    Outage::TearDown();
  }
  std::string address(const std::string& host) { return host + far_->address.substr(far_->address.rfind(':')); }
  bool until_links_are(std::size_t count) {
    const auto until = std::chrono::steady_clock::now() + kHang;
    while (near_->links().size() != count && std::chrono::steady_clock::now() < until)
      (void)near_->engine->wait_peer_event(Timeout(20'000));
    return near_->links().size() == count;
  }
  std::optional<Far> far_;
  std::optional<Near> near_;
};

TEST_F(TwoCables, WithoutTheOneThatControlDoesNotUseTransfersGoOnOverTheOther) {
  ASSERT_TRUE(near_->meet(address("10.77.1.2")));
  ASSERT_TRUE(until_links_are(4)) << near_->links_text();
  near_->fill(7);
  const auto ids = start_many(*near_);
  set_link(there(), "two", false);
  const auto last = near_->write(kBytes);
  for (const TransferId id : ids) {
    const Status status = near_->finish(id);
    EXPECT_TRUE(status) << status.to_string();
  }
  EXPECT_TRUE(near_->finish(last));
  EXPECT_EQ(far_->check(7, kBytes), "");
  EXPECT_EQ(near_->links_text().find("tcp/two"), std::string::npos) << near_->links_text();
  EXPECT_FALSE(near_->next(PeerEvent::Kind::down, Timeout(0))) << "the peer lives";
  near_->verify(*far_, 8);

  set_link(there(), "two", true);
  EXPECT_TRUE(until_links_are(4)) << "the other links are back: " << near_->links_text();
  const std::uint64_t before = traffic(here(), "two");
  near_->verify(*far_, 9);
  EXPECT_GT(traffic(here(), "two") - before, kBytes / 4);
}

// A session has one connection: when its way is gone for longer than the bound the peer counts as dead, although lanes
// over the other cable work. It can be met over the other address at once.
TEST_F(TwoCables, WithoutTheOneThatControlUsesThePeerIsGivenUpAndMetOverTheOther) {
  ASSERT_TRUE(near_->meet(address("10.77.1.2")));
  ASSERT_TRUE(until_links_are(4)) << near_->links_text();
  near_->fill(7);
  set_link(there(), "one", false);
  const auto out = std::chrono::steady_clock::now();
  const auto down = near_->next(PeerEvent::Kind::down);
  ASSERT_TRUE(down);
  EXPECT_EQ(down->reason.code(), ErrorCode::peer_dead) << down->reason.to_string();
  EXPECT_LT(std::chrono::steady_clock::now() - out, kBound * 4);
  const Status met = meet_again(*near_, address("10.77.2.2"));
  ASSERT_TRUE(met) << met.to_string();
  near_->verify(*far_, 8);
  EXPECT_EQ(near_->links_text().find("tcp/one"), std::string::npos) << near_->links_text();
}

// A cable that is out when two engines meet: connect() does not wait for it, and it is used once it is there.
TEST_F(TwoCables, AnAddressThatCannotBeReachedHoldsNothingUpAndJoinsLater) {
  set_link(there(), "two", false);
  const auto start = std::chrono::steady_clock::now();
  ASSERT_TRUE(near_->meet(address("10.77.1.2")));
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(3000));
  near_->verify(*far_, 8);
  EXPECT_EQ(near_->links_text().find("tcp/two"), std::string::npos) << near_->links_text();
  std::this_thread::sleep_for(milliseconds(5500));  // until the dials that began with connect() have been given up
  set_link(there(), "two", true);
  EXPECT_TRUE(until_links_are(4)) << near_->links_text();
  near_->verify(*far_, 9);
}

}  // namespace
}  // namespace fairway::net
