#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/tables/record.h"

namespace fairway::engine {
namespace {

using Bytes = std::vector<std::byte>;

Bytes bytes_of(std::initializer_list<int> values) {
  Bytes bytes;
  for (const int value : values) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

template <class Body>
Bytes wire(const Body& body) {
  Bytes bytes(kRecordBytes);
  bytes.resize(encode(std::span(bytes), body));
  return bytes;
}

constexpr std::array<std::byte, 3> kPayload = {std::byte{7}, std::byte{8}, std::byte{9}};
constexpr RequestHead kHead{1, 2, {3, 4}};

template <RecordType type>
record::Copy<type> a_copy() {
  record::Copy<type> copy{{5, 6, {7, 8}, {}}};
  copy.copy.parts.all[0] = {9, 10};
  copy.copy.parts.all[1] = {11, 12};
  copy.copy.parts.count = 2;
  return copy;
}

// One of every type, each field with a value of its own; and whether its last field takes whatever is left.
template <class Visit>
void every_record(const Visit& visit) {
  visit(record::Event{1, {kPayload}}, true);
  visit(record::Counter{1}, false);
  visit(record::Credit{1}, false);
  visit(record::SendEager{1, 2, {3, 4}, {kPayload}}, true);
  visit(record::SendAnnounce{1, 2, {3, 4}, 5}, false);
  visit(record::SendClear{{1, 2}, {3, 4}, {kPayload}}, false);
  visit(record::SendWritten{{1, 2}, 3}, false);
  visit(record::SendAbort{{1, 2}, ErrorCode::cancelled}, false);
  visit(record::SendDone{{1, 2}, ErrorCode::truncated, 3}, false);
  visit(record::Put{kHead, 5, {kPayload}}, true);
  visit(record::Get{kHead, 5, 6}, false);
  visit(record::Atomic{kHead, 5, record::Atomic::kSet, 6, 7}, false);
  visit(record::Sum{kHead, 5, 6}, false);
  visit(record::Flush{kHead}, false);
  visit(record::Reply{1, 2, ErrorCode::revoked, 3, {kPayload}}, true);
  visit(record::Echo{1, {kPayload}}, true);
  visit(record::EchoReply{{kPayload}}, true);
  visit(record::EventArmed{1, {kPayload}}, true);
  visit(record::EventSetOff{1}, false);
  visit(record::EventGivenUp{1}, false);
  visit(record::StageAsk{1}, false);
  visit(record::StageGrant{1, ErrorCode::ok, {kPayload}}, false);
  visit(record::StageRecall{1}, false);
  visit(record::StageEnd{1}, false);
  visit(a_copy<RecordType::stage_put>(), false);
  visit(a_copy<RecordType::stage_get>(), false);
  visit(record::StageDone{1, 2, ErrorCode::system_error}, false);
  visit(record::SendArmed{{1, 2}, 3}, false);
  visit(record::ReceivePosted{1, {2, 3}, 4, {kPayload}}, false);
  visit(record::ReceiveWithdrawn{1}, false);
  visit(record::SendDirect{1, 2, {3, 4}, 5, {6, 7}}, false);
}

TEST(RecordCodec, EveryTypeComesBackAsItWasWritten) {
  int types = 0;
  every_record([&]<class Body>(const Body& body, bool) {
    const Bytes sent = wire(body);
    const auto header = decode_header(sent);
    ASSERT_TRUE(header);
    EXPECT_EQ(header->type, Body::kType);
    EXPECT_EQ(static_cast<int>(header->type), ++types) << "in the order of their numbers, none left out";
    const auto back = decode<Body>(header->body);
    ASSERT_TRUE(back) << to_string(Body::kType);
    EXPECT_EQ(wire(*back), sent) << to_string(Body::kType);
  });
  EXPECT_EQ(types, static_cast<int>(RecordType::send_direct));
}

TEST(RecordCodec, WhatIsCutOrTooLongIsRefused) {
  every_record([]<class Body>(const Body& body, bool open_ended) {
    const Bytes sent = wire(body);
    const auto fields = std::span(sent).subspan(kRecordHeader);
    const std::size_t least = open_ended ? fields.size() - kPayload.size() : fields.size();
    for (std::size_t size = 0; size < least; ++size)
      EXPECT_FALSE(decode<Body>(fields.first(size))) << to_string(Body::kType) << " of " << size << " bytes";
    Bytes longer(fields.begin(), fields.end());
    longer.push_back({});
    EXPECT_EQ(decode<Body>(longer).has_value(), open_ended) << to_string(Body::kType);
  });
}

// The layout that docs/wire-format-engine.md promises, of each kind of field once.
TEST(RecordCodec, WritesTheBytesOfTheWireFormat) {
  EXPECT_EQ(wire(record::SendDone{{0x01020304, 5}, ErrorCode::ok, 6}),
            bytes_of({0, 0, 0, 0, 9, 4, 3, 2, 1, 5, 0, 0, 0, 0, 6, 0, 0, 0}));
  EXPECT_EQ(
      wire(record::Put{{1, 2, {3, 4}}, 5, {kPayload}}),
      bytes_of({0, 0, 0, 0, 10, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 7, 8, 9}));
  EXPECT_EQ(wire(record::StageGrant{1, ErrorCode::ok, {kPayload}}),
            bytes_of({0, 0, 0, 0, 22, 1, 0, 0, 0, 0, 3, 0, 7, 8, 9}));
  record::StagePut put{{1, 2, {3, 4}, {}}};
  put.copy.parts.count = 1;
  put.copy.parts.all[0] = {5, 6};
  EXPECT_EQ(wire(put), bytes_of({0, 0, 0, 0, 25, 1, 0, 0, 0, 2, 3, 0, 0, 0, 4, 0,
                                 0, 0, 1, 0, 5,  0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0}));
}

TEST(RecordCodec, MorePartsThanASlotHasAreMalformed) {
  const auto many = [](std::uint16_t count) {
    Bytes body(4 + 1 + 8 + 2 + count * 12u);
    ByteWriter(body).put(std::uint32_t{1}).put(std::uint8_t{0}).put(std::uint64_t{0}).put(count);
    return body;
  };
  EXPECT_TRUE(decode<record::StagePut>(many(kMostParts)));
  EXPECT_FALSE(decode<record::StagePut>(many(kMostParts + 1)));
  EXPECT_FALSE(decode<record::StagePut>(many(0xffff)));
}

TEST(RecordCodec, TypesThatNobodyKnowsAreNoRecords) {
  EXPECT_FALSE(decode_header(bytes_of({0, 0, 0, 0})));
  EXPECT_FALSE(decode_header(bytes_of({0, 0, 0, 0, 0})));
  EXPECT_FALSE(decode_header(bytes_of({0, 0, 0, 0, 32})));
  EXPECT_FALSE(decode_header(bytes_of({0, 0, 0, 0, 255})));
  EXPECT_TRUE(decode_header(bytes_of({0, 0, 0, 0, 31})));
}

TEST(RecordCodec, AFullRecordHoldsTheLongestCopy) {
  record::StagePut put;
  put.copy.parts.count = kMostParts;
  EXPECT_EQ(wire(put).size(), kRecordHeader + 4 + 1 + 8 + 2 + kMostParts * 12u);
}

}  // namespace
}  // namespace fairway::engine
