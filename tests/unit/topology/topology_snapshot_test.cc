#include "machines/build_machines.h"
#include "topology/load.h"
#include "topology_support.h"

namespace fairway::topology {
namespace {

// A machine with every identity that a snapshot may carry.
Machine with_identities() {
  auto machine = machines::h100_host("host-0");
  machine.host_name.set("secret-host", Source::procfs);
  machine.gpus[0].uuid.set("GPU-secret-uuid", Source::nvml);
  machine.gpus[0].serial.set("secret-serial", Source::nvml);
  machine.rdma[0].node_guid.set("secret:guid", Source::sysfs);
  machine.rdma[0].system_guid.set("secret:image", Source::sysfs);
  Gid gid;
  gid.address.set("secret:gid", Source::sysfs);
  gid.type.set("RoCE v2", Source::sysfs);
  machine.rdma[0].ports[0].gids.push_back(gid);
  NetInterface interface;
  interface.name = "eth0";
  interface.mac.set("secret:mac", Source::sysfs);
  interface.addresses.set({"secret:address"}, Source::netlink);
  interface.has_address.set(true, Source::netlink);
  machine.interfaces.push_back(interface);
  return machine;
}

class Snapshot : public ::testing::Test {
 protected:
  void SetUp() override {
#ifndef FAIRWAY_HAVE_JSON
    GTEST_SKIP() << "this build has no nlohmann-json";
#endif
  }
};

TEST_F(Snapshot, LoadsWhatItWrote) {
  const auto machine = with_identities();
  const auto text = write_snapshot(machine, {.keep_identities = true});
  ASSERT_TRUE(text) << text.status().to_string();
  const auto again = read_snapshot(*text, "snapshot");
  ASSERT_TRUE(again) << again.status().to_string();
  EXPECT_TRUE(*again == machine);
  EXPECT_EQ(*write_snapshot(*again, {.keep_identities = true}), *text);
}

TEST_F(Snapshot, LoadsTheFabricItWrote) {
  const auto fabric = machines::two_rail_hosts();
  const auto text = write_snapshot(fabric);
  ASSERT_TRUE(text) << text.status().to_string();
  const auto again = read_fabric_snapshot(*text, "fabric");
  ASSERT_TRUE(again) << again.status().to_string();
  EXPECT_TRUE(*again == fabric);
}

TEST_F(Snapshot, CarriesNoIdentityUnlessAsked) {
  const auto machine = with_identities();
  EXPECT_EQ(write_snapshot(machine)->find("secret"), std::string::npos);
  EXPECT_NE(write_snapshot(machine, {.keep_identities = true})->find("secret"), std::string::npos);
  const auto again = read_snapshot(*write_snapshot(machine), "snapshot");
  ASSERT_TRUE(again);
  EXPECT_EQ(*again->rdma[0].ports[0].gids[0].type, "RoCE v2");
  EXPECT_TRUE(*again->interfaces[0].has_address);
}

TEST_F(Snapshot, OfVersionOneIsReadAndWrittenWithNames) {
  const auto old =
      read_snapshot(R"({"format": "fairway machine", "version": 1, "machine": {"kernel": ["6.1", "procfs"]}})", "old");
  ASSERT_TRUE(old) << old.status().message();
  EXPECT_EQ(*old->kernel, "6.1");
  EXPECT_EQ(old->kernel.source, Source::procfs);
  const auto written = write_snapshot(*old);
  ASSERT_TRUE(written);
  EXPECT_NE(written->find(R"("format": "fairway-machine")"), std::string::npos) << *written;
  EXPECT_NE(written->find(R"("kernel":{"value":"6.1","source":"procfs"})"), std::string::npos) << *written;
  EXPECT_EQ(*read_snapshot(*written, "new"), *old);
}

TEST_F(Snapshot, AFactWithoutItsSourceIsNone) {
  for (const char* kernel : {R"({"value": "6.1"})", R"(["6.1"])", R"("6.1")", R"({"value": "6.1", "of": "procfs"})"}) {
    const auto read = read_snapshot(
        std::string(R"({"format": "fairway-machine", "version": 2, "machine": {"kernel": )") + kernel + "}}", "x");
    ASSERT_FALSE(read) << kernel;
    EXPECT_NE(read.status().message().find("is not a fact"), std::string::npos) << read.status().message();
  }
}

TEST_F(Snapshot, OfANewerVersionSaysSo) {
  const auto result = read_snapshot(R"({"format": "fairway machine", "version": 99, "machine": {}})", "new.json");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.status().code(), ErrorCode::version_mismatch);
  EXPECT_NE(result.status().message().find("new.json"), std::string::npos);
  EXPECT_NE(result.status().message().find("99"), std::string::npos);
}

TEST_F(Snapshot, NamesThePlaceOfAMistake) {
  const auto message = [](const std::string& machine) {
    return read_snapshot(R"({"format": "fairway machine", "version": 1, "machine": )" + machine + "}", "bad.json")
        .status()
        .message();
  };
  EXPECT_NE(message(R"({"gpus": [{"ordinal": "x"}]})").find("machine.gpus[0].ordinal"), std::string::npos);
  EXPECT_NE(message(R"({"gpus": [{"pcie": 1}]})").find("pcie"), std::string::npos);
  EXPECT_NE(message(R"({"gpus": [{"ordinal": 0, "pci": 7}]})").find("7"), std::string::npos);
  EXPECT_NE(message(R"({"pci": [{"bus_id": "nonsense"}]})").find("nonsense"), std::string::npos);
  EXPECT_NE(message(R"({"kernel": ["x","nobody"]})").find("machine.kernel"), std::string::npos);
  const std::string link = message(R"({"links": [{"kind": "warp", "a": {"gpu": 0}, "b": {"gpu": 1}}]})");
  EXPECT_NE(link.find("machine.links[0].kind"), std::string::npos) << link;
  EXPECT_NE(link.find("warp"), std::string::npos) << link;
  EXPECT_NE(message("{\n\n oops").find("line 3"), std::string::npos);
}

TEST_F(Snapshot, RefusesADeviceBelowItself) {
  const auto result = read_snapshot(R"({"format": "fairway machine", "version": 1, "machine": {"pci": [
      {"bus_id": "0000:01:00.0", "parent": 1}, {"bus_id": "0000:02:00.0", "parent": 0}]}})",
                                    "cycle.json");
  ASSERT_FALSE(result);
  EXPECT_NE(result.status().message().find("below itself"), std::string::npos);
}

TEST_F(Snapshot, RefusesImpossibleNumbers) {
  for (const char* machine :
       {R"({"nics": [{"name": "a", "rate_gbps": [-1.0, "sysfs"]}]})",
        R"({"nics": [{"name": "a", "rate_gbps": [1e300, "sysfs"]}]})", R"({"gpus": [{"ordinal": -1}]})",
        R"({"gpus": [{"ordinal": 1e20}]})", R"({"gpus": [{"ordinal": 99999999999}]})"}) {
    EXPECT_FALSE(
        read_snapshot(std::string(R"({"format": "fairway machine", "version": 1, "machine": )") + machine + "}", "x"))
        << machine;
  }
}

TEST(Complete, IsIdempotent) {
  auto machine = machines::h100_host("host-0");
  const auto before = machine;
  complete(machine);
  EXPECT_TRUE(machine == before);
}

}  // namespace
}  // namespace fairway::topology
