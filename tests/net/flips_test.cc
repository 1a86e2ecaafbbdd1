#include <algorithm>
#include <cstring>
#include <random>

#include <fmt/format.h>

#include "net/between.h"

// Deeds at places that a seed chooses, and while two engines meet. Whatever comes of one: no process dies, everything
// ends within its bound with a word for what happened, what is said to have arrived has, nothing else is touched, and
// the engines work again.
namespace fairway::net {
namespace {

class Flips : public Between {
 protected:
  static constexpr std::chrono::seconds kDeadline{6};  // of each request
  static constexpr std::uint64_t kLength = 2u << 20;

  static Aim aim_of(std::mt19937& random) {
    const auto below = [&](std::uint32_t limit) { return random() % limit; };
    Aim aim;
    aim.deed = below(10) < 7 ? Deed::flip : below(3) < 2 ? Deed::cut : Deed::stall;
    aim.control = below(5) == 0;
    aim.to_listener = below(2) == 0;
    // Small places are headers, acknowledgements and the engines' records; large ones are mostly payload.
    aim.bytes = below(2) == 0 ? below(200) : below(aim.control ? 400 : static_cast<std::uint32_t>(kLength));
    aim.mask = static_cast<std::uint8_t>(1u << below(8));
    return aim;
  }
  // A write and a read with checksums, one after the other, so that each answers for all that was done meanwhile.
  void move_there_and_back(std::uint64_t seed, const std::string& what) {
    RequestOptions options;
    options.checksum = true;
    options.deadline = kDeadline;
    near_->fill(seed);
    const Status written = near_->finish(near_->write(kLength, options));
    EXPECT_TRUE(is_typed(written)) << what << ": " << written.to_string();
    if (!written) return;
    EXPECT_EQ(far_->check(seed, kLength), "") << what;
    std::fill(near_->back.address, near_->back.address + kLength, std::byte{0});
    const Status read = near_->finish(near_->read(kLength, options));
    EXPECT_TRUE(is_typed(read)) << what << ": " << read.to_string();
    if (!read) return;
    EXPECT_EQ(std::memcmp(near_->ours.address, near_->back.address, kLength), 0) << what;
  }
};

class SeededFlips : public Flips, public testing::WithParamInterface<int> {};

TEST_P(SeededFlips, LeaveEverythingWholeOrNamed) {
  const auto meddler = std::make_shared<AtByte>();
  ASSERT_NO_FATAL_FAILURE(meet_through(meddler));
  std::mt19937 random(static_cast<std::uint32_t>(GetParam()));
  for (int round = 0; round < 8 && !HasFailure(); ++round) {
    const Aim aim = aim_of(random);
    const std::string what =
        fmt::format("seed {} round {}: deed {} of {} {} the listener, byte {}, mask {:#x}", GetParam(), round,
                    static_cast<int>(aim.deed), aim.control ? "control" : "a lane", aim.to_listener ? "to" : "from",
                    aim.bytes, aim.mask);
    meddler->arm(aim);
    const auto start = std::chrono::steady_clock::now();
    move_there_and_back(static_cast<std::uint64_t>(round), what);
    EXPECT_LT(std::chrono::steady_clock::now() - start, 4 * kDeadline) << what;
    EXPECT_EQ(far_->check_surroundings(), "") << what;
    meddler->arm({Deed::flip, true, true, ~std::uint64_t{0}, 0});  // never: peace for the next meeting
    proxy_->release();
    const Status met = meet_again();
    ASSERT_TRUE(met) << what << ": " << met.to_string();
  }
  near_->verify(*far_, 99);
}

INSTANTIATE_TEST_SUITE_P(With, SeededFlips, testing::Range(1, 9));

// From control's hello to the first bytes of lanes.
TEST_F(Flips, WhileTwoEnginesMeetEndInAReasonOrNotAtAllAndTheNextMeetingSucceeds) {
  const auto meddler = std::make_shared<AtByte>();
  ASSERT_NO_FATAL_FAILURE(meet_through(meddler));
  for (const bool control : {true, false})
    for (const bool to_listener : {true, false})
      for (const Deed deed : {Deed::flip, Deed::cut})
        for (const std::uint64_t byte : {0, 9, 13, 17, 70, 101, 400}) {
          const std::string what = fmt::format("deed {} of {} {} the listener at {}", static_cast<int>(deed),
                                               control ? "control" : "a lane", to_listener ? "to" : "from", byte);
          ASSERT_TRUE(near_->engine->disconnect(near_->peer)) << what;
          meddler->arm({deed, control, to_listener, byte, 0x02});
          const Status met = near_->meet(far_->address, std::chrono::seconds(8));
          EXPECT_TRUE(met || (met.code() != ErrorCode::system_error && !met.message().empty())) << what;
          meddler->arm({Deed::flip, true, true, ~std::uint64_t{0}, 0});
          const Status again = meet_again();
          ASSERT_TRUE(again) << what << ": " << met.to_string() << ", then " << again.to_string();
        }
  near_->verify(*far_, 1);
}

}  // namespace
}  // namespace fairway::net
