#include <algorithm>

#include "net/side.h"

// Which way bytes take between two hosts, as routes and options say.
namespace fairway::net {
namespace {

struct Family {
  const char* name;
  const char* near;
  const char* far;
};

void PrintTo(const Family& family, std::ostream* out) {
  *out << family.name;
}

class Reach : public TwoHosts, public testing::WithParamInterface<Family> {};

TEST_P(Reach, EveryByteArrivesInBothFamilies) {
  if (!has_ipv6() && GetParam().far[0] == '[') GTEST_SKIP() << "this kernel has no IPv6";
  Far far(there(), options_of("far", GetParam().far));
  ASSERT_EQ(far.failure, "");
  Near near(options_of("near", GetParam().near));
  ASSERT_TRUE(near.opened) << near.opened.to_string();
  const Status met = near.meet(far.address);
  ASSERT_TRUE(met) << met.to_string();
  near.verify(far, 1);
  for (const LinkMetrics& link : near.links()) EXPECT_EQ(link.name.find("tcp/one/"), 0U) << link.name;
}

INSTANTIATE_TEST_SUITE_P(Over, Reach,
                         testing::Values(Family{"IPv4", "10.77.1.1:0", "10.77.1.2:0"},
                                         Family{"IPv6", "[fd77:1::1]:0", "[fd77:1::2]:0"},
                                         Family{"anyIPv4", "0.0.0.0:0", "10.77.1.2:0"},
                                         Family{"anyIPv6", "[::]:0", "[fd77:1::2]:0"}),
                         [](const auto& row) { return std::string(row.param.name); });

class Paths : public TwoHosts {};

// The namespaces are of one kernel, but shm proves nearness by a socket of the network namespace, which two hosts never
// share: so none of it may be used, and the reason must be there to read.
TEST_F(Paths, SharedMemoryIsNotTakenForTwoHostsOfOneKernel) {
  EngineOptions there_options = options_of("far", "10.77.1.2:0");
  there_options.transports.clear();
  Far far(there(), there_options);
  ASSERT_EQ(far.failure, "");
  EngineOptions here_options = options_of("near", "10.77.1.1:0");
  here_options.transports.clear();
  Near near(here_options);
  ASSERT_TRUE(near.opened) << near.opened.to_string();
  ASSERT_TRUE(near.meet(far.address));
  near.verify(far, 1);
  EXPECT_EQ(near.links_text().find("shm"), std::string::npos) << near.links_text();
  const auto why = near.engine->explain(near.peer);
  ASSERT_TRUE(why);
  const auto refused = std::find_if(why->links.begin(), why->links.end(),
                                    [](const ExplainedLink& link) { return link.name.find("shm") == 0; });
  ASSERT_NE(refused, why->links.end()) << why->text();
  EXPECT_FALSE(refused->taken);
  EXPECT_NE(refused->reason, "") << why->text();
}

TEST_F(Paths, BytesForOneAddressTakeTheRouteToIt) {
  second_cable();
  Far far(there(), options_of("far", "10.77.2.2:0"));
  ASSERT_EQ(far.failure, "");
  Near near(options_of("near", "0.0.0.0:0"));
  ASSERT_TRUE(near.meet(far.address));
  near.verify(far, 1);
  EXPECT_GT(traffic(here(), "two"), kBytes);
  EXPECT_LT(traffic(here(), "one"), kBytes / 64);
}

TEST_F(Paths, EveryAddressOfAHostIsALinkOfItsOwn) {
  second_cable();
  Far far(there(), options_of("far", "0.0.0.0:0"));
  ASSERT_EQ(far.failure, "");
  Near near(options_of("near", "0.0.0.0:0"));
  ASSERT_TRUE(near.meet("10.77.1.2" + far.address.substr(far.address.rfind(':'))));
  near.verify(far, 1);
  // Two lanes to each address; they may come up one after the other.
  for (int i = 0; near.links().size() < 4 && i < 400; ++i) (void)near.engine->wait_peer_event(Timeout(10'000));
  EXPECT_EQ(near.links().size(), 4U) << near.links_text();
  EXPECT_NE(near.links_text().find("tcp/one/"), std::string::npos) << near.links_text();
  EXPECT_NE(near.links_text().find("tcp/two/"), std::string::npos) << near.links_text();
  near.verify(far, 3);
  EXPECT_GT(traffic(here(), "one"), kBytes / 4);
  EXPECT_GT(traffic(here(), "two"), kBytes / 4);
}

// Control goes where the address leads; bytes go where `interfaces` says, whichever side says it and however.
struct Chosen {
  const char* name;
  std::vector<std::string> here, there;
};

void PrintTo(const Chosen& row, std::ostream* out) {
  *out << row.name;
}

class Overridden : public TwoHosts, public testing::WithParamInterface<Chosen> {};

TEST_P(Overridden, BytesUseOnlyTheInterfacesThatAreNamed) {
  second_cable();
  EngineOptions there_options = options_of("far", "0.0.0.0:0");
  there_options.interfaces = GetParam().there;
  Far far(there(), there_options);
  ASSERT_EQ(far.failure, "");
  EngineOptions here_options = options_of("near", "0.0.0.0:0");
  here_options.interfaces = GetParam().here;
  Near near(here_options);
  ASSERT_TRUE(near.opened) << near.opened.to_string();
  const Status met = near.meet("10.77.1.2" + far.address.substr(far.address.rfind(':')));
  ASSERT_TRUE(met) << met.to_string();
  near.verify(far, 1);
  near.verify(far, 3);
  EXPECT_EQ(near.links_text().find("tcp/one/"), std::string::npos) << near.links_text();
  EXPECT_GT(traffic(here(), "two"), 2 * kBytes);
  EXPECT_LT(traffic(here(), "one"), kBytes / 64);
}

INSTANTIATE_TEST_SUITE_P(By, Overridden,
                         testing::Values(Chosen{"TheFarSide", {}, {"two"}}, Chosen{"TheNearSide", {"two"}, {}},
                                         Chosen{"BothSides", {"two"}, {"two"}}, Chosen{"AnAddress", {}, {"10.77.2.2"}},
                                         Chosen{"AnOwnAddress", {"10.77.2.1"}, {}}),
                         [](const auto& row) { return std::string(row.param.name); });

TEST_F(Paths, ControlMayUseOneInterfaceAndBytesTheOther) {
  second_cable();
  EngineOptions there_options = options_of("far", "10.77.1.2:0");
  there_options.interfaces = {"two"};
  Far far(there(), there_options);
  ASSERT_EQ(far.failure, "");
  Near near(options_of("near", "10.77.1.1:0"));
  ASSERT_TRUE(near.meet(far.address));
  near.verify(far, 1);
  EXPECT_GT(traffic(here(), "two"), kBytes);
  EXPECT_LT(traffic(here(), "one"), kBytes / 64);
}

// A connection to the only address that is offered would leave by an interface that may not be used.
TEST_F(Paths, WithoutARouteByAnInterfaceOfOnesOwnThereIsNoLinkAndTheReasonIsGiven) {
  second_cable();
  Far far(there(), options_of("far", "10.77.1.2:0"));
  ASSERT_EQ(far.failure, "");
  EngineOptions here_options = options_of("near", "0.0.0.0:0");
  here_options.interfaces = {"two"};
  Near near(here_options);
  const Status met = near.meet(far.address);
  EXPECT_EQ(met.code(), ErrorCode::unsupported) << met.to_string();
  EXPECT_NE(met.message().find("EngineOptions::interfaces does not allow"), std::string::npos) << met.to_string();
}

TEST_F(Paths, AnInterfaceThatIsNotThereIsAnErrorThatNamesIt) {
  EngineOptions options = options_of("near", "0.0.0.0:0");
  options.interfaces = {"three"};
  const Near near(options);
  EXPECT_EQ(near.opened.code(), ErrorCode::unsupported) << near.opened.to_string();
  EXPECT_NE(near.opened.message().find("three"), std::string::npos) << near.opened.to_string();
}

}  // namespace
}  // namespace fairway::net
