#include <optional>
#include <string>

#include <fmt/format.h>
#include <unistd.h>

#include "net/side.h"

// A way that swallows long packets, as where a switch has a smaller MTU than the hosts: everything small passes.
namespace fairway::net {
namespace {

// Two hosts at a switch that drops what is longer than 1400 bytes on its way to the second, and says nothing.
class Swallow : public TwoHosts {
 protected:
  // False: the test is skipped.
  bool plug_into_switch() {
    switch_.emplace();
    if (switch_->run({"ip", "link", "add", "br0", "type", "bridge"}).status != 0) return false;
    switch_->must("ip link set dev br0 up");
    here().must("ip link delete one");
    int port = 0;
    for (const Host* host : {&here(), &there()}) {
      ++port;
      host->must(
          fmt::format("ip link add one type veth peer name p{} netns /proc/{}/fd/{}", port, ::getpid(), switch_->fd()));
      host->must(fmt::format("ip address add 10.77.1.{}/24 dev one", port));
      // One packet at a time, as on a wire: of many that are handed over at once the kernel asks no length.
      if (host->run({"ip", "link", "set", "dev", "one", "gso_max_segs", "1"}).status != 0) return false;
      switch_->must(fmt::format("ip link set dev p{} gso_max_segs 1", port));
      host->must("ip link set dev one up");
      switch_->must(fmt::format("ip link set dev p{} master br0 up", port));
    }
    switch_->must("ip link set dev p2 mtu 1400");
    return true;
  }
  std::optional<Host> switch_;
};

TEST_F(Swallow, LongSegmentsAreNamedAndTheLanesComeBackWithShortOnes) {
  if (!plug_into_switch()) GTEST_SKIP() << "this kernel has no bridge, or this ip cannot set gso_max_segs";
  Far far(there(), options_of("far", "10.77.1.2:0", std::chrono::milliseconds(1500)));
  ASSERT_EQ(far.failure, "");
  Near near(options_of("near", "10.77.1.1:0", std::chrono::milliseconds(1500)));
  const Status met = near.meet(far.address);
  ASSERT_TRUE(met) << met.to_string();
  near.fill(7);
  const Status wrote = near.finish(near.write(64 * 1024));
  EXPECT_TRUE(wrote) << wrote.to_string();
  EXPECT_EQ(far.check(7, 64 * 1024), "");
  bool named = false;
  while (const auto event = near.next(PeerEvent::Kind::link_down, Timeout(0)))
    named = named || event->reason.message().find("MTU") != std::string::npos;
  EXPECT_TRUE(named);
}

}  // namespace
}  // namespace fairway::net
