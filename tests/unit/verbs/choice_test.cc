#include "transport/verbs/choice.h"

#include <gtest/gtest.h>

#include "transport/verbs/verbs.h"

namespace fairway::transport::verbs {
namespace {

Gid ipv4(unsigned a, unsigned b, unsigned c, unsigned d) {
  Gid gid{};
  gid[10] = gid[11] = std::byte{0xff};
  gid[12] = static_cast<std::byte>(a);
  gid[13] = static_cast<std::byte>(b);
  gid[14] = static_cast<std::byte>(c);
  gid[15] = static_cast<std::byte>(d);
  return gid;
}

Gid ipv6(unsigned first, unsigned second, unsigned last = 1) {
  Gid gid{};
  gid[0] = static_cast<std::byte>(first);
  gid[1] = static_cast<std::byte>(second);
  gid[15] = static_cast<std::byte>(last);
  return gid;
}

PortAddress roce(const Gid& gid) {
  return {Fabric::roce, gid, 0, 1};
}

using Pairs = std::vector<PlannedPair>;  // initiator, acceptor

TEST(VerbsChoice, TakesIpv4OfRoceV2BeforeAllElse) {
  const GidEntry entries[] = {{ipv6(0xfe, 0x80), 0, 2},     {ipv4(10, 0, 0, 1), 1, 1}, {ipv6(0x20, 0x01), 2, 2},
                              {ipv4(169, 254, 0, 9), 3, 2}, {ipv4(10, 0, 0, 1), 4, 2}, {ipv4(10, 0, 0, 2), 5, 2}};
  const auto chosen = choose_gid(Fabric::roce, entries);
  ASSERT_TRUE(chosen);
  EXPECT_EQ(chosen->index, 4u) << "the first of its kind, and not that of RoCE v1";
}

TEST(VerbsChoice, TakesGlobalIpv6BeforeASitesOwn) {
  const GidEntry entries[] = {{ipv6(0xfe, 0x80), 0, 2}, {ipv6(0xfd, 0), 1, 2}, {ipv6(0x20, 0x01), 2, 2}};
  EXPECT_EQ(choose_gid(Fabric::roce, entries)->index, 2u);
  EXPECT_EQ(choose_gid(Fabric::roce, std::span(entries).first(2))->index, 1u);
}

TEST(VerbsChoice, NeverTakesWhatDoesNotLeaveItsWire) {
  const GidEntry entries[] = {{ipv6(0xfe, 0x80), 0, 2},  {ipv4(169, 254, 1, 1), 1, 2}, {ipv4(127, 0, 0, 1), 2, 2},
                              {ipv4(0, 0, 0, 0), 3, 2},  {ipv4(224, 0, 0, 1), 4, 2},   {Gid{}, 5, 2},
                              {ipv4(10, 0, 0, 1), 6, 1}, {ipv6(0xff, 0x02), 7, 2}};
  EXPECT_FALSE(choose_gid(Fabric::roce, entries));
  EXPECT_FALSE(choose_gid(Fabric::roce, {}));
}

TEST(VerbsChoice, TakesInfinibandsFirst) {
  const GidEntry entries[] = {{ipv6(0xfe, 0x80, 3), 0, 0}, {ipv6(0xfe, 0x80, 4), 1, 0}};
  EXPECT_EQ(choose_gid(Fabric::infiniband, entries)->index, 0u);
}

TEST(VerbsChoice, PortsOfOneSubnetMeet) {
  const PortAddress ours[] = {roce(ipv4(10, 0, 1, 1)), roce(ipv4(10, 0, 2, 1)), roce(ipv4(10, 0, 3, 1))};
  const PortAddress theirs[] = {roce(ipv4(10, 0, 3, 2)), roce(ipv4(10, 0, 1, 2)), roce(ipv4(10, 0, 2, 2))};
  EXPECT_EQ(pair_ports(ours, theirs), (Pairs{{1, 0}, {2, 1}, {0, 2}}));
}

TEST(VerbsChoice, EachPortMeetsOneAtMost) {
  const PortAddress one[] = {roce(ipv4(10, 0, 0, 1))};
  const PortAddress two[] = {roce(ipv4(10, 0, 0, 2)), roce(ipv4(10, 0, 0, 3))};
  EXPECT_EQ(pair_ports(one, two).size(), 1u);
  EXPECT_EQ(pair_ports(two, one).size(), 1u);
  EXPECT_EQ(pair_ports(two, two), (Pairs{{0, 0}, {1, 1}}));
}

TEST(VerbsChoice, APairHasTheQueuePairsThatEitherSideWantsWhileAllPairsFit) {
  PortAddress ours[] = {roce(ipv4(10, 0, 0, 1)), roce(ipv4(10, 0, 1, 1))};
  PortAddress theirs[] = {roce(ipv4(10, 0, 0, 2)), roce(ipv4(10, 0, 1, 2))};
  ours[0].queue_pairs = 2;
  theirs[1].queue_pairs = 3;
  EXPECT_EQ(pair_ports(ours, theirs), (Pairs{{0, 0}, {0, 0}, {1, 1}, {1, 1}, {1, 1}}));
  ours[0].queue_pairs = kMaxQueuePairs;
  EXPECT_EQ(pair_ports(ours, theirs).size(), kMaxPlannedLinks / 2 + 3);
  EXPECT_EQ(pair_ports(std::span(ours).first(1), theirs).size(), kMaxPlannedLinks);
}

TEST(VerbsChoice, FamiliesAndFabricsDoNotMix) {
  const PortAddress v4[] = {roce(ipv4(10, 0, 0, 1))};
  const PortAddress v6[] = {roce(ipv6(0xfd, 0))};
  const PortAddress ib[] = {{Fabric::infiniband, ipv6(0xfe, 0x80, 1), 3}};
  const PortAddress same_subnet[] = {{Fabric::infiniband, ipv6(0xfe, 0x80, 2), 4}};
  const PortAddress other_subnet[] = {{Fabric::infiniband, ipv6(0xfe, 0xc0, 2), 4}};
  EXPECT_TRUE(pair_ports(v4, v6).empty());
  EXPECT_TRUE(pair_ports(v4, ib).empty());
  EXPECT_EQ(pair_ports(ib, same_subnet).size(), 1u);
  EXPECT_TRUE(pair_ports(ib, other_subnet).empty());
}

TEST(VerbsChoice, RatesAreOfDataAndUnknownIsZero) {
  EXPECT_EQ(bytes_per_second(128, 2), 50'000'000'000u) << "NDR x4: 400 Gb/s";
  EXPECT_EQ(bytes_per_second(32, 2), 12'500'000'000u) << "EDR x4: 100 Gb/s";
  EXPECT_EQ(bytes_per_second(8, 1), 1'250'000'000u);
  EXPECT_EQ(bytes_per_second(0, 2), 0u);
  EXPECT_EQ(bytes_per_second(64, 3), 0u);
}

TEST(VerbsChoice, AddressesReadAsPeopleWriteThem) {
  EXPECT_EQ(text_of(roce(ipv4(10, 0, 0, 1))), "10.0.0.1");
  EXPECT_EQ(text_of(roce(ipv6(0xfd, 0))), "fd00:0:0:0:0:0:0:1");
}

TEST(VerbsChoice, OptionsThatNoPortCanHaveAreNamedWithWhatTheyMayBe) {
  EXPECT_TRUE(check_rdma({}));
  const auto wrong = [](auto change) {
    RdmaOptions options;
    change(options);
    const Status status = check_rdma(options);
    return status.code() == ErrorCode::invalid_argument ? status.message() : status.to_string();
  };
  EXPECT_EQ(wrong([](RdmaOptions& o) { o.retries = 0; }), "EngineOptions::rdma.retries is 0: it must be 1 to 7");
  EXPECT_EQ(wrong([](RdmaOptions& o) { o.timeout = 32; }), "EngineOptions::rdma.timeout is 32: it must be 1 to 31");
  EXPECT_EQ(wrong([](RdmaOptions& o) { o.gid_index = -2; }),
            "EngineOptions::rdma.gid_index is -2: it must be -1 to 255");
  EXPECT_EQ(wrong([](RdmaOptions& o) { o.service_level = 16; }),
            "EngineOptions::rdma.service_level is 16: it must be 0 to 15");
  EXPECT_EQ(wrong([](RdmaOptions& o) { o.hop_limit = 0; }), "EngineOptions::rdma.hop_limit is 0: it must be 1 to 255");
  EXPECT_EQ(wrong([](RdmaOptions& o) { o.queue_pairs = 33; }),
            "EngineOptions::rdma.queue_pairs is 33: it must be 0 to 32");
  EXPECT_EQ(wrong([](RdmaOptions& o) { o.devices = {""}; }), "EngineOptions::rdma.devices has an empty name");
}

TEST(VerbsChoice, AddressesAreToldWithTheirIndexAndVersion) {
  const GidEntry entries[] = {{ipv4(10, 0, 0, 1), 1, 1}, {ipv4(10, 0, 0, 1), 3, 2}};
  EXPECT_EQ(text_of(entries), "1 10.0.0.1 (RoCE v1), 3 10.0.0.1");
  EXPECT_EQ(text_of(std::span<const GidEntry>()), "none");
}

}  // namespace
}  // namespace fairway::transport::verbs
