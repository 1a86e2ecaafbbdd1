#include "transport/loopback/handshake.h"

#include <vector>

#include <gtest/gtest.h>

namespace fairway::transport::loopback {

TEST(LoopbackHandshake, SurvivesTheJourney) {
  Handshake message;
  message.kind = Handshake::Kind::offer;
  message.fabric = 0x1122334455667788;
  message.offer = 42;
  message.attempt = 3;
  message.index = 2;
  message.links = 5;
  const auto bytes = encode(message);
  const auto back = decode_handshake(bytes);
  ASSERT_TRUE(back) << back.status().to_string();
  EXPECT_EQ(back->kind, Handshake::Kind::offer);
  EXPECT_EQ(back->fabric, message.fabric);
  EXPECT_EQ(back->offer, message.offer);
  EXPECT_EQ(back->attempt, message.attempt);
  EXPECT_EQ(back->index, message.index);
  EXPECT_EQ(back->links, message.links);
}

TEST(LoopbackHandshake, EveryLengthButTheRightOneIsRefused) {
  const auto bytes = encode({});
  std::vector<std::byte> longer(bytes.begin(), bytes.end());
  longer.resize(bytes.size() + 9);
  for (std::size_t size = 0; size <= longer.size(); ++size)
    if (size != bytes.size()) {
      EXPECT_FALSE(decode_handshake(std::span(longer).first(size))) << size;
    }
}

TEST(LoopbackHandshake, AnotherVersionIsNamedAsSuch) {
  auto bytes = encode({});
  bytes[4] = std::byte{9};
  EXPECT_EQ(decode_handshake(bytes).status().code(), ErrorCode::version_mismatch);
}

TEST(LoopbackHandshake, FieldsOutOfRangeAreRefused) {
  Handshake offer;
  offer.kind = Handshake::Kind::offer;
  offer.attempt = 1;
  offer.links = 4;
  offer.index = 4;
  EXPECT_FALSE(decode_handshake(encode(offer)));
  offer.index = 3;
  EXPECT_TRUE(decode_handshake(encode(offer)));
  offer.links = kMaxLinksPerPeer + 1;
  EXPECT_FALSE(decode_handshake(encode(offer)));
  offer.links = 4;
  offer.attempt = 0;
  EXPECT_FALSE(decode_handshake(encode(offer)));
  Handshake hello;
  EXPECT_FALSE(decode_handshake(encode(hello))) << "a hello of no devices";
  auto bytes = encode(offer);
  bytes[6] = std::byte{0};
  EXPECT_FALSE(decode_handshake(bytes)) << "no kind";
  bytes[6] = std::byte{5};
  EXPECT_FALSE(decode_handshake(bytes)) << "an unknown kind";
  bytes = encode(offer);
  bytes[35] = std::byte{1};
  EXPECT_FALSE(decode_handshake(bytes)) << "a reserved field";
}

}  // namespace fairway::transport::loopback
