#include <gtest/gtest.h>

#include "topology/machine.h"

namespace fairway::topology {
namespace {

TEST(BusId, TakesSysfsLspciAndNvmlSpellings) {
  EXPECT_EQ(BusId::parse("0000:2c:00.1"), (BusId{0, 0x2c, 0, 1}));
  EXPECT_EQ(BusId::parse("2c:1f.7"), (BusId{0, 0x2c, 0x1f, 7}));
  EXPECT_EQ(BusId::parse("00000000:2C:00.0"), (BusId{0, 0x2c, 0, 0}));
  EXPECT_EQ(BusId::parse("10000:e0:01.0"), (BusId{0x10000, 0xe0, 1, 0}));
  EXPECT_EQ(BusId::parse("ffff:ff:01.0")->to_string(), "ffff:ff:01.0");
}

TEST(BusId, RefusesWhatIsNone) {
  for (const char* text : {"", "0000", "0000:2c", "0000:2c:00", "0000:2c:20.0", "0000:2c:00.8", "0000:2cc:00.0",
                           "x:2c:00.0", "1:2:3:4.5", "0000:2c:00.0 ", "-1:2c:00.0", "000000000:2c:00.0", ":2c:00.0"}) {
    EXPECT_FALSE(BusId::parse(text)) << text;
  }
}

TEST(CpuSet, ListAndMaskSayTheSame) {
  const auto list = CpuSet::parse_list("0-23,48-71");
  const auto mask = CpuSet::parse_mask("000000ff,ffff0000,00ffffff");
  ASSERT_TRUE(list && mask);
  EXPECT_EQ(*list, *mask);
  EXPECT_EQ(list->to_mask(), "000000ff,ffff0000,00ffffff");
  EXPECT_EQ(mask->to_list(), "0-23,48-71");
  EXPECT_EQ(list->count(), 48U);
}

TEST(CpuSet, HwlocLeavesZeroWordsEmpty) {
  const auto set = CpuSet::parse_mask("0xffffffff,0xffff0000,,0xffffffff,0xffff0000,0x0");
  ASSERT_TRUE(set);
  EXPECT_EQ(set->to_list(), "48-95,144-191");
}

TEST(CpuSet, RefusesAbsurdNumbers) {
  EXPECT_FALSE(CpuSet::parse_list("0-99999999"));
  EXPECT_FALSE(CpuSet::parse_list("5-2"));
  EXPECT_FALSE(CpuSet::parse_list("1,,2"));
  EXPECT_FALSE(CpuSet::parse_mask("xyz"));
  EXPECT_FALSE(CpuSet::parse_mask("123456789,0"));
  EXPECT_FALSE(CpuSet::parse_mask(std::string(100000, ',')));
}

TEST(PathClass, ParsesWhatItPrints) {
  for (const char* text : {"X", "NV18", "XGMI4", "PIX", "PXB", "PHB", "NODE", "SYS", "?"}) {
    const auto parsed = PathClass::parse(text);
    ASSERT_TRUE(parsed) << text;
    EXPECT_EQ(parsed->to_string(), text);
  }
  EXPECT_FALSE(PathClass::parse("NV"));
  EXPECT_FALSE(PathClass::parse("NV0"));
  EXPECT_FALSE(PathClass::parse("PI"));
}

TEST(PortRate, IsLanesTimesLaneRate) {
  const auto rate = parse_port_rate("200 Gb/sec (2X NDR)");
  ASSERT_TRUE(rate);
  EXPECT_DOUBLE_EQ(rate->gbps, 200);
  EXPECT_EQ(rate->lanes, 2U);
  EXPECT_DOUBLE_EQ(rate->gbps / rate->lanes, 100);
  EXPECT_EQ(rate->speed_name, "NDR");
  EXPECT_DOUBLE_EQ(parse_port_rate("2.5 Gb/sec (1X SDR)")->gbps, 2.5);
  EXPECT_FALSE(parse_port_rate("fast"));
  EXPECT_FALSE(parse_port_rate("-4 Gb/sec (4X NDR)"));
}

TEST(PcieRate, MatchesTheGenerations) {
  EXPECT_NEAR(pcie_gbs(8, 16), 15.75, 0.01);
  EXPECT_NEAR(pcie_gbs(16, 16), 31.5, 0.01);
  EXPECT_NEAR(pcie_gbs(32, 16), 63.0, 0.02);
  EXPECT_NEAR(pcie_gbs(2.5, 1), 0.25, 0.001);
}

Bond lacp(double first, double second) {
  Bond bond;
  bond.mode.set("802.3ad", Source::bonding);
  bond.active_aggregator.set(1, Source::bonding);
  for (const double speed : {first, second}) {
    BondLeg leg;
    leg.up.set(true, Source::bonding);
    leg.speed_gbps.set(speed, Source::bonding);
    leg.aggregator.set(1, Source::bonding);
    bond.legs.push_back(leg);
  }
  return bond;
}

TEST(Bond, CarriesTheSumAndOneFlowOneLeg) {
  auto bond = lacp(200, 200);
  EXPECT_DOUBLE_EQ(*bond_capacity_gbps({}, bond), 400);
  EXPECT_DOUBLE_EQ(*bond_one_flow_gbps({}, bond), 200);
  bond.legs[1].up.set(false, Source::bonding);
  EXPECT_DOUBLE_EQ(*bond_capacity_gbps({}, bond), 200);
  bond.legs[1] = bond.legs[0];
  bond.legs[1].aggregator.set(2, Source::bonding);
  EXPECT_DOUBLE_EQ(*bond_capacity_gbps({}, bond), 200);
}

TEST(Bond, OfUnknownLegsIsUnknown) {
  auto bond = lacp(200, 200);
  bond.legs[1].speed_gbps.forget();
  EXPECT_FALSE(bond_capacity_gbps({}, bond));
  EXPECT_FALSE(bond_one_flow_gbps({}, bond));
}

TEST(Bond, BackupCarriesOneLeg) {
  auto bond = lacp(100, 100);
  bond.mode.set("active-backup", Source::bonding);
  EXPECT_DOUBLE_EQ(*bond_capacity_gbps({}, bond), 100);
}

TEST(Fact, KeepsTheFirstValueAndReportsAConflict) {
  Fact<int> fact;
  EXPECT_FALSE(fact.known());
  EXPECT_TRUE(fact.learn(1, Source::sysfs));
  EXPECT_TRUE(fact.learn(1, Source::lspci));
  EXPECT_FALSE(fact.learn(2, Source::lspci));
  EXPECT_EQ(*fact, 1);
  EXPECT_EQ(fact.source, Source::sysfs);
}

}  // namespace
}  // namespace fairway::topology
