#include <cstring>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "nccl_net/message.h"
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
  EXPECT_NE(why({{"FAIRWAY_LISTEN", "0.0.0.0"}, {"FAIRWAY_JOB_KEY", "x"}}).find("not every one"), std::string::npos);
  EXPECT_NE(why({{"FAIRWAY_JOB_KEY_FILE", "/nonexistent"}}).find("readable file"), std::string::npos);
  EXPECT_NE(why({{"FAIRWAY_GPU_MEMORY", "yes"}}).find("on or off"), std::string::npos);
  EXPECT_NE(why({{"FAIRWAY_STRICT_ISOLATION", "2"}}).find("0 or 1"), std::string::npos);
  EXPECT_NE(why({{"FAIRWAY_RAILS", "a"}, {"FAIRWAY_INTERFACES", "b"}}).find("keep one"), std::string::npos);
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

}  // namespace
}  // namespace fairway::nccl
