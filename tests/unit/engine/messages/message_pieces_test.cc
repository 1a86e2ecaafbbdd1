#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fairway/engine.h"
#include "fairway/loopback.h"

#include "support/open_engine.h"

// Messages whose memory is a list of extents, at the sender, at the receiver, or at both.
namespace fairway::message_pieces {
namespace {

constexpr Timeout kSoon = std::chrono::seconds(20);
constexpr std::size_t kBytes = 8U << 20;

class MessagePieces : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    EngineOptions options;
    if (GetParam() == "loopback") options.loopback = make_loopback();
    options.transports = {GetParam()};
    options.peer_timeout = std::chrono::seconds(60);
    for (auto [engine, memory, region] :
         {std::tuple(&left_, &from_, &from_region_), std::tuple(&right_, &to_, &to_region_)}) {
      auto opened = open_engine(options);
      ASSERT_TRUE(opened) << opened.status().to_string();
      engine->emplace(std::move(*opened));
      memory->resize(kBytes);
      auto made = (*engine)->register_memory(memory->data(), kBytes, Access::none);
      ASSERT_TRUE(made);
      *region = *made;
    }
    for (std::size_t i = 0; i < kBytes; ++i) from_[i] = static_cast<std::uint8_t>(i * 7 + i / 253);
    const auto there = left_->connect(right_->address(), kSoon);
    ASSERT_TRUE(there) << there.status().to_string();
    right_peer_ = *there;
    std::array<PeerEvent, 1> event;
    while (right_->poll_peer_events(event) == 0) (void)right_->wait_peer_event(kSoon);
    left_peer_ = event[0].peer;
  }
  // Pieces of those lengths, backwards and with gaps.
  static std::vector<Extent> pieces(const Region& region, const std::vector<std::uint64_t>& lengths) {
    std::vector<Extent> list;
    std::uint64_t at = kBytes;
    for (const std::uint64_t length : lengths) {
      at -= length + 13;
      list.push_back({{region.id, at, length}, {}});
    }
    return list;
  }
  static std::vector<std::uint8_t> bytes_of(const std::vector<std::uint8_t>& memory, const std::vector<Extent>& list) {
    std::vector<std::uint8_t> all;
    for (const Extent& each : list)
      all.insert(all.end(), memory.begin() + static_cast<std::ptrdiff_t>(each.local.offset),
                 memory.begin() + static_cast<std::ptrdiff_t>(each.local.offset + each.local.length));
    return all;
  }
  static Completion finish(Engine& engine, const Result<TransferId>& id) {
    EXPECT_TRUE(id) << id.status().to_string();
    if (!id) return {};
    auto done = engine.wait(*id, kSoon);
    EXPECT_TRUE(done) << done.status().to_string();
    return done ? *done : Completion{};
  }
  // A message of these pieces to those, all of whose bytes and no others must arrive.
  void move(const std::vector<std::uint64_t>& out, const std::vector<std::uint64_t>& in,
            const RequestOptions& options) {
    const auto from = pieces(from_region_, out), to = pieces(to_region_, in);
    std::memset(to_.data(), 0, kBytes);
    const auto receive = [&] { return right_->receive(left_peer_, 3, std::span<const Extent>(to)); };
    std::optional<Result<TransferId>> received;
    if (++turns_ % 2 == 0) received = receive();
    const auto sent = left_->send(right_peer_, 3, std::span<const Extent>(from), options);
    if (!received) {
      ASSERT_TRUE(right_->probe(left_peer_, 3, kSoon));
      received = receive();
    }
    const Completion done = finish(*right_, *received), gone = finish(*left_, sent);
    EXPECT_TRUE(done.status) << done.status.to_string();
    EXPECT_TRUE(gone.status) << gone.status.to_string();
    // Those of the pieces, and no other byte.
    const auto wanted = bytes_of(from_, from);
    EXPECT_EQ(done.bytes, wanted.size());
    std::vector<std::uint8_t> expected(kBytes);
    std::size_t at = 0;
    for (const Extent& each : to) {
      const std::size_t length = std::min<std::size_t>(each.local.length, wanted.size() - at);
      std::memcpy(expected.data() + each.local.offset, wanted.data() + at, length);
      at += length;
    }
    EXPECT_EQ(std::memcmp(to_.data(), expected.data(), kBytes), 0);
  }

  std::optional<Engine> left_, right_;
  std::vector<std::uint8_t> from_, to_;
  Region from_region_, to_region_;
  PeerId right_peer_, left_peer_;
  int turns_ = 0;
};

TEST_P(MessagePieces, AllArriveInTheirOrder) {
  const std::vector<std::vector<std::uint64_t>> lists{
      {64},        {1, 2, 3, 58},          {0, 64, 0},          {30, 0, 5, 29},  // copied
      {20'000},    {3, 9'000, 10'997},     {10'000, 0, 10'000}, {1, 19'999},     // longer than that
      {3'000'000}, {1'000'001, 1'999'999}, {7, 2'999'000, 993}, {1'500'000, 1'500'000}};
  RequestOptions checked;
  checked.checksum = true;
  for (std::size_t i = 0; i < lists.size(); ++i)
    for (std::size_t j = i / 4 * 4; j < i / 4 * 4 + 4; ++j)
      for (int again = 0; again < 2; ++again) {
        SCOPED_TRACE(std::to_string(i) + " to " + std::to_string(j));
        move(lists[i], lists[j], {});
        move(lists[i], lists[j], checked);
      }
  move({100, 20}, {1'000, 70'000, 1}, {});  // a receive of more
  move({50'000, 20}, {1'000, 70'000, 1}, {});
  move(std::vector<std::uint64_t>(1024, 3), std::vector<std::uint64_t>(512, 6), {});
  move(std::vector<std::uint64_t>(1000, 300), std::vector<std::uint64_t>(500, 600), {});
  EXPECT_EQ(left_->metrics().transfers_in_use + right_->metrics().transfers_in_use, 0U);
  EXPECT_TRUE(left_->deregister(from_region_, kSoon));
  EXPECT_TRUE(right_->deregister(to_region_, kSoon));
}

TEST_P(MessagePieces, TooManyBytesAreTruncated) {
  for (const std::uint64_t length : {std::uint64_t{100}, std::uint64_t{100'000}}) {
    const auto from = pieces(from_region_, {length, 1}), to = pieces(to_region_, {length / 2, length / 2});
    const auto received = right_->receive(left_peer_, 3, std::span<const Extent>(to));
    const auto sent = left_->send(right_peer_, 3, std::span<const Extent>(from));
    EXPECT_EQ(finish(*right_, received).status.code(), ErrorCode::truncated);
    EXPECT_EQ(finish(*left_, sent).status.code(), ErrorCode::truncated);
  }
}

// The pieces' regions end like others: the receive with them, and what is left of the message elsewhere.
TEST_P(MessagePieces, EndWithTheirMemory) {
  std::vector<std::uint8_t> other(4096);
  const auto memory = right_->register_memory(other.data(), other.size(), Access::none);
  ASSERT_TRUE(memory);
  const std::vector<Extent> to{{{to_region_.id, 0, 100}, {}}, {{memory->id, 0, 4096}, {}}};
  const auto received = right_->receive(left_peer_, 3, std::span<const Extent>(to));
  ASSERT_TRUE(received);
  EXPECT_TRUE(right_->deregister(*memory, kSoon));
  EXPECT_EQ(finish(*right_, received).status.code(), ErrorCode::cancelled);
  const std::vector<Extent> from{{{from_region_.id, 0, 50}, {}}};
  const auto sent = left_->send(right_peer_, 3, std::span<const Extent>(from));
  EXPECT_EQ(finish(*right_, right_->receive(left_peer_, 3, {to_region_.id, 0, 4096})).bytes, 50U);
  EXPECT_TRUE(finish(*left_, sent).status);
}

TEST_P(MessagePieces, WhatCannotBeIsRefused) {
  const auto refused = [&](std::span<const Extent> list, ErrorCode code, PeerId peer) {
    EXPECT_EQ(right_->receive(peer, 1, list).status().code(), code);
    if (peer) {
      EXPECT_NE(right_->send(peer, 1, list).status().code(), ErrorCode::ok);
    }
  };
  refused({}, ErrorCode::invalid_argument, left_peer_);
  const std::vector<Extent> many(1025, {{to_region_.id, 0, 1}, {}});
  refused(many, ErrorCode::invalid_argument, left_peer_);
  const std::vector<Extent> beyond{{{to_region_.id, 0, 1}, {}}, {{to_region_.id, kBytes, 1}, {}}};
  refused(beyond, ErrorCode::out_of_range, left_peer_);
  EXPECT_EQ(right_->receive({}, 1, std::span(many).first(2)).status().code(), ErrorCode::invalid_argument);
  const std::vector<Extent> huge(9, {{to_region_.id, 0, kBytes}, {}});
  EXPECT_EQ(right_->receive(left_peer_, 1, huge).status().code(), ErrorCode::invalid_argument);
  Request strided{.operation = Operation::send, .peer = left_peer_, .layout = Strided{}};
  TransferId id;
  EXPECT_EQ(right_->submit({&strided, 1}, {&id, 1}).status.code(), ErrorCode::invalid_argument);
}

INSTANTIATE_TEST_SUITE_P(Over, MessagePieces, testing::Values("loopback", "shm", "tcp"),
                         [](const auto& over) { return over.param; });

}  // namespace
}  // namespace fairway::message_pieces
