#include "transport/verbs/cm_connector.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "support/few_threads.h"
#include "sys/system_runtime.h"
#include "unit/verbs/standin_cm.h"

// Two connectors over a stand-in for librdmacm: which requests are accepted, which are rejected, and what is left.
namespace fairway::transport::verbs {
namespace {

struct Woken final : Task {
  std::atomic<int> times{0};
  void wake() override { ++times; }
  void end() override {}
  Status watch(int) override { return {}; }
  void unwatch(int) override {}
};

CmPlace place(std::uint8_t last) {
  CmPlace made;
  made.device = last == 1 ? "first" : "second";
  made.address.fabric = Fabric::iwarp;
  made.address.gid[10] = made.address.gid[11] = std::byte{0xff};
  made.address.gid[12] = std::byte{10};
  made.address.gid[15] = static_cast<std::byte>(last);
  return made;
}

Secret secret(int of) {
  Secret made{};
  made.fill(static_cast<std::byte>(of));
  return made;
}

struct CmConnectorTest : testing::Test {
  CmConnectorTest() {
    near = std::move(*CmConnector::open(standin::Cm::library(), runtime, woken));
    far = std::move(*CmConnector::open(standin::Cm::library(), runtime, woken));
  }
  ~CmConnectorTest() override {
    near.reset();
    far.reset();
    EXPECT_EQ(cm.live_ids(), 0u);
    EXPECT_EQ(cm.unacknowledged(), 0u);
  }

  CmEndpoint party(std::uint8_t last, std::uint32_t number) {
    CmEndpoint made;
    made.place = place(last);
    made.number = number;
    made.reads_in = 3;
    made.reads_out = 2;
    made.change = [this, number](abi::QueuePairState& to, int) {
      cm.steps.push_back(std::to_string(number) + " to " + std::to_string(to.state) + " with reads " +
                         std::to_string(to.reads_in) + " " + std::to_string(to.reads_out));
      return Status();
    };
    return made;
  }
  PortAddress listening() {
    PortAddress at = place(2).address;
    const auto port = far->listen(place(2));
    EXPECT_TRUE(port) << port.status().to_string();
    at.cm_port = *port;
    return at;
  }
  // The far side waits for secret(1) and answers with secret(2).
  void expect(std::uint32_t slot) { far->expect(slot, party(2, 22), secret(1), secret(2)); }
  Status dial(std::uint32_t slot, const PortAddress& to, int says = 1, int hears = 2) {
    return near->dial(slot, party(1, 11), to, secret(hears), secret(says));
  }
  // What comes of it at `side`, while both look.
  std::vector<CmConnector::Outcome> news(CmConnector& side, std::size_t count = 1) {
    std::vector<CmConnector::Outcome> all;
    for (int i = 0; i < 5000 && all.size() < count; ++i) {
      for (CmConnector* each : {near.get(), far.get()})
        for (const auto& one : each->poll())
          if (each == &side) all.push_back(one);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(all.size(), count);
    all.resize(count);
    return all;
  }

  standin::Cm cm;
  sys::SystemRuntime system;
  Runtime runtime = system.runtime();
  Woken woken;
  std::unique_ptr<CmConnector> near, far;
};

TEST_F(CmConnectorTest, WhoSaysTheSecretIsTakenForTheQueuePairItIsOf) {
  const PortAddress to = listening();
  far->expect(4, party(2, 44), secret(9), secret(2));
  expect(5);
  ASSERT_TRUE(dial(7, to));
  EXPECT_TRUE(near->is_connecting(7));
  const auto heard = news(*near);
  EXPECT_EQ(heard[0].slot, 7u);
  EXPECT_TRUE(heard[0].status) << heard[0].status.to_string();
  EXPECT_FALSE(near->is_connecting(7));
  EXPECT_FALSE(far->is_connecting(5));
  EXPECT_TRUE(far->is_connecting(4));
  EXPECT_EQ(cm.steps, std::vector<std::string>{"accepted for 22"}) << "iWARP's queue pairs are not changed by hand";
}

TEST_F(CmConnectorTest, RocesQueuePairsAreChangedBeforeEachAnswer) {
  cm.iwarp = false;
  const PortAddress to = listening();
  expect(5);
  ASSERT_TRUE(dial(7, to));
  EXPECT_TRUE(news(*near)[0].status);
  const std::vector<std::string> steps{"22 to 2 with reads 3 2", "22 to 3 with reads 3 2", "accepted for 22",
                                       "11 to 2 with reads 3 2", "11 to 3 with reads 3 2", "established"};
  EXPECT_EQ(cm.steps, steps);
}

TEST_F(CmConnectorTest, ARequestWithAnUnknownSecretIsRejectedAndThePeerStillConnects) {
  const PortAddress to = listening();
  expect(5);
  ASSERT_TRUE(dial(7, to, 99));
  const auto turned_away = news(*near);
  EXPECT_NE(turned_away[0].status.message().find("RDMA_CM_EVENT_REJECTED"), std::string::npos)
      << turned_away[0].status.to_string();
  EXPECT_TRUE(far->is_connecting(5));
  ASSERT_TRUE(dial(8, to));
  EXPECT_TRUE(news(*near)[0].status);
}

TEST_F(CmConnectorTest, ASecretLetsInOnce) {
  const PortAddress to = listening();
  expect(5);
  ASSERT_TRUE(dial(7, to));
  EXPECT_TRUE(news(*near)[0].status);
  ASSERT_TRUE(dial(8, to));
  EXPECT_FALSE(news(*near)[0].status);
  EXPECT_FALSE(far->is_connecting(5));
}

TEST_F(CmConnectorTest, ARequestAfterTheEndIsRejected) {
  const PortAddress to = listening();
  expect(5);
  far->forget(5, {});
  ASSERT_TRUE(dial(7, to));
  EXPECT_FALSE(news(*near)[0].status);
}

TEST_F(CmConnectorTest, WhoAnswersWithoutTheOtherSecretIsNotThePeer) {
  const PortAddress to = listening();
  expect(5);
  ASSERT_TRUE(dial(7, to, 1, 3));
  const auto heard = news(*near);
  EXPECT_NE(heard[0].status.message().find("secret"), std::string::npos) << heard[0].status.to_string();
}

TEST_F(CmConnectorTest, AnAddressThatMovedToAnotherDeviceIsNotUsed) {
  const PortAddress to = listening();
  expect(5);
  cm.device_of["10.0.0.1"] = 1;
  ASSERT_TRUE(dial(7, to));
  const auto heard = news(*near);
  EXPECT_NE(heard[0].status.message().find("10.0.0.1 belongs to another device than first"), std::string::npos)
      << heard[0].status.to_string();
  cm.device_of["10.0.0.2"] = 0;
  CmPlace moved = place(2);
  moved.port = 2;  // not listened at yet
  EXPECT_FALSE(far->listen(moved));
}

TEST_F(CmConnectorTest, WhereNobodyListensItSaysSo) {
  PortAddress to = place(2).address;
  to.cm_port = 9;
  ASSERT_TRUE(dial(7, to));
  EXPECT_FALSE(news(*near)[0].status);
}

TEST_F(CmConnectorTest, AnEndThatGoesIsHeardAtTheOther) {
  const PortAddress to = listening();
  expect(5);
  ASSERT_TRUE(dial(7, to));
  EXPECT_TRUE(news(*near)[0].status);
  near->forget(7, {});
  const auto heard = news(*far);
  EXPECT_EQ(heard[0].slot, 5u);
  EXPECT_FALSE(heard[0].status);
}

TEST_F(CmConnectorTest, WithoutAThreadToCallByTheCallIsOverWithThatReason) {
  const PortAddress to = listening();
  support::FewThreads threads(runtime.executor);
  Runtime poor{runtime.clock, runtime.rng, threads, runtime.network};
  near = std::move(*CmConnector::open(standin::Cm::library(), poor, woken));
  expect(5);
  ASSERT_TRUE(dial(7, to));
  const auto heard = news(*near);
  EXPECT_NE(heard[0].status.message().find("cannot start the thread fairway-rdma-cm"), std::string::npos)
      << heard[0].status.to_string();
  near.reset();
}

// Its own end waits for the event that told of it.
TEST_F(CmConnectorTest, WithoutAThreadARequestWithAnUnknownSecretIsRejectedToo) {
  support::FewThreads threads(runtime.executor);
  Runtime poor{runtime.clock, runtime.rng, threads, runtime.network};
  far = std::move(*CmConnector::open(standin::Cm::library(), poor, woken));
  ASSERT_TRUE(dial(7, listening(), 99));
  EXPECT_FALSE(news(*near)[0].status);
  far.reset();
}

TEST_F(CmConnectorTest, ACallThatTheSystemRefusesIsToldAndWakesTheWorker) {
  const PortAddress to = listening();
  cm.connect_fails = ENETUNREACH;
  ASSERT_TRUE(dial(7, to));
  const auto heard = news(*near);
  EXPECT_NE(heard[0].status.message().find("Network is unreachable"), std::string::npos) << heard[0].status.to_string();
  EXPECT_GE(woken.times, 1);
}

TEST_F(CmConnectorTest, ACallThatHangsHoldsNobodyUpAndKeepsItsQueuePairUntilItReturns) {
  const PortAddress to = listening();
  cm.hold_connect(true);
  ASSERT_TRUE(dial(7, to));
  for (int i = 0; i < 3; ++i) near->poll();  // address, route, then the call
  cm.wait_in_connect();
  auto pair = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = pair;
  near->forget(7, std::move(pair));
  EXPECT_FALSE(near->is_connecting(7));
  EXPECT_FALSE(watched.expired()) << "the device may still use it";
  cm.hold_connect(false);
  near.reset();
  EXPECT_TRUE(watched.expired());
}

TEST_F(CmConnectorTest, PlacesAreThoseOfRdmaDevices) {
  const std::vector<InterfaceAddress> own{{"lo", "127.0.0.1", true, 0},
                                          {"v0", "10.0.0.1", false, 0},
                                          {"eth0", "192.168.0.1", false, 0},
                                          {"v1", "10.0.0.2", false, 0}};
  const auto found = find_places(*standin::Cm::library(), own);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].device, "first");
  EXPECT_EQ(found[0].port, 1);
  EXPECT_EQ(text_of(found[0].address), "10.0.0.1");
  EXPECT_EQ(found[1].device, "second");
}

TEST_F(CmConnectorTest, WithoutItsDeviceFileTheRemedyIsSaid) {
  cm.no_channels = true;
  const auto opened = CmConnector::open(standin::Cm::library(), runtime, woken);
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.status().message().find("rdma_ucm"), std::string::npos) << opened.status().to_string();
  EXPECT_TRUE(find_places(*standin::Cm::library(), {}).empty());
}

}  // namespace
}  // namespace fairway::transport::verbs
