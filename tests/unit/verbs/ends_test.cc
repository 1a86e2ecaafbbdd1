#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "support/cuda/device_memory.h"
#include "support/verbs/nic.h"
#include "sys/system_runtime.h"
#include "transport/verbs/lane.h"
#include "transport/verbs/transport.h"

// What is said when something ends, and how long it takes, at NICs that do not do what they are told.
namespace fairway::transport::verbs {
namespace {

namespace nic = support::nic;

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

struct Unwoken final : Task {
  void wake() override {}
  Status watch(int) override { return {}; }
  void unwatch(int) override {}
};

// A clock that goes on by 10 us at each look, and by nothing else.
struct LookedAt final : Clock {
  Time now() override { return at += 10 * kMicrosecond; }
  std::uint64_t unix_ns() override { return 0; }
  Time at = 0;
};

class Ends : public testing::Test {
 protected:
  void SetUp() override { nic::settings() = {}; }
  void TearDown() override {
    transport_.reset();
    nic::settings() = {};
    nic::plug_all();
    EXPECT_EQ(nic::counts().regions.load(), 0U) << "left behind";
  }
  template <class Holds>
  static bool until(Holds holds) {
    for (int i = 0; i < 4000 && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return holds();
  }
  void open(OnDemand on_demand = OnDemand::off) {
    VerbsOptions options;
    options.library = nic::library();
    options.rdma.devices = {"nic0"};
    options.rdma.on_demand = on_demand;
    transport_ = std::make_unique<VerbsTransport>(table_, runtime_, options);
    ASSERT_TRUE(transport_->open());
    ASSERT_TRUE(transport_->attach(task_));
  }
  Result<RegisteredMemory> add(std::byte* address, std::uint64_t size, MemoryKind kind = MemoryKind::host) {
    const auto id = table_.add(address, size, kind, Access::all);
    if (!id) return id.status();
    return transport_->register_memory({*id, address, size, kind, Access::all}, {});
  }
  // Time goes on by a second at each poll, for what the transport looks at now and then.
  std::size_t poll(std::span<Event> events) { return transport_->poll(events, now_ += kSecond); }
  Event deregister(std::uint64_t handle) {
    std::array<Event, 4> events;
    std::size_t count = 0;
    transport_->deregister(handle);
    EXPECT_TRUE(until([&] { return count != 0 || (count = poll(events)) != 0; }));
    EXPECT_TRUE(count == 1 && events[0].kind == EventKind::deregistered && events[0].value == handle);
    return events[0];
  }
  std::unique_ptr<Port> open_port(const char* name) {
    VerbsOptions options;
    options.library = nic::library();
    options.rdma.devices = {name};
    auto ports = open_ports(options);
    EXPECT_TRUE(ports) << ports.status().message();
    return ports ? std::move(ports->front()) : nullptr;
  }

  sys::SystemRuntime system_;
  Runtime runtime_ = system_.runtime();
  Unwoken task_;
  RegionTable table_{16};
  Time now_ = 0;
  std::unique_ptr<VerbsTransport> transport_;
};

TEST_F(Ends, OfMemoryThatTheNicKeepsAreNotFencedUntilItLetsGo) {
  for (const std::uint64_t size : {std::uint64_t{4096}, kManyPages}) {
    std::vector<std::byte> bytes(size);
    ASSERT_NO_FATAL_FAILURE(open());
    const auto made = add(bytes.data(), size);
    ASSERT_TRUE(made) << made.status().message();
    nic::settings().keeping = [&](std::uint64_t length) { return length == size ? EBUSY : 0; };
    for (int i = 0; i < 2; ++i) {
      const Event refused = deregister(made->handle);
      EXPECT_EQ(refused.status.code(), ErrorCode::not_fenced) << "asked " << i + 1;
      EXPECT_TRUE(says(refused.status.message(),
                       "nic0/1: the NIC may still reach memory: ibv_dereg_mr: Device or "
                       "resource busy"))
          << refused.status.message();
    }
    nic::settings().keeping = nullptr;
    EXPECT_TRUE(deregister(made->handle).status);
    EXPECT_TRUE(deregister(made->handle).status) << "nothing is left of it";
    transport_.reset();
    EXPECT_EQ(nic::counts().regions.load(), 0U);
  }
}

// The kernel ends everything of a device that it removes, and then answers EIO.
TEST_F(Ends, AtADeviceThatIsGoneAreThoseOfTheKernel) {
  const auto port = open_port("nic0");
  ASSERT_NE(port, nullptr);
  EXPECT_TRUE(port->not_ended("ibv_dereg_mr", 0));
  EXPECT_EQ(port->not_ended("ibv_dereg_mr", EIO).code(), ErrorCode::not_fenced);
  port->lose("it was removed");
  EXPECT_TRUE(port->not_ended("ibv_dereg_mr", EIO));
  EXPECT_EQ(port->not_ended("ibv_dereg_mr", EBUSY).code(), ErrorCode::not_fenced);
}

// The word of its GPU was registered there before the memory was refused.
TEST_F(Ends, OfARecoveryThatFailsLeaveNothingAtTheDeviceAndTheNextOneBeginsAnew) {
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
  if (::getenv("FAIRWAY_CUDA_DRIVER") != std::string(FAIRWAY_STANDIN_CUDA)) GTEST_SKIP() << "the driver is a real one";
  support::DeviceMemory gpus;
  constexpr std::uint64_t kSize = 4 << 20;
  std::byte* const bytes = gpus.allocate(kSize, 1);
  for (const bool closes : {false, true}) {
    SCOPED_TRACE(closes);
    ASSERT_NO_FATAL_FAILURE(open());
    const auto made = add(bytes, kSize, MemoryKind::device);
    ASSERT_TRUE(made) << made.status().message();
    const std::uint64_t whole = nic::counts().regions;
    nic::unplug("nic0");
    nic::befall("nic0", abi::kEventDeviceFatal);
    std::array<Event, 4> events;
    (void)transport_->prepare_sleep();
    const auto gone = [&] {
      (void)poll(events);
      return nic::users("nic0") == 0 && nic::counts().regions == 0;
    };
    ASSERT_TRUE(until(gone));
    std::atomic<std::uint64_t> tried{0};
    nic::settings().registering = [&](std::uint64_t size) { tried += size == kSize ? 1 : 0; };
    nic::settings().small = "nic0";
    nic::settings().small_takes = kSize / 2;
    nic::plug_all();
    ASSERT_TRUE(until([&] {
      if (tried == 0) (void)poll(events);
      return tried > 0;
    }));
    if (closes) {
      transport_->close();  // the recovery is over, and nobody has looked
      transport_.reset();
      EXPECT_EQ(nic::counts().regions.load(), 0U);
    } else {
      nic::unplug("nic0");  // or the next attempt would be under way
      ASSERT_TRUE(until(gone)) << nic::counts().regions.load() << " regions, and " << nic::users("nic0") << " users";
      nic::settings().small.clear();
      nic::plug_all();
      EXPECT_TRUE(until([&] { return poll(events), nic::counts().regions == whole; }));
      transport_.reset();
    }
    nic::settings() = {};
    nic::plug_all();
  }
  gpus.free(bytes);
}

// All lanes of a port together: their worker serves nobody meanwhile.
TEST_F(Ends, OfLanesAtANicThatFlushesNothingTakeOneWait) {
  CostCounters counters;
  Inbox inbox(counters);
  for (const bool refuses : {false, true}) {
    const auto port = open_port("nic0");
    ASSERT_NE(port, nullptr);
    std::vector<std::unique_ptr<Lane>> lanes;
    for (std::uint32_t i = 0; i < 16; ++i) {
      auto made = Lane::make(*port, {i, 1}, inbox, i, i, {});
      ASSERT_TRUE(made) << made.status().message();
      lanes.push_back(std::move(*made));
    }
    nic::settings().flushes = false;
    nic::settings().no_error_state = refuses ? EIO : 0;
    LookedAt clock;
    for (const auto& lane : lanes) lane->close(clock);
    EXPECT_LT(clock.at, (refuses ? 1 : 110) * kMillisecond);
    for (const auto& lane : lanes) EXPECT_TRUE(lane->stopped()) << "a reset queue pair touches nothing";
    nic::settings() = {};
  }
}

TEST_F(Ends, OfALaneWhoseQueuePairStaysAreNotFenced) {
  CostCounters counters;
  Inbox inbox(counters);
  const auto port = open_port("nic0");
  ASSERT_NE(port, nullptr);
  auto made = Lane::make(*port, {0, 1}, inbox, 0, 0, {});
  ASSERT_TRUE(made) << made.status().message();
  nic::settings().no_reset = nic::settings().no_end = EBUSY;
  LookedAt clock;
  (*made)->close(clock);
  EXPECT_EQ((*made)->stopped().code(), ErrorCode::not_fenced);
  EXPECT_TRUE(says((*made)->stopped().message(), "ibv_destroy_qp: Device or resource busy"));
  nic::settings() = {};
}

// What the NIC did not take never comes back, and was not executed.
TEST_F(Ends, OfALaneWithRefusedRequestsWaitForThoseThatWereTaken) {
  CostCounters counters;
  Inbox inbox(counters);
  const auto near = open_port("nic0"), far = open_port("nic1");
  ASSERT_TRUE(near != nullptr && far != nullptr);
  auto a = Lane::make(*near, {0, 1}, inbox, 0, 0, {}), b = Lane::make(*far, {1, 1}, inbox, 1, 1, {});
  ASSERT_TRUE(a && b);
  for (auto [one, other] : {std::pair(a->get(), b->get()), std::pair(b->get(), a->get())}) {
    auto steps = one->connect(other->endpoint());
    ASSERT_TRUE(steps && one->pair().apply(*steps));
  }
  nic::settings().most_sends = 1;  // the first says that the path works
  for (Lane* each : {a->get(), b->get()}) each->flush();
  for (Lane* each : {a->get(), b->get()}) each->receive();
  nic::settings().most_receives = 0;
  Command* const command = (*a)->place(Op::message);
  ASSERT_NE(command, nullptr);
  std::array<std::byte, 8> bytes{};
  *command = {};
  command->slice.op = Op::message;
  command->slice.token = 7;
  command->slice.local = bytes.data();
  command->slice.length = bytes.size();
  (*a)->post(nullptr, nullptr);
  (*a)->flush();
  EXPECT_TRUE((*a)->broken());
  LookedAt clock;
  (*a)->close(clock);
  EXPECT_LT(clock.at, kMillisecond) << "it waited for what never was there";
  std::array<Event, 8> events;
  const std::size_t count = inbox.take(events);
  bool told = false;
  for (const Event& each : std::span(events).first(count)) {
    if (each.kind != EventKind::failed) continue;
    told = each.token == 7;
    EXPECT_EQ(each.status.effect(), Effect::not_applied) << each.status.to_string();
  }
  EXPECT_TRUE(told);
  nic::settings() = {};
}

TEST_F(Ends, OfALaneThatGotNoReceivesComeBeforeItIsUp) {
  CostCounters counters;
  Inbox inbox(counters);
  const auto port = open_port("nic0");
  ASSERT_NE(port, nullptr);
  nic::settings().most_receives = 3;
  EXPECT_FALSE(Lane::make(*port, {0, 1}, inbox, 0, 0, {}));
  EXPECT_TRUE(inbox.empty()) << "an event of an epoch that never was";
}

// rdma_cm names 0, which makes a peer that came too early wait for 655 ms.
TEST_F(Ends, AnRdmaCmPairIsToldTheSameTimeAsAnyOther) {
  const auto port = open_port("nic0");
  ASSERT_NE(port, nullptr);
  const auto pair = QueuePair::make(*port, {8, 8, 1}, 0);
  ASSERT_TRUE(pair);
  abi::QueuePairState state{};
  state.state = abi::kReadyToReceive;
  ASSERT_TRUE((*pair)->follow(state, abi::kMaskState | abi::kMaskMinRnrTimer));
  EXPECT_EQ(nic::counts().rnr_timer.load(), 12);
}

// Another link of its port has read the address again, before the peer answered this one.
TEST_F(Ends, WhoseAddressWentBeforeTheAnswerCameAreNotConnectedFromTheOther) {
  VerbsOptions options;
  options.library = nic::library();
  options.rdma.queue_pairs = 2;
  RegionTable there_table(16);
  std::array<std::unique_ptr<VerbsTransport>, 2> sides;
  for (std::size_t i = 0; i < sides.size(); ++i) {
    options.rdma.devices = {i == 0 ? "nic0" : "nic1"};
    sides[i] = std::make_unique<VerbsTransport>(i == 0 ? table_ : there_table, runtime_, options);
    ASSERT_TRUE(sides[i]->open() && sides[i]->attach(task_));
    ASSERT_TRUE(sides[i]->connect(1, i == 0 ? Role::initiator : Role::acceptor));
  }
  using Kind = PlannedHandshake::Kind;
  const auto said = [&](VerbsTransport& by) {
    std::vector<std::pair<PlannedHandshake, std::vector<std::byte>>> all;
    std::array<Event, 16> events;
    for (const Event& each : std::span(events).first(by.poll(events, runtime_.clock.now()))) {
      if (each.kind != EventKind::exchange) continue;
      auto message = decode_planned(each.bytes, kVersion, "verbs");
      EXPECT_TRUE(message) << message.status().to_string();
      all.emplace_back(*message, std::vector(each.bytes.begin(), each.bytes.end()));
    }
    return all;
  };
  std::vector<std::byte> answer;  // to the first link
  PlannedHandshake gone;          // of the second
  bool again = false;
  std::string why;
  ASSERT_TRUE(until([&] {
    if (!why.empty()) return true;
    for (const auto& [message, bytes] : said(*sides[0])) {
      if (message.kind == Kind::closed && message.link == 0) why = message.reason;
      again |= message.kind == Kind::open && message.attempt == 2;
      sides[1]->exchange(1, bytes);
    }
    for (const auto& [message, bytes] : said(*sides[1])) {
      if (message.kind == Kind::accept && message.link == 0) answer = bytes;
      if (message.kind == Kind::plan) sides[0]->exchange(1, bytes);
      if (message.kind != Kind::accept || message.link != 1 || message.attempt != 1) continue;
      gone.kind = Kind::closed;
      gone.token = message.token;
      gone.link = gone.attempt = 1;
      nic::readdress("nic0", std::uint8_t{5});
      sides[0]->exchange(1, encode(gone, kVersion));
    }
    if (again && !answer.empty()) sides[0]->exchange(1, std::exchange(answer, {}));
    return !why.empty();
  }));
  EXPECT_TRUE(says(why, "its address changed from 10.0.0.1 to 10.5.0.1")) << why;
  for (const auto& each : sides) each->close();
  nic::readdress("nic0", std::uint8_t{0});
}

}  // namespace
}  // namespace fairway::transport::verbs
