#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "nccl_net/message.h"
#include "nccl_net/nccl_settings.h"
#include "nccl_net/nic.h"
#include "nccl_net/settings.h"

// The plugin's own parts that need no engine.
namespace fairway::nccl {
namespace {

TEST(NcclMessage, ComesBackAsItWas) {
  Message message;
  message.kind = Message::Kind::post;
  message.count = 8;
  message.to_generation = 7;
  message.from = {3, 4};
  message.sequence = 0xfffffffe;
  for (std::uint32_t i = 0; i < 8; ++i) message.places[i] = {{i, i + 1}, i * 4096ull, i, -static_cast<int>(i)};
  MessageBytes bytes;
  const auto written = format(message, bytes);
  const auto read = parse(written);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->sequence, message.sequence);
  EXPECT_EQ(read->from, message.from);
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(read->places[i].region, message.places[i].region);
    EXPECT_EQ(read->places[i].tag, message.places[i].tag);
  }
  for (std::size_t size = 0; size < written.size(); ++size) EXPECT_FALSE(parse(written.first(size))) << size;
}

TEST(NcclMessage, NoBytesAreTakenForMoreThanTheySay) {
  std::mt19937 random(1);
  std::size_t read = 0;
  for (int i = 0; i < 200000; ++i) {
    Message message;
    message.kind = i % 2 == 0 ? Message::Kind::post : Message::Kind::done;
    message.count = static_cast<std::uint8_t>(i % 2 == 0 ? 1 + random() % 8 : 0);
    MessageBytes bytes;
    const std::size_t size = format(message, bytes).size();
    for (int flips = 0; flips < 3; ++flips) bytes[random() % size] = static_cast<std::byte>(random());
    if (const auto back = parse(std::span(bytes).first(size))) {
      ++read;
      ASSERT_LE(back->count, abi::kMostReceives);
      ASSERT_LT(back->part, abi::kMostReceives);
      for (std::size_t place = 0; place < back->count; ++place) ASSERT_LE(back->places[place].size, abi::kMostBytes);
    }
  }
  EXPECT_GT(read, 0u);
}

Result<Settings> read(const std::map<std::string, std::string>& variables) {
  return read_settings([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(NcclSettings, SayWhatIsWrongAndWhatWouldBeRight) {
  const auto why = [](const std::map<std::string, std::string>& variables) {
    return read(variables).status().message();
  };
  EXPECT_EQ(why({{"FAIRWAY_PEER_TIMEOUT_MS", "5"}}),
            "FAIRWAY_PEER_TIMEOUT_MS is \"5\": it takes a number from 10 to 600000");
  EXPECT_NE(why({{"FAIRWAY_LISTEN", "10.0.0.1"}}).find("set FAIRWAY_JOB_KEY"), std::string::npos);
  EXPECT_NE(why({{"FAIRWAY_LISTEN", "0.0.0.0"}, {"FAIRWAY_JOB_KEY", "x"}}).find("not a wildcard"), std::string::npos);
  EXPECT_NE(why({{"FAIRWAY_JOB_KEY_FILE", "/nonexistent"}}).find("readable file"), std::string::npos);
  EXPECT_NE(why({{"FAIRWAY_GPU_MEMORY", "yes"}}).find("on or off"), std::string::npos);
  EXPECT_NE(why({{"FAIRWAY_STRICT_ISOLATION", "2"}}).find("0 or 1"), std::string::npos);
  for (const char* other : {"FAIRWAY_INTERFACES", "FAIRWAY_RDMA_DEVICES"})
    EXPECT_NE(why({{"FAIRWAY_RAILS", "a"}, {other, "b"}}).find("keep one"), std::string::npos) << other;
}

TEST(NcclSettings, OfEnginesLeaveOneWhereAPortIsNamed) {
  EXPECT_EQ(read({})->engines, 0u) << "as many as the machine has use for";
  EXPECT_EQ(read({{"FAIRWAY_ENGINES", "3"}})->engines, 3u);
  EXPECT_EQ(read({{"FAIRWAY_ENGINES", "0"}}).status().message(),
            "FAIRWAY_ENGINES is \"0\": it takes a number from 1 to 16");
  const Status both = read({{"FAIRWAY_ENGINES", "2"}, {"FAIRWAY_LISTEN", "127.0.0.1:4000"}}).status();
  EXPECT_NE(both.message().find("leave the port out, or set 1"), std::string::npos) << both.to_string();
  EXPECT_TRUE(read({{"FAIRWAY_ENGINES", "1"}, {"FAIRWAY_LISTEN", "127.0.0.1:4000"}})->has_own_port());
  EXPECT_FALSE(read({{"FAIRWAY_LISTEN", "127.0.0.1"}})->has_own_port());
}

TEST(NcclSettings, OfRdmaAreReadAndTheirErrorsNameThem) {
  const auto settings = read({{"FAIRWAY_RDMA_DEVICES", "mlx5_0,mlx5_1/1"},
                              {"FAIRWAY_RDMA_PKEY", "0x8001"},
                              {"FAIRWAY_RDMA_TRAFFIC_CLASS", "106"},
                              {"FAIRWAY_RDMA_MTU", "2048"},
                              {"FAIRWAY_RDMA_ON_DEMAND", "always"}});
  ASSERT_TRUE(settings) << settings.status().to_string();
  RdmaOptions wanted;
  wanted.devices = {"mlx5_0", "mlx5_1/1"};
  wanted.partition = 0x8001;
  wanted.traffic_class = 106;
  wanted.mtu = 2048;
  wanted.on_demand = OnDemand::always;
  EXPECT_EQ(settings->engine.rdma, wanted);
  const auto why = [](const char* name, const char* value) { return read({{name, value}}).status().message(); };
  EXPECT_EQ(why("FAIRWAY_RDMA_GID", "x"), "FAIRWAY_RDMA_GID is \"x\": it takes a number from 0 to 255");
  EXPECT_NE(why("FAIRWAY_RDMA_MTU", "1500").find("FAIRWAY_RDMA_MTU is \"1500\""), std::string::npos);
  EXPECT_NE(why("FAIRWAY_RDMA_ON_DEMAND", "yes").find("off, when-short or always"), std::string::npos);
  Settings rails;
  rails.rails = {"eth7"};
  const Status said = in_variables({ErrorCode::not_found, "EngineOptions::interfaces names eth7"}, rails);
  EXPECT_EQ(said.message(), "FAIRWAY_RAILS names eth7");
  EXPECT_EQ(in_variables({ErrorCode::not_found, "EngineOptions::interfaces names it"}, {}).message(),
            "FAIRWAY_INTERFACES names it");
}

TEST(NcclSettings, OfNcclSayWhetherAnyoneReadsMoreThanWarnings) {
  const auto at = [](const char* level) { return logs_information([&](const char*) { return level; }); };
  for (const char* more : {"INFO", "info", "TRACE"}) EXPECT_TRUE(at(more)) << more;
  for (const char* less : {"WARN", "VERSION", ""}) EXPECT_FALSE(at(less)) << less;
  EXPECT_FALSE(at(nullptr));
}

TEST(NcclSettings, OfNcclThatNameLl128AreKnown) {
  for (const char* named : {"LL128", "ll128", "Simple,LL128", "allreduce:LL128", "broadcast:^LL;allreduce:LL,LL128"})
    EXPECT_TRUE(names_ll128(named)) << named;
  for (const char* other : {"", "LL", "^LL128", "^LL,LL128", "Simple,LL", "allreduce:^LL128;broadcast:LL", "LL1288"})
    EXPECT_FALSE(names_ll128(other)) << other;
}

TEST(NcclSettings, OfNcclThatItCannotCountAreTold) {
  const auto why = [](const std::map<std::string, std::string>& variables) {
    return too_many_channels([&](const char* name) {
      const auto found = variables.find(name);
      return found == variables.end() ? nullptr : found->second.c_str();
    });
  };
  EXPECT_EQ(why({{"NCCL_MIN_NCHANNELS", "16"}, {"NCCL_P2P_NET_CHUNKSIZE", "4194304"}}), "");
  EXPECT_EQ(why({{"NCCL_MIN_NCHANNELS", "32"}, {"NCCL_P2P_NET_CHUNKSIZE", "2097152"}}), "");
  EXPECT_EQ(why({{"NCCL_MIN_NCHANNELS", "64"}}), "");
  EXPECT_NE(why({{"NCCL_MIN_NCHANNELS", "32"}, {"NCCL_P2P_NET_CHUNKSIZE", "4194304"}}).find("below 128 MiB"),
            std::string::npos);
}

TEST(NcclSettings, StayWithinTheHostUntilTheyAreToldAndHaveAKey) {
  const auto plain = read({});
  ASSERT_TRUE(plain);
  EXPECT_FALSE(plain->beyond_this_host());
  const auto wide =
      read({{"FAIRWAY_LISTEN", "10.0.0.1"}, {"FAIRWAY_JOB_KEY", "secret"}, {"FAIRWAY_RAILS", "eth0,eth1"}});
  ASSERT_TRUE(wide) << wide.status().to_string();
  EXPECT_TRUE(wide->beyond_this_host());
  EXPECT_EQ(wide->engine.listen, "10.0.0.1:0");
  EXPECT_EQ(wide->rails, (std::vector<std::string>{"eth0", "eth1"}));
  EXPECT_EQ(read({{"FAIRWAY_LISTEN", "[fd00::1]:4000"}, {"FAIRWAY_JOB_KEY", "k"}})->engine.listen, "[fd00::1]:4000");
}

TEST(NcclNic, IsAPortOfAnRdmaDeviceOrAnInterface) {
  namespace files = std::filesystem;
  const files::path sys = files::path(testing::TempDir()) / "nccl_nic";
  files::remove_all(sys);
  const auto write = [&](const char* name, const char* text) {
    files::create_directories((sys / name).parent_path());
    std::ofstream(sys / name) << text << "\n";
  };
  files::create_directories(sys / "devices/pci0000:00/0000:00:01.0");
  files::create_directories(sys / "devices/pci0000:10/0000:10:00.0");
  write("class/net/eth0/speed", "25000");
  files::create_directory_symlink(sys / "devices/pci0000:00/0000:00:01.0", sys / "class/net/eth0/device");
  write("class/net/lo/speed", "-1");
  write("class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)");
  write("class/infiniband/mlx5_0/ports/2/rate", "2.5 Gb/sec (1X SDR)");
  files::create_directory_symlink(sys / "devices/pci0000:10/0000:10:00.0", sys / "class/infiniband/mlx5_0/device");
  write("class/infiniband/rxe0/ports/1/rate", "25 Gb/sec (1X EDR)");
  write("class/infiniband/rxe0/parent", "eth0");

  const Nic second = read_nic("mlx5_0/2", sys), first = read_nic("mlx5_0", sys);
  EXPECT_TRUE(first.rdma && second.rdma);
  EXPECT_EQ(first.speed_mbps, 400000);
  EXPECT_EQ(first.port, 1);
  EXPECT_EQ(second.port, 2);
  EXPECT_EQ(second.speed_mbps, 2500);
  EXPECT_EQ(first.pci_path, files::canonical(sys / "devices/pci0000:10/0000:10:00.0"));
  const Nic interface = read_nic("eth0", sys);
  EXPECT_FALSE(interface.rdma);
  EXPECT_EQ(interface.speed_mbps, 25000);
  EXPECT_EQ(read_nic("rxe0", sys).pci_path, interface.pci_path);
  for (const char* nothing : {"lo", "eth9", "", "/", "mlx5_9/1"}) {
    const Nic none = read_nic(nothing, sys);
    EXPECT_FALSE(none.rdma) << nothing;
    EXPECT_EQ(none.speed_mbps, 0) << nothing;
    EXPECT_EQ(none.pci_path, "") << nothing;
  }
  files::remove_all(sys);
}

}  // namespace
}  // namespace fairway::nccl
