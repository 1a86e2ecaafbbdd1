#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <utility>

#include <dlfcn.h>

#include "conformance/fabric_worlds.h"
#include "support/cuda/device_memory.h"
#include "sys/cuda_memory.h"
#include "sys/system_runtime.h"
#include "transport/fabric/frame.h"
#include "transport/fabric/lane.h"
#include "transport/planned_handshake.h"

// What the fabric transport says when memory and ends of links end, over providers that do not do what they are told.
namespace fairway::conformance {
namespace {

namespace fabric = transport::fabric;

std::vector<Status> ends_of(const Memory& memory, const std::vector<Seen>& log) {
  std::vector<Status> all;
  for (const Seen& seen : log)
    if (seen.event.kind == EventKind::deregistered && seen.event.value == memory.handle)
      all.push_back(seen.event.status);
  return all;
}

// The answer to the `count`-th time that it was asked.
Status deregister(Side& side, const Memory& memory, std::size_t count = 1) {
  side.deregister(memory);
  if (!side.wait([&](const std::vector<Seen>& log) { return ends_of(memory, log).size() == count; }))
    return {ErrorCode::timed_out, "no answer"};
  return ends_of(memory, side.seen()).back();
}

#ifndef FAIRWAY_SANITIZED  // what the provider keeps is lost on purpose
// The link's end is closed for this side, but the peer may still find it.
TEST(FabricEnds, OfMemoryAreNotFencedWhereThePeerIsSilentAndItsEndStaysOpen) {
  const auto world = make_fabric_world({"tcp", {.keeps_ends = true}});
  if (!world) GTEST_SKIP() << "no libfabric";
  ASSERT_TRUE(world->connect());
  const UpLink link = world->a().wait_links(1).front();
  Buffer near(4096), far(4096), other(4096);
  const Memory local = world->a().remember(near, Access::none), remote = world->b().remember(far, Access::write);
  const Memory own = world->b().remember(other, Access::none);
  const Slice made = slice(Op::write, link, 1, local, 0, world->a().import(remote), 0, near.size());
  ASSERT_TRUE(world->a().post_all({&made, 1}));
  ASSERT_EQ(world->a().wait_token(1).event.kind, EventKind::done);
  world->b().carry_to(world->a(), [](std::vector<std::byte>& bytes) { bytes.clear(); });  // the question is lost
  for (const std::size_t asked : {1, 2}) {
    const Status refused = deregister(world->b(), remote, asked);
    EXPECT_EQ(refused.code(), ErrorCode::not_fenced) << "asked " << asked;
    EXPECT_NE(refused.message().find("did not close its endpoint: Device or resource busy"), std::string::npos)
        << refused.message();
  }
  EXPECT_TRUE(deregister(world->b(), own)) << "no peer ever could";
  world->b().carry_to(world->a());
  EXPECT_TRUE(deregister(world->b(), remote, 3)) << "the peer says that it uses it no more";
}

// An operation of its own that nobody has told the end of.
TEST(FabricEnds, OfMemoryAreNotFencedWhereAnOperationMayStillUseIt) {
  const auto world = make_fabric_world({"tcp", {.keeps_ends = true}});
  if (!world) GTEST_SKIP() << "no libfabric";
  ASSERT_TRUE(world->connect());
  const UpLink link = world->a().wait_links(1).front();
  Buffer near(4096), far(4096), other(4096);
  const Memory local = world->a().remember(near, Access::none), remote = world->b().remember(far, Access::read);
  const Memory unused = world->a().remember(other, Access::none);
  shim_forget(1);
  const Slice made = slice(Op::read, link, 1, local, 0, world->a().import(remote), 0, near.size());
  ASSERT_TRUE(world->a().post_all({&made, 1}));
  ASSERT_TRUE(world->b().wait([](const std::vector<Seen>&) { return shim_forgets() == 0; }));
  for (const std::size_t asked : {1, 2})
    EXPECT_EQ(deregister(world->a(), local, asked).code(), ErrorCode::not_fenced) << "asked " << asked;
  EXPECT_TRUE(deregister(world->a(), unused));
}
#endif

TEST(FabricEnds, OfMemoryThatTheProviderKeepsAreNotFencedUntilItLetsGo) {
  for (const std::size_t size : {std::size_t{4096}, std::size_t{fabric::kManyPages}}) {
    Buffer far(size);
    const auto world = make_fabric_world({"tcp", {.watches_regions = true}});
    if (!world) GTEST_SKIP() << "no libfabric";
    ASSERT_TRUE(world->connect());
    const Memory memory = world->b().remember(far, Access::write);
    shim_keep_regions(2);
    for (const std::size_t asked : {1, 2}) {
      const Status refused = deregister(world->b(), memory, asked);
      EXPECT_EQ(refused.code(), ErrorCode::not_fenced) << "asked " << asked;
      EXPECT_NE(refused.message().find("its provider does not end the registration: Device or resource busy"),
                std::string::npos)
          << refused.message();
    }
    EXPECT_TRUE(deregister(world->b(), memory, 3));
  }
}

// Its own end is not up yet: it has not heard that the peer's is.
TEST(FabricEnds, OfMemoryAreAskedOfAPeerThatIsUpFirst) {
  const auto world = make_fabric_world({"tcp"});
  if (!world) GTEST_SKIP() << "no libfabric";
  const auto kind_of = [](const std::vector<std::byte>& bytes) {
    const auto message = transport::decode_planned(bytes, 4, "fabric");
    return message ? message->kind : transport::PlannedHandshake::Kind::hello;
  };
  using Kind = transport::PlannedHandshake::Kind;
  const auto asked = std::make_shared<std::atomic<int>>(0);
  world->a().carry_to(world->b(), [&](std::vector<std::byte>& bytes) {
    if (kind_of(bytes) == Kind::ready) bytes.clear();
  });
  world->b().carry_to(world->a(), [&, asked](std::vector<std::byte>& bytes) {
    if (kind_of(bytes) != Kind::note) return;
    const auto note = fabric::decode_note(transport::decode_planned(bytes, 4, "fabric")->bytes);
    *asked += note && note->kind == fabric::Note::Kind::revoke ? 1 : 0;
  });
  world->b().connect(Role::acceptor);
  world->a().connect(Role::initiator);
  ASSERT_EQ(world->a().wait_links(1).size(), 1U);
  ASSERT_EQ(world->b().count(EventKind::link_up), 0U);
  Buffer far(4096);
  const Memory memory = world->b().remember(far, Access::write);
  EXPECT_TRUE(deregister(world->b(), memory));
  EXPECT_EQ(*asked, 1);
}

// The peer waits for it, and what it sends waits for the peer.
TEST(FabricEnds, OfReceivesAreToldThoughTheProviderTakesNoFrame) {
  constexpr std::uint32_t kCount = 100;  // far more than the peer has receives
  const auto world = make_fabric_world({"tcp", {.unordered = true}});
  if (!world) GTEST_SKIP() << "no libfabric";
  ASSERT_TRUE(world->connect());
  const UpLink there = world->a().wait_links(1).front(), back = world->b().wait_links(1).front();
  Buffer bytes(transport::kMessageBytes);
  shim_hold_sends(0);  // the acceptor's, b's
  const Slice stuck = message(back, 1000, bytes, 100, false);
  ASSERT_TRUE(world->b().post_all({&stuck, 1}));
  std::vector<Slice> slices;
  for (std::uint32_t i = 0; i < kCount; ++i) slices.push_back(message(there, i, bytes, bytes.size(), false));
  ASSERT_TRUE(world->a().post_all(slices));
  ASSERT_TRUE(world->a().wait_ended(kCount));
  EXPECT_EQ(world->a().count(EventKind::done), kCount);
  shim_hold_sends(2);
  EXPECT_EQ(world->b().wait_token(1000).event.kind, EventKind::done);
}

// A lane alone, over that domain of the provider `tcp`.
class FabricLanes : public testing::Test {
 protected:
  void SetUp() override {
    transport::FabricOptions options;
    options.providers = {"tcp"};
    options.calls = shim_calls({});
    if (!options.calls) GTEST_SKIP() << "no libfabric";
    auto opened = fabric::open_domains(options);
    ASSERT_TRUE(opened) << opened.status().to_string();
    domains_ = std::move(*opened);
  }
  auto make() { return fabric::Lane::make(*domains_.front(), {0, 1}, inbox_, 1); }

  sys::SystemRuntime system_;
  Runtime runtime_ = system_.runtime();
  std::vector<std::unique_ptr<fabric::Domain>> domains_;
  CostCounters counters_;
  transport::Inbox inbox_{counters_};
};

TEST_F(FabricLanes, WithoutTheirReceivesDoNotComeUp) {
  shim_receives(1);
  const auto refused = make();
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.status().message().find("fi_recv: Invalid argument"), std::string::npos)
      << refused.status().message();
  EXPECT_TRUE(inbox_.empty()) << "an event of an epoch that never was";
}

// A provider whose reads end at once, and what has become of a GPU's memory by then.
void* ends_next = nullptr;
std::atomic<int> flushed{-1};
ssize_t read_at_once(fid_ep*, const fi_msg_rma* message, std::uint64_t) {
  ends_next = message->context;
  return 0;
}
ssize_t end_of_read(fid_cq*, fi_cq_data_entry* into, std::size_t) {
  if (ends_next == nullptr) return -FI_EAGAIN;
  *into = {};
  into->flags = FI_RMA | FI_READ;
  into->op_context = std::exchange(ends_next, nullptr);
  return 1;
}

TEST_F(FabricLanes, EndReadsIntoAGpuOnceItIsFlushedIfItNeedsThat) {
  ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
  if (::getenv("FAIRWAY_CUDA_DRIVER") != std::string(FAIRWAY_STANDIN_CUDA)) GTEST_SKIP() << "the driver is a real one";
  support::DeviceMemory gpus;
  transport::FabricOptions options;
  options.providers = {"tcp"};
  auto calls = std::make_shared<fabric::Calls>(*shim_calls({}));
  calls->read = &read_at_once;
  calls->read_queue = &end_of_read;
  options.calls = calls;
  auto domains = fabric::open_domains(options);
  ASSERT_TRUE(domains) << domains.status().to_string();
  const auto driver = sys::CudaDriver::open();
  ASSERT_TRUE(driver) << driver.status().to_string();
  void* const library = ::dlopen(FAIRWAY_STANDIN_CUDA, RTLD_NOW | RTLD_NOLOAD);
  const auto hears = reinterpret_cast<void (*)(void (*)(int))>(::dlsym(library, "fairway_standin_on_flush"));
  ASSERT_NE(hears, nullptr);
  ::dlclose(library);
  for (const bool needs : {true, false}) {
    if (needs) ::setenv("FAIRWAY_STANDIN_UNORDERED", "1", 1);
    const auto gpu = sys::BusGpu::open(*driver, 1);
    ::unsetenv("FAIRWAY_STANDIN_UNORDERED");
    ASSERT_TRUE(gpu) << gpu.status().to_string();
    auto lane = fabric::Lane::make(*domains->front(), {0, 1}, inbox_, 1);
    ASSERT_TRUE(lane) << lane.status().to_string();
    transport::Command command;
    std::byte* const memory = gpus.allocate(64, 1);
    command.slice.op = Op::read;
    command.slice.local = command.local_begin = memory;
    command.slice.length = command.local_size = 64;
    flushed = -1;
    hears([](int device) { flushed = device; });
    ASSERT_TRUE((*lane)->post(command, nullptr, gpu->get(), {}));
    (*lane)->flush();
    EXPECT_EQ(flushed, -1);
    (*lane)->receive();
    hears(nullptr);
    EXPECT_EQ(flushed, needs ? 1 : -1);
    std::array<Event, 2> events;
    ASSERT_EQ(inbox_.take(events), 1U);
    EXPECT_EQ(events[0].kind, EventKind::done) << events[0].status.to_string();
    gpus.free(memory);
  }
}

TEST_F(FabricLanes, CloseThoughTheProviderDoesNotTellItsError) {
  auto lane = make();
  ASSERT_TRUE(lane) << lane.status().to_string();
  shim_only_errors(true);
  (*lane)->close(runtime_.clock);
  EXPECT_TRUE((*lane)->stopped());
}

}  // namespace
}  // namespace fairway::conformance
