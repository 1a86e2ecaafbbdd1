#include <gtest/gtest.h>

#include "transport/command.h"
#include "transport/verbs/handshake.h"

namespace fairway::transport::verbs {
namespace {

constexpr PeerIndex kPeer = 3;

RenewedKey key_of(std::uint32_t slot, std::uint32_t rkey, std::uint64_t word = 0, std::uint32_t generation = 1) {
  return {handle_of({slot, generation}), {0x1000, rkey, {word, word == 0 ? 0U : 9U}}};
}

TEST(RenewedKeys, ComeBackAsTheyWereSaid) {
  const std::vector<RenewedKey> said{key_of(1, 11), key_of(2, 12, 0x7000)};
  const auto bytes = encode_renewed(5, said);
  std::size_t port = 0;
  const auto heard = decode_renewed(bytes, port);
  ASSERT_TRUE(heard) << heard.status().message();
  EXPECT_EQ(port, 5U);
  ASSERT_EQ(heard->size(), said.size());
  for (std::size_t i = 0; i < said.size(); ++i) {
    EXPECT_EQ((*heard)[i].region, said[i].region);
    EXPECT_EQ(encode((*heard)[i].key), encode(said[i].key));
  }
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto cut = decode_renewed(std::span(bytes).first(size), port);
    if (cut) {
      EXPECT_EQ(encode_renewed(port, *cut).size(), size) << "whole keys, and fewer";
    }
  }
  EXPECT_FALSE(decode_renewed(encode_renewed(kMaxPorts, said), port));
  EXPECT_FALSE(decode_renewed(encode_renewed(0, {}), port));
  EXPECT_FALSE(decode_renewed(encode_renewed(0, std::vector<RenewedKey>(kRenewedInNote + 1, said[0])), port));
  const auto most = encode_renewed(0, std::vector<RenewedKey>(kRenewedInNote, said[1]));
  EXPECT_TRUE(decode_renewed(most, port));
  EXPECT_LE(most.size(), kMaxPlannedBytes);
}

TEST(RenewedKeys, AreTheLastOfThatRegionOfThatPeerAtThatPort) {
  RenewedKeys keys;
  ASSERT_TRUE(keys.keep(kPeer, 0, std::vector<RenewedKey>{key_of(1, 11), key_of(2, 12)}));
  ASSERT_TRUE(keys.keep(kPeer, 1, std::vector<RenewedKey>{key_of(1, 21)}));
  ASSERT_TRUE(keys.keep(kPeer, 0, std::vector<RenewedKey>{key_of(1, 31)}));
  const auto first = keys.of(kPeer, {1, 1});
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[0].key.rkey, 31U);
  EXPECT_EQ(first[1].key.rkey, 21U);
  EXPECT_EQ(first[1].port, 1U);
  EXPECT_EQ(keys.of(kPeer, {2, 1}).size(), 1U);
  EXPECT_TRUE(keys.of(kPeer, {2, 2}).empty()) << "another region in its place";
  EXPECT_TRUE(keys.of(kPeer + 1, {1, 1}).empty());
  ASSERT_TRUE(keys.keep(kPeer, 0, std::vector<RenewedKey>{key_of(1, 41, 0, 2)}));
  EXPECT_TRUE(keys.of(kPeer, {1, 1}).empty()) << "that one is gone";
  EXPECT_EQ(keys.of(kPeer, {1, 2}).size(), 1U);
  keys.forget(kPeer);
  EXPECT_TRUE(keys.of(kPeer, {2, 1}).empty());
}

TEST(RenewedKeys, OfMoreRegionsThanAnyoneHasAreRefused) {
  RenewedKeys keys;
  for (std::uint32_t i = 0; i < RenewedKeys::kMostRegions; ++i)
    ASSERT_TRUE(keys.keep(kPeer, 0, std::vector<RenewedKey>{key_of(i, i)}));
  EXPECT_TRUE(keys.keep(kPeer, 0, std::vector<RenewedKey>{key_of(7, 8)}));
  EXPECT_FALSE(keys.keep(kPeer, 0, std::vector<RenewedKey>{key_of(RenewedKeys::kMostRegions, 1)}));
  EXPECT_TRUE(keys.keep(kPeer + 1, 0, std::vector<RenewedKey>{key_of(RenewedKeys::kMostRegions, 1)}));
}

}  // namespace
}  // namespace fairway::transport::verbs
