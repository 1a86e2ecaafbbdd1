#include <chrono>
#include <cstdlib>
#include <sstream>

#include "net/side.h"

// Cables that lose, delay, repeat and reorder. TCP repairs all of this, and the engines must not take it for a broken
// peer, nor for bytes that are there already.
namespace fairway::net {
namespace {

using std::chrono::milliseconds;

class Netem : public TwoHosts {
 protected:
  static constexpr std::uint64_t kLittle = 512 * 1024;  // what a cable that loses much carries in a few seconds

  // With engines that meet over good cables, which then become what the words say, at both ends.
  void meet(milliseconds bound, const std::string& listen = "") {
    far_.emplace(there(), options_of("far", listen.empty() ? "10.77.1.2:0" : listen, bound));
    ASSERT_EQ(far_->failure, "");
    near_.emplace(options_of("near", listen.empty() ? "10.77.1.1:0" : listen, bound));
    const Status met = near_->meet("10.77.1.2" + far_->address.substr(far_->address.rfind(':')));
    ASSERT_TRUE(met) << met.to_string();
    near_->fill(7);
  }
  // False: the test is skipped, or has failed.
  bool spoil(const std::string& cable, const std::string& how) {
    for (const Host* host : {&here(), &there()}) {
      std::vector<std::string> command = {"tc", "qdisc", "add", "dev", cable, "root", "netem"};
      std::istringstream words(how);
      for (std::string word; words >> word;) command.push_back(word);
      const Outcome added = host->run(command);
      if (added.status == 0) continue;
      if (std::getenv("FAIRWAY_VM") != nullptr)
        ADD_FAILURE() << "a guest's kernel has netem: " << added.output;
      else
        skip();
      return false;
    }
    return true;
  }
  static void skip() {
    GTEST_SKIP() << "this kernel has no netem queue (sch_netem); tests/rdma_vm runs this in a guest that has one";
  }
  void TearDown() override {
    near_.reset();
    far_.reset();
    TwoHosts::TearDown();
  }
  void all_goes_well(std::uint64_t length, const RequestOptions& options = {}) {
    const Status wrote = near_->finish(near_->write(length, options));
    EXPECT_TRUE(wrote) << wrote.to_string();
    EXPECT_EQ(far_->check(7, length), "");
    const Status read = near_->finish(near_->read(length, options));
    EXPECT_TRUE(read) << read.to_string();
    for (std::uint64_t i = 0; i < length; ++i)
      ASSERT_EQ(near_->back.address[i], pattern(7, i)) << "byte " << i << " came back wrong";
    EXPECT_FALSE(near_->next(PeerEvent::Kind::down, Timeout(0))) << "nobody was given up";
  }
  std::optional<Far> far_;
  std::optional<Near> near_;
};

TEST_F(Netem, ACableThatLosesDelaysAndReordersIsSlowAndNothingElse) {
  ASSERT_NO_FATAL_FAILURE(meet(milliseconds(5000)));
  if (!spoil("one", "delay 2ms 1ms loss 1% duplicate 1% reorder 20%")) return;
  near_->verify(*far_, 8);
  EXPECT_FALSE(near_->next(PeerEvent::Kind::down, Timeout(0)));
}

TEST_F(Netem, ARoundTripOfAThirdOfTheBoundKillsNobody) {
  ASSERT_NO_FATAL_FAILURE(meet(milliseconds(1500)));
  if (!spoil("one", "delay 250ms")) return;
  all_goes_well(4096);
  RequestOptions counted;
  counted.notify = notify_counter(5);
  EXPECT_TRUE(near_->finish(near_->write(64, counted)));
  EXPECT_TRUE(far_->counted(5, 1));
}

TEST_F(Netem, ATenthOfAllPacketsMayBeLostAndChecksumsStillAgree) {
  ASSERT_NO_FATAL_FAILURE(meet(milliseconds(5000)));
  if (!spoil("one", "delay 1ms loss 10% reorder 30% 50%")) return;
  RequestOptions checked;
  checked.checksum = true;
  all_goes_well(kLittle, checked);
}

// A slice takes four times the peer timeout: bytes that move are progress.
TEST_F(Netem, ASlowCableTakesTheTimeOfItsBytesAndNoLaneIsGivenUp) {
  ASSERT_NO_FATAL_FAILURE(meet(milliseconds(1000)));
  for (const Host* host : {&here(), &there()}) {
    const auto added = host->run(
        {"tc", "qdisc", "add", "dev", "one", "root", "tbf", "rate", "2mbit", "burst", "16kb", "latency", "200ms"});
    if (added.status != 0) GTEST_SKIP() << "this kernel has no token bucket queue (sch_tbf): " << added.output;
  }
  const auto start = std::chrono::steady_clock::now();
  const auto write = near_->write(1 << 20);
  const Status wrote = near_->finish(write);
  EXPECT_TRUE(wrote) << wrote.to_string();
  EXPECT_EQ(far_->check(7, 1 << 20), "");
  EXPECT_EQ(near_->engine->explain(*write)->retried_slices, 0U) << near_->links_text();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(8)) << "4.2 s at the least";
}

// TCP's own sum of 16 bits finds a flipped bit; a packet with one is a lost packet.
TEST_F(Netem, BitsFlippedOnTheCableAreLostPackets) {
  ASSERT_NO_FATAL_FAILURE(meet(milliseconds(5000)));
  if (!spoil("one", "delay 1ms corrupt 2%")) return;
  RequestOptions checked;
  checked.checksum = true;
  all_goes_well(kLittle, checked);
}

TEST_F(Netem, ABadCableBesideAGoodOneLosesNothing) {
  second_cable();
  ASSERT_NO_FATAL_FAILURE(meet(milliseconds(5000), "0.0.0.0:0"));
  for (int i = 0; near_->links().size() < 4 && i < 1000; ++i) (void)near_->engine->wait_peer_event(Timeout(20'000));
  ASSERT_EQ(near_->links().size(), 4U) << near_->links_text();
  if (!spoil("two", "delay 20ms 10ms loss 5%")) return;
  all_goes_well(4 * kLittle);
  all_goes_well(4 * kLittle);
}

}  // namespace
}  // namespace fairway::net
