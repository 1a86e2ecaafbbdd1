#include "transport/planned_handshake.h"

#include <gtest/gtest.h>

namespace fairway::transport {
namespace {

using SaidKind = PlannedHandshake::Kind;

constexpr std::uint16_t kTriedVersion = 7;
constexpr SaidKind kAll[] = {SaidKind::hello, SaidKind::plan,   SaidKind::open,    SaidKind::accept,
                             SaidKind::ready, SaidKind::closed, SaidKind::refused, SaidKind::note};

Result<PlannedHandshake> decode(std::span<const std::byte> bytes) {
  return decode_planned(bytes, kTriedVersion, "planned");
}

PlannedHandshake sample(SaidKind kind) {
  PlannedHandshake message;
  message.kind = kind;
  if (kind != SaidKind::refused) message.token.fill(std::byte{7});
  if (kind == SaidKind::plan) message.pairs = {{1, 2}, {1, 2}, {0, 63}};
  if (kind >= SaidKind::open && kind <= SaidKind::closed) {
    message.link = 3;
    message.attempt = 12;
  }
  if (kind != SaidKind::ready && kind != SaidKind::closed && kind != SaidKind::refused)
    message.bytes.assign(9, std::byte{0x5a});
  if (kind == SaidKind::refused || kind == SaidKind::closed) message.reason = "no device";
  return message;
}

TEST(PlannedHandshake, EveryKindComesBackAsItWasSaid) {
  for (const SaidKind kind : kAll) {
    const PlannedHandshake said = sample(kind);
    const auto heard = decode(encode(said, kTriedVersion));
    ASSERT_TRUE(heard) << heard.status().to_string();
    EXPECT_EQ(heard->kind, kind);
    EXPECT_EQ(heard->token, said.token);
    EXPECT_EQ(heard->pairs, said.pairs);
    EXPECT_EQ(heard->link, said.link);
    EXPECT_EQ(heard->attempt, said.attempt);
    EXPECT_EQ(heard->bytes, said.bytes);
    EXPECT_EQ(heard->reason, said.reason);
  }
}

TEST(PlannedHandshake, CutShortOrLengthenedIsRefusedWithWords) {
  for (const SaidKind kind : kAll) {
    const auto whole = encode(sample(kind), kTriedVersion);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      const auto heard = decode(std::span(whole).first(size));
      ASSERT_FALSE(heard) << size;
      EXPECT_EQ(heard.status().code(), ErrorCode::protocol_error);
      EXPECT_TRUE(heard.status().message().starts_with("malformed planned handshake: ")) << heard.status().message();
    }
    auto longer = whole;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(decode(longer));
  }
}

TEST(PlannedHandshake, AnotherVersionIsSaidToBeOne) {
  const auto heard = decode(encode(sample(SaidKind::hello), kTriedVersion - 1));
  EXPECT_EQ(heard.status().code(), ErrorCode::version_mismatch);
  EXPECT_EQ(heard.status().message(),
            "planned: the peer speaks handshake version 6, this side 7: run the same Fairway on both sides");
}

TEST(PlannedHandshake, WhatIsBeyondTheLimitsIsRefused) {
  const auto refused = [](SaidKind kind, auto change) {
    PlannedHandshake message = sample(kind);
    change(message);
    return !decode(encode(message, kTriedVersion));
  };
  EXPECT_TRUE(refused(SaidKind::open, [](PlannedHandshake& m) { m.link = kMaxPlannedLinks; }));
  EXPECT_TRUE(refused(SaidKind::ready, [](PlannedHandshake& m) { m.attempt = 0; }));
  EXPECT_TRUE(refused(SaidKind::closed, [](PlannedHandshake& m) { m.attempt = kMaxPlannedAttempts; }));
  EXPECT_TRUE(refused(SaidKind::plan, [](PlannedHandshake& m) { m.pairs.clear(); }));
  EXPECT_TRUE(refused(SaidKind::plan, [](PlannedHandshake& m) { m.pairs.resize(kMaxPlannedLinks + 1); }));
  EXPECT_FALSE(refused(SaidKind::plan, [](PlannedHandshake& m) { m.pairs.resize(kMaxPlannedLinks); }));
  EXPECT_TRUE(refused(SaidKind::plan, [](PlannedHandshake& m) { m.pairs[0].initiator = kMaxPlannedDevices; }));
  EXPECT_TRUE(refused(SaidKind::plan, [](PlannedHandshake& m) { m.pairs[0].acceptor = kMaxPlannedDevices; }));
  EXPECT_TRUE(refused(SaidKind::accept, [](PlannedHandshake& m) { m.bytes.resize(kMaxPlannedBytes + 1); }));
  EXPECT_FALSE(refused(SaidKind::accept, [](PlannedHandshake& m) { m.bytes.resize(kMaxPlannedBytes); }));
  EXPECT_TRUE(refused(SaidKind::open, [](PlannedHandshake& m) { m.kind = static_cast<SaidKind>(0); }));
  EXPECT_TRUE(refused(SaidKind::open, [](PlannedHandshake& m) { m.kind = static_cast<SaidKind>(9); }));
}

// Whatever is changed on the way is refused, or is what some peer could have said.
TEST(PlannedHandshake, EveryBitChangedIsRefusedOrSensible) {
  for (const SaidKind kind : kAll) {
    const auto whole = encode(sample(kind), kTriedVersion);
    for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
      auto bytes = whole;
      bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
      if (const auto heard = decode(bytes)) {
        EXPECT_EQ(encode(*heard, kTriedVersion), bytes) << bit;
      }
    }
  }
}

// A reason of any length can be said; what is too long of it is left out.
TEST(PlannedHandshake, ALongReasonIsCut) {
  PlannedHandshake message = sample(SaidKind::refused);
  message.reason.assign(1000, 'x');
  const auto heard = decode(encode(message, kTriedVersion));
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->reason, std::string(256, 'x'));
}

}  // namespace
}  // namespace fairway::transport
