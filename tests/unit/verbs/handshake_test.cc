#include "transport/verbs/handshake.h"

#include <algorithm>
#include <cstdint>

#include <gtest/gtest.h>

#include "transport/verbs/memory.h"

namespace fairway::transport::verbs {
namespace {

using Kind = Handshake::Kind;

Handshake sample(Kind kind) {
  Handshake message;
  message.kind = kind;
  message.token.fill(std::byte{7});
  if (kind == Kind::hello) message.ports = {{Fabric::roce, {}, 0, 1}, {Fabric::infiniband, {}, 9, 32}};
  if (kind == Kind::plan) message.links = {{1, 2, {Fabric::roce, {}, 0}}, {0, 0, {Fabric::infiniband, {}, 4}}};
  if (kind >= Kind::open && kind <= Kind::closed) {
    message.link = 3;
    message.attempt = 12;
  }
  if (kind == Kind::open || kind == Kind::accept) message.endpoint = {17, 0xabcdef, 5, 16, 32, 0x1234'5678'9abc, 77};
  if (kind == Kind::refused) message.reason = "no device";
  return message;
}

constexpr Kind kAll[] = {Kind::hello, Kind::plan, Kind::open, Kind::accept, Kind::ready, Kind::closed, Kind::refused};

TEST(VerbsHandshake, EveryKindComesBackAsItWasSaid) {
  for (const Kind kind : kAll) {
    const Handshake said = sample(kind);
    const auto heard = decode_handshake(encode(said));
    ASSERT_TRUE(heard) << heard.status().to_string();
    EXPECT_EQ(heard->kind, kind);
    if (kind != Kind::refused) {
      EXPECT_EQ(heard->token, said.token);
    }
    EXPECT_EQ(heard->ports, said.ports);
    EXPECT_EQ(heard->links, said.links);
    EXPECT_EQ(heard->link, said.link);
    EXPECT_EQ(heard->attempt, said.attempt);
    EXPECT_EQ(heard->endpoint, said.endpoint);
    EXPECT_EQ(heard->reason, said.reason);
  }
}

TEST(VerbsHandshake, CutShortOrLengthenedIsRefusedWithWords) {
  for (const Kind kind : kAll) {
    const auto whole = encode(sample(kind));
    for (std::size_t size = 0; size < whole.size(); ++size) {
      const auto heard = decode_handshake(std::span(whole).first(size));
      ASSERT_FALSE(heard) << size;
      EXPECT_EQ(heard.status().code(), ErrorCode::protocol_error);
      EXPECT_NE(heard.status().message(), "");
    }
    auto longer = whole;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(decode_handshake(longer));
  }
}

TEST(VerbsHandshake, AnotherVersionIsSaidToBeOne) {
  auto bytes = encode(sample(Kind::hello));
  bytes[0] = std::byte{2};
  EXPECT_EQ(decode_handshake(bytes).status().code(), ErrorCode::version_mismatch);
}

TEST(VerbsHandshake, ValuesThatNoNicHasAreRefused) {
  const auto refused = [](auto change) {
    Handshake message = sample(Kind::open);
    change(message);
    return !decode_handshake(encode(message));
  };
  EXPECT_TRUE(refused([](Handshake& m) { m.endpoint.number = 0; }));
  EXPECT_TRUE(refused([](Handshake& m) { m.endpoint.number = 1 << 24; }));
  EXPECT_TRUE(refused([](Handshake& m) { m.endpoint.first_psn = 1 << 24; }));
  EXPECT_TRUE(refused([](Handshake& m) { m.endpoint.mtu = 0; }));
  EXPECT_TRUE(refused([](Handshake& m) { m.endpoint.mtu = 6; }));
  EXPECT_TRUE(refused([](Handshake& m) { m.endpoint.reads = 0; }));
  EXPECT_TRUE(refused([](Handshake& m) { m.endpoint.receives = kLeastReceives - 1; }));
  EXPECT_TRUE(refused([](Handshake& m) { m.endpoint.receives = kMostReceives + 1; }));
  EXPECT_TRUE(refused([](Handshake& m) { m.link = kMaxLinksPerPeer; }));
  EXPECT_TRUE(refused([](Handshake& m) { m.attempt = 0; }));
  EXPECT_TRUE(refused([](Handshake& m) { m.attempt = kMaxAttempts; }));
  Handshake hello = sample(Kind::hello);
  hello.ports[0].fabric = static_cast<Fabric>(3);
  EXPECT_FALSE(decode_handshake(encode(hello)));
  hello.ports.clear();
  EXPECT_FALSE(decode_handshake(encode(hello)));
  Handshake plan = sample(Kind::plan);
  plan.links[0].acceptor_port = kMaxPorts;
  EXPECT_FALSE(decode_handshake(encode(plan)));
}

// Whatever is changed on the way is refused, or is what some peer could have said.
TEST(VerbsHandshake, EveryBitChangedIsRefusedOrSensible) {
  for (const Kind kind : kAll) {
    const auto whole = encode(sample(kind));
    for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
      auto bytes = whole;
      bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
      if (const auto heard = decode_handshake(bytes)) {
        EXPECT_EQ(encode(*heard), bytes);
      }
    }
  }
}

TEST(VerbsHandshake, KeysAreOfOneSize) {
  const auto bytes = encode(Key{0x7f00'1234'5678, 42});
  ASSERT_EQ(bytes.size(), kKeyBytes);
  const auto key = decode_key(bytes);
  ASSERT_TRUE(key);
  EXPECT_EQ(key->address, 0x7f00'1234'5678u);
  EXPECT_EQ(key->rkey, 42u);
  EXPECT_FALSE(decode_key(std::span(bytes).first(11)));
  EXPECT_FALSE(decode_key({}));
}

}  // namespace
}  // namespace fairway::transport::verbs
