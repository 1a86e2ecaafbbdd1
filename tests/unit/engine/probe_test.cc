#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "two_engines.h"

namespace fairway {
namespace {

// left_ looks for what right_ and others send.
class Probe : public TwoEngines {
 protected:
  void SetUp() override {
    TwoEngines::SetUp();
    std::array<PeerEvent, 1> event;
    for (int tries = 0; tries < 10'000 && right_->poll_peer_events(event) == 0; ++tries) std::this_thread::yield();
    left_peer_ = event[0].peer;
  }
  void send(std::uint64_t tag, std::uint64_t length, std::uint64_t offset = 0) {
    EXPECT_TRUE(right_->send(left_peer_, tag, {far_region_.id, offset, length}));
  }
  std::uint64_t size_of_next(PeerId peer, std::uint64_t tag) {
    const auto found = left_->probe(peer, tag, kSoon);
    EXPECT_TRUE(found) << found.status().to_string();
    if (!found) return 0;
    EXPECT_EQ(found->peer, right_peer_);
    EXPECT_EQ(found->tag, tag);
    return found->size_bytes;
  }
  PeerId left_peer_;  // as right_ knows it
};

TEST_P(Probe, FindsTheFirstOfItsTagAndTakesNothing) {
  send(5, 100);
  send(6, 1u << 20);  // only announced
  send(5, 50);
  send(7, 0);
  for (const PeerId peer : {PeerId{}, right_peer_}) {
    EXPECT_EQ(size_of_next(peer, 6), 1u << 20);
    EXPECT_EQ(size_of_next(peer, 5), 100u);
    EXPECT_EQ(size_of_next(peer, 7), 0u);
  }
  EXPECT_EQ(finish(left_->receive(right_peer_, 5, {near_region_.id, 0, 4096}), *left_).bytes, 100u);
  EXPECT_EQ(size_of_next({}, 5), 50u);
  EXPECT_EQ(finish(left_->receive(right_peer_, 5, {near_region_.id, 0, 4096}), *left_).bytes, 50u);
  EXPECT_EQ(left_->probe({}, 5).status().code(), ErrorCode::timed_out);
  EXPECT_EQ(finish(left_->receive(right_peer_, 6, {near_region_.id, 0, 1u << 20}), *left_).bytes, 1u << 20);
  EXPECT_EQ(0, std::memcmp(near_.data(), far_.data(), 1u << 20));
}

TEST_P(Probe, WaitsForAMessageToCome) {
  for (std::uint64_t tag = 0; tag < 50; ++tag) {
    std::thread sends([&] { send(tag, 64 + tag); });
    EXPECT_EQ(size_of_next(tag % 2 == 0 ? PeerId{} : right_peer_, tag), 64 + tag);
    sends.join();
  }
}

TEST_P(Probe, AMessageForWhichAReceiveWaitsIsThatReceives) {
  const auto receive = left_->receive(right_peer_, 3, {near_region_.id, 0, 64});
  RequestOptions behind;
  behind.after = *left_->receive(right_peer_, 99, {near_region_.id, 64, 64});
  const auto second = left_->receive(right_peer_, 4, {near_region_.id, 128, 64}, behind);
  send(3, 64);
  send(4, 64);
  send(8, 64);
  EXPECT_TRUE(finish(receive, *left_).status);
  EXPECT_EQ(size_of_next({}, 8), 64u) << "those before it are here, too";
  EXPECT_EQ(left_->probe({}, 3).status().code(), ErrorCode::timed_out);
  EXPECT_EQ(left_->probe(right_peer_, 4).status().code(), ErrorCode::timed_out) << "it keeps its place";
  send(99, 64);
  EXPECT_TRUE(finish(second, *left_).status);
}

TEST_P(Probe, OfAnyPeerFindsEachPeersMessages) {
  std::vector<std::byte> words(64);
  EngineOptions options;
  options.name = "third";
  Engine third = open(options);
  std::atomic<bool> connected{false};
  std::thread steps([&] {  // left_, which its caller may have to step
    while (!connected) (void)left_->poll({});
  });
  const auto left_there = third.connect(left_->address(), kSoon);
  connected = true;
  steps.join();
  ASSERT_TRUE(left_there) << left_there.status().to_string();
  const auto region = third.register_memory(words.data(), words.size(), Access::none);
  ASSERT_TRUE(region);
  ASSERT_TRUE(third.send(*left_there, 1, {region->id, 0, 32}));
  send(1, 16);
  std::uint64_t sizes = 0;
  for (int i = 0; i < 2; ++i) {
    const auto found = left_->probe({}, 1, kSoon);
    ASSERT_TRUE(found) << found.status().to_string();
    EXPECT_EQ(found->size_bytes, found->peer == right_peer_ ? 16u : 32u);
    sizes += finish(left_->receive(found->peer, 1, {near_region_.id, 0, 64}), *left_).bytes;
  }
  EXPECT_EQ(sizes, 48u);
}

TEST_P(Probe, EndsWithThePeerAndWithTheEngine) {
  std::thread leaves([&] { right_->close(); });
  const auto gone = left_->probe(right_peer_, 1, kSoon);
  leaves.join();
  EXPECT_FALSE(gone);
  EXPECT_NE(gone.status().code(), ErrorCode::timed_out) << gone.status().to_string();
  EXPECT_EQ(left_->probe({9999, 1}, 1, kSoon).status().code(), ErrorCode::not_found);
  std::thread closes([&] { left_->close(); });
  EXPECT_EQ(left_->probe({}, 1, kSoon).status().code(), ErrorCode::closed);
  closes.join();
}

INSTANTIATE_TEST_SUITE_P(Progress, Probe, testing::Values(Progress::threads, Progress::caller));

}  // namespace
}  // namespace fairway
