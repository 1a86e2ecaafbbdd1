#include <vector>

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "net/side.h"

// A host on which no port is left for a while.
namespace fairway::net {
namespace {

constexpr int kFirstPort = 40'000;
constexpr int kPorts = 8;

// Holds ports so that neither bind() nor connect() can have them. In the namespace of who makes it.
class Taken {
 public:
  explicit Taken(int count = kPorts) {
    for (int i = 0; i < count; ++i) {
      sockets_.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = htons(static_cast<std::uint16_t>(kFirstPort + i));
      EXPECT_EQ(::bind(sockets_.back().get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0) << i;
    }
  }
  void free() { sockets_.clear(); }

 private:
  std::vector<sys::Fd> sockets_;
};

class Ports : public TwoHosts {
 protected:
  void SetUp() override {
    TwoHosts::SetUp();
    if (IsSkipped()) return;
    here().set_sysctl("ipv4/ip_local_port_range", fmt::format("{} {}", kFirstPort, kFirstPort + kPorts - 1));
  }
};

TEST_F(Ports, AnEngineThatCanHaveNoneSaysSoAndOpensOnceThereAreSome) {
  Taken taken;
  const Near refused(options_of("near", "10.77.1.1:0"));
  EXPECT_EQ(refused.opened.code(), ErrorCode::resource_exhausted) << refused.opened.to_string();
  EXPECT_NE(refused.opened.message().find("ip_local_port_range"), std::string::npos) << refused.opened.to_string();
  taken.free();
  const Near near(options_of("near", "10.77.1.1:0"));
  EXPECT_TRUE(near.opened) << near.opened.to_string();
}

TEST_F(Ports, APortThatIsTakenIsAnotherError) {
  const Taken taken(1);
  const Near refused(options_of("near", fmt::format("10.77.1.1:{}", kFirstPort)));
  EXPECT_EQ(refused.opened.code(), ErrorCode::already_exists) << refused.opened.to_string();
}

TEST_F(Ports, AConnectWithoutAPortSaysSoAndSucceedsOnceThereAreSome) {
  Far far(there(), options_of("far", "10.77.1.2:0"));
  Near near(options_of("near", "10.77.1.1:5000"));
  Taken taken;
  const Status refused = near.meet(far.address, std::chrono::milliseconds(500));
  EXPECT_EQ(refused.code(), ErrorCode::resource_exhausted) << refused.to_string();
  EXPECT_NE(refused.message().find("ip_local_port_range"), std::string::npos) << refused.to_string();
  taken.free();
  const Status met = near.meet(far.address);
  ASSERT_TRUE(met) << met.to_string();
  near.verify(far, 1);
}

// A port can lead to two places at once, so control and one lane share the last one. The other lane is missed.
TEST_F(Ports, TheLastPortIsEnoughForALaneAndTheOtherOneFollowsLater) {
  Far far(there(), options_of("far", "10.77.1.2:0"));
  Near near(options_of("near", "10.77.1.1:5000"));
  Taken taken(kPorts - 1);
  const Status met = near.meet(far.address);
  ASSERT_TRUE(met) << met.to_string();
  near.verify(far, 1);
  EXPECT_EQ(near.links().size(), 1U) << near.links_text();
  taken.free();
  while (near.links().size() < 2 && near.next(PeerEvent::Kind::link_up)) continue;
  EXPECT_EQ(near.links().size(), 2U) << near.links_text();
  near.verify(far, 3);
}

// The far side accepts control at a port of its own and has none left for lanes.
TEST_F(Ports, AFarSideWithoutAPortForLanesIsNamedAndTheNextConnectHasThem) {
  there().set_sysctl("ipv4/ip_local_port_range", fmt::format("{} {}", kFirstPort, kFirstPort + kPorts - 1));
  Far far(there(), options_of("far", "10.77.1.2:5000"));
  Near near(options_of("near", "10.77.1.1:5000"));
  std::optional<Taken> taken;
  {
    const Inside inside(there());
    taken.emplace();
  }
  const Status refused = near.meet(far.address);
  EXPECT_EQ(refused.code(), ErrorCode::unsupported) << refused.to_string();
  EXPECT_NE(refused.message().find("ip_local_port_range"), std::string::npos) << refused.to_string();
  taken->free();
  const Status met = near.meet(far.address);
  ASSERT_TRUE(met) << met.to_string();
  near.verify(far, 1);
}

// Lanes break while no port is left for new ones: transfers fail for want of a link, and lanes return with the ports.
TEST_F(Ports, LanesThatCannotComeBackAreMissedAndReturnOnceThereArePorts) {
  if (const std::string why = why_not_destroy(); !why.empty()) GTEST_SKIP() << why;
  Far far(there(), options_of("far", "10.77.1.2:0", std::chrono::milliseconds(1000)));
  Near near(options_of("near", "10.77.1.1:5000", std::chrono::milliseconds(1000)));
  ASSERT_TRUE(near.meet(far.address));
  near.verify(far, 1);
  while (near.links().size() < 2 && near.next(PeerEvent::Kind::link_up)) continue;
  // The ports of the lanes that break are no longer among those that may be had, and the only other one is taken.
  here().set_sysctl("ipv4/ip_local_port_range", "50000 50000");
  sys::Fd last(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(50'000);
  ASSERT_EQ(::bind(last.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  destroy(here(), "dst 10.77.1.2 dport != " + far.address.substr(far.address.rfind(':')));
  ASSERT_TRUE(near.next(PeerEvent::Kind::link_down));
  const Status failed = near.finish(near.write(kBytes));
  EXPECT_EQ(failed.code(), ErrorCode::link_failed) << failed.to_string();
  last.reset();
  here().set_sysctl("ipv4/ip_local_port_range", fmt::format("{} {}", kFirstPort, kFirstPort + kPorts - 1));
  ASSERT_TRUE(near.next(PeerEvent::Kind::link_up));
  near.verify(far, 2);
}

}  // namespace
}  // namespace fairway::net
