#include "transport/verbs/memory.h"

#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "support/cuda/device_memory.h"
#include "support/verbs/nic.h"
#include "sys/system_runtime.h"
#include "transport/verbs/transport.h"

// How regions come to NICs that do what none at hand does.
namespace fairway::transport::verbs {
namespace {

namespace nic = support::nic;

constexpr std::chrono::seconds kPatience{20};

class Regions : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0);
    if (::getenv("FAIRWAY_CUDA_DRIVER") != std::string(FAIRWAY_STANDIN_CUDA))
      GTEST_SKIP() << "the driver is a real one";
    nic::settings() = {};
  }
  void TearDown() override {
    registrations_ = std::make_unique<Registrations>(64);
    ports_.clear();
    nic::settings() = {};
    EXPECT_EQ(nic::counts().regions.load(), 0U) << "left behind";
    ::unsetenv("FAIRWAY_STANDIN_NO_DMABUF");
    ::unsetenv("FAIRWAY_STANDIN_FULL");
    ::unsetenv("FAIRWAY_STANDIN_UNORDERED");
  }
  void open(OnDemand on_demand = OnDemand::when_short, std::vector<std::string> devices = {"nic0"}) {
    VerbsOptions options;
    options.library = nic::library();
    options.rdma.devices = std::move(devices);
    options.rdma.on_demand = on_demand;
    auto ports = open_ports(options);
    ASSERT_TRUE(ports) << ports.status().message();
    ports_ = std::move(*ports);
  }
  static Region at(std::byte* address, std::uint64_t size, MemoryKind kind, Access access = Access::all,
                   std::uint32_t slot = 1) {
    return {{slot, 1}, address, size, kind, access};
  }
  Result<RegisteredMemory> add(const Region& memory) { return registrations_->add(ports_, memory, runtime_.executor); }
  std::string how(const Result<RegisteredMemory>& made) const { return registrations_->find(made->handle)->how; }
  Result<RegisteredMemory> add_host(Access access = Access::read | Access::write, std::uint64_t size = 4096) {
    static std::vector<std::byte> bytes(kManyPages);
    return add(at(bytes.data(), size, MemoryKind::host, access));
  }

  sys::SystemRuntime system_;
  Runtime runtime_ = system_.runtime();
  std::vector<std::unique_ptr<Port>> ports_;
  std::unique_ptr<Registrations> registrations_ = std::make_unique<Registrations>(64);
};
using GpuRegions = Regions;
using OnDemandRegions = Regions;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(GpuRegions, GoByDmaBufWhereverTheyBegin) {
  support::DeviceMemory gpus;
  open();
  std::byte* bytes = gpus.allocate(1 << 20, 1);
  const std::uint64_t before = nic::counts().by_dmabuf;
  const auto made = add(at(bytes + 5000, 70'001, MemoryKind::device, Access::write));
  ASSERT_TRUE(made) << made.status().message();
  EXPECT_EQ(nic::counts().by_dmabuf - before, 2U) << "the region, and the word of its GPU";
  EXPECT_EQ(how(made), "nic0/1 by dma-buf");
  const auto key = decode_key(made->keys.at(0));
  ASSERT_TRUE(key);
  EXPECT_EQ(key->address, reinterpret_cast<std::uintptr_t>(bytes + 5000));
  EXPECT_NE(key->word.address, 0U);
  const auto second = add(at(bytes, 4096, MemoryKind::device, Access::read, 2));
  ASSERT_TRUE(second);
  EXPECT_EQ(decode_key(second->keys.at(0))->word, key->word) << "one for all regions of a GPU";
  registrations_->take(made->handle);
  registrations_->take(second->handle);
  gpus.free(bytes);
}

TEST_F(GpuRegions, GoByTheirAddressWhereThereIsNoDmaBuf) {
  support::DeviceMemory gpus;
  std::byte* bytes = gpus.allocate(1 << 20, 0);
  nic::settings().peer_memory = true;
  const auto tried = [&](const char* why) {
    registrations_ = std::make_unique<Registrations>(64);
    open();
    const auto made = add(at(bytes, 4096, MemoryKind::device));
    EXPECT_TRUE(made) << made.status().message();
    const std::string how = made ? this->how(made) : "";
    EXPECT_TRUE(has(how, "by nvidia_peermem") && has(how, why)) << how;
    registrations_ = std::make_unique<Registrations>(64);
    ports_.clear();
  };
  nic::settings().dmabuf_in_library = false;
  tried("no ibv_reg_dmabuf_mr");
  nic::settings().dmabuf_in_library = true;
  nic::settings().dmabuf_error = EOPNOTSUPP;
  tried("Operation not supported");
  nic::settings().dmabuf_error = 0;
  ::setenv("FAIRWAY_STANDIN_NO_DMABUF", "1", 1);
  tried("cuMemGetHandleForAddressRange");
  gpus.free(bytes);
}

TEST_F(GpuRegions, AreRefusedWithBothReasons) {
  support::DeviceMemory gpus;
  std::byte* bytes = gpus.allocate(1 << 20, 0);
  nic::settings().dmabuf_error = EOPNOTSUPP;
  open();
  const Status refused = add(at(bytes, 4096, MemoryKind::device)).status();
  EXPECT_EQ(refused.code(), ErrorCode::unsupported);
  for (const char* part : {"nic0/1", "by dma-buf: ibv_reg_dmabuf_mr: Operation not supported",
                           "by address: Bad address", "nvidia_peermem"})
    EXPECT_TRUE(has(refused.message(), part)) << refused.message();
  std::byte ordinary{};
  EXPECT_EQ(add(at(&ordinary, 1, MemoryKind::device)).status().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(add(at(&ordinary, 1, MemoryKind::managed)).status().code(), ErrorCode::unsupported);
  gpus.free(bytes);
}

// A GPU whose memory is full, or that the driver refuses for another reason, is no such GPU for ever.
TEST_F(GpuRegions, AreRegisteredOnceTheirGpuHasRoomAgain) {
  ::setenv("FAIRWAY_STANDIN_UNORDERED", "1", 1);
  support::DeviceMemory gpus;
  std::byte* bytes = gpus.allocate(1 << 20, 0);
  open();
  ::setenv("FAIRWAY_STANDIN_FULL", "1", 1);
  const Status full = add(at(bytes, 4096, MemoryKind::device)).status();
  EXPECT_TRUE(has(full.message(), "cannot allocate eight bytes on GPU 0")) << full.message();
  ::unsetenv("FAIRWAY_STANDIN_FULL");
  const auto made = add(at(bytes, 4096, MemoryKind::device));
  EXPECT_TRUE(made) << made.status().message();
  gpus.free(bytes);
}

TEST_F(GpuRegions, AreRegisteredWithThePortsThatTakeThem) {
  support::DeviceMemory gpus;
  std::byte* bytes = gpus.allocate(1 << 20, 0);
  nic::settings().refuses_gpus = "nic0";
  open(OnDemand::when_short, {"nic0", "nic1"});
  const auto made = add(at(bytes, 4096, MemoryKind::device));
  ASSERT_TRUE(made) << made.status().message();
  ASSERT_EQ(made->keys.size(), 2U);
  EXPECT_TRUE(made->keys[0].empty());
  EXPECT_TRUE(decode_key(made->keys[1]));
  const Registration* found = registrations_->find(made->handle);
  ASSERT_NE(found, nullptr);
  ASSERT_EQ(found->refused.size(), 1U);
  EXPECT_EQ(found->refused[0].first, 0);
  EXPECT_TRUE(has(found->refused[0].second.message(), "nic0/1: GPU memory cannot be registered"));
  EXPECT_FALSE(found->is_at(0));
  EXPECT_TRUE(found->is_at(1));
  registrations_->take(made->handle);
  gpus.free(bytes);
}

// The word of its GPU too, which both of them need there.
TEST_F(GpuRegions, AreAtThePortOfADeviceThatCameBack) {
  support::DeviceMemory gpus;
  ASSERT_NO_FATAL_FAILURE(open());
  std::byte* bytes = gpus.allocate(1 << 20, 1);
  const auto before = add(at(bytes, 4096, MemoryKind::device));
  ASSERT_TRUE(before) << before.status().message();
  Port& port = *ports_.front();
  ASSERT_TRUE(port.let_go());
  registrations_->give_up(port).clear();
  port.close();
  EXPECT_EQ(nic::counts().regions.load(), 0U);
  const auto meanwhile = add(at(bytes + 8192, 4096, MemoryKind::device, Access::all, 2));
  ASSERT_TRUE(meanwhile) << meanwhile.status().message();
  EXPECT_TRUE(meanwhile->keys.front().empty());

  VerbsOptions options;
  options.library = nic::library();
  auto again = open_again(port, options);
  ASSERT_TRUE(again) << again.status().message();
  ASSERT_TRUE(port.can_become(**again));
  auto missing = registrations_->missing_at(0);
  ASSERT_EQ(missing.size(), 2U);
  for (Placing& each : missing) {
    place(**again, each);
    ASSERT_TRUE(each.status) << each.status.message();
  }
  port.become(**again);
  again->reset();
  for (Placing& each : missing) {
    const auto key = registrations_->settle(0, each);
    ASSERT_TRUE(key);
    EXPECT_NE(key->rkey, decode_key(before->keys.front())->rkey);
    EXPECT_NE(key->word.address, 0U);
    EXPECT_TRUE(registrations_->find(each.handle)->is_at(0));
  }
  EXPECT_TRUE(registrations_->missing_at(0).empty());
  EXPECT_EQ(registrations_->renewed_at(0).size(), 2U);
  registrations_->take(before->handle);
  registrations_->take(meanwhile->handle);
  gpus.free(bytes);
}

TEST_F(Regions, WhatNoPortTakesIsRefused) {
  nic::settings().most_pinned = 2 << 20;
  open(OnDemand::off, {"nic0", "nic1"});
  EXPECT_EQ(add_host(Access::read, 6 << 20).status().code(), ErrorCode::resource_exhausted);
}

TEST_F(GpuRegions, AreKnownByTheirAddressOnceTheDriverIsInUse) {
  support::DeviceMemory gpus;
  std::byte* bytes = gpus.allocate(1 << 20, 1);
  const auto place = place_of_gpu_memory(bytes + 100);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->kind, MemoryKind::device);
  EXPECT_EQ(place->gpu, "0000:00:07.0");
  std::byte ordinary{};
  EXPECT_FALSE(place_of_gpu_memory(&ordinary));
  gpus.free(bytes);
}

TEST_F(OnDemandRegions, AreWhatCannotBePinnedWhereTheDeviceHasIt) {
  nic::settings().most_pinned = 2 << 20;
  nic::settings().paging = {abi::kPages, abi::kPagesWrites | abi::kPagesReads, 0, 0};
  open();
  const std::uint64_t before = nic::counts().on_demand;
  EXPECT_EQ(how(add_host()), "") << "pinned, as always";
  registrations_ = std::make_unique<Registrations>(64);
  const auto large = add_host(Access::read | Access::write, 6 << 20);
  ASSERT_TRUE(large) << large.status().message();
  EXPECT_TRUE(has(how(large), "nic0/1 on-demand paging") && has(how(large), "limit of locked memory")) << how(large);
  EXPECT_EQ(nic::counts().on_demand - before, 1U);
}

TEST_F(OnDemandRegions, AreNoneWhereTheyAreOffOrTheDeviceLacksThem) {
  nic::settings().most_pinned = 2 << 20;
  nic::settings().paging = {abi::kPages, abi::kPagesWrites | abi::kPagesReads, 0, 0};
  open(OnDemand::off);
  const Status off = add_host(Access::read, 6 << 20).status();
  EXPECT_EQ(off.code(), ErrorCode::resource_exhausted);
  EXPECT_TRUE(has(off.message(), "raise the limit of locked memory")) << off.message();
  nic::settings().paging = {};
  open(OnDemand::when_short);
  EXPECT_EQ(add_host(Access::read, 6 << 20).status().code(), ErrorCode::resource_exhausted);
}

TEST_F(OnDemandRegions, AreAllWhenAskedForElseTheReasonIsSaid) {
  nic::settings().paging = {abi::kPages, abi::kPagesWrites | abi::kPagesReads, 0, 0};
  open(OnDemand::always);
  EXPECT_TRUE(has(how(add_host()), "nic0/1 on-demand paging"));
  registrations_ = std::make_unique<Registrations>(64);
  const auto tried = [&](const char* why) {
    open(OnDemand::always);
    const auto made = add_host();
    ASSERT_TRUE(made) << made.status().message();
    EXPECT_TRUE(has(how(made), "pinned") && has(how(made), why)) << how(made);
    registrations_ = std::make_unique<Registrations>(64);
  };
  nic::settings().paging.reliable = abi::kPagesReads;
  tried("no on-demand paging for writes of reliable queue pairs");
  nic::settings().paging = {};
  tried("the device has no on-demand paging");
  nic::settings().paging = {abi::kPages, abi::kPagesWrites | abi::kPagesReads, 0, 0};
  nic::settings().kernel_takes_on_demand = false;
  tried("the kernel refused it");
}

// Lets nobody go on before `count` are there.
class Meeting {
 public:
  explicit Meeting(int count) : count_(count) {}
  bool wait() {
    std::unique_lock lock(mutex_);
    ++here_;
    all_.notify_all();
    return all_.wait_for(lock, kPatience, [&] { return here_ >= count_; });
  }

 private:
  const int count_;
  std::mutex mutex_;
  std::condition_variable all_;
  int here_ = 0;
};

TEST_F(Regions, MuchMemoryIsRegisteredAtAllPortsAtOnce) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one processor";
  open(OnDemand::off, {"nic0", "nic1"});
  Meeting meeting(2);
  std::atomic<int> met{0};
  nic::settings().registering = [&](std::uint64_t) { met += meeting.wait() ? 1 : 0; };
  const auto made = add_host(Access::read | Access::write, kManyPages);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->keys.size(), 2U);
  EXPECT_EQ(met.load(), 2);
}

TEST_F(Regions, SeveralThreadsRegisterAtOnce) {
  constexpr int kThreads = 4;
  open();
  Meeting meeting(kThreads);
  std::atomic<int> met{0};
  nic::settings().registering = [&](std::uint64_t) { met += meeting.wait() ? 1 : 0; };
  std::vector<std::byte> bytes(kThreads * 4096);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      EXPECT_TRUE(add(at(&bytes[static_cast<std::size_t>(i) * 4096], 4096, MemoryKind::host, Access::read,
                         static_cast<std::uint32_t>(i))));
    });
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(met.load(), kThreads);
}

struct NoTask final : Task {
  void wake() override {}
  void end() override {}
  Status watch(int) override { return {}; }
  void unwatch(int) override {}
};

TEST_F(Regions, TheEndOfMuchMemoryHoldsUpNobodyAndIsToldWhenItIsOver) {
  RegionTable table(16);
  Meeting over(2);
  NoTask task;
  VerbsOptions options;
  options.library = nic::library();
  options.rdma.devices = {"nic0"};
  VerbsTransport transport(table, runtime_, options);
  ASSERT_TRUE(transport.open());
  ASSERT_TRUE(transport.attach(task));
  std::vector<std::byte> bytes(kManyPages);
  const auto id = table.add(bytes.data(), bytes.size(), MemoryKind::host, Access::all);
  ASSERT_TRUE(id);
  Region memory = at(bytes.data(), bytes.size(), MemoryKind::host);
  memory.id = *id;
  const auto made = transport.register_memory(memory, {});
  ASSERT_TRUE(made);
  nic::settings().deregistering = [&](std::uint64_t) { over.wait(); };
  std::array<Event, 4> events;
  transport.deregister(made->handle);  // else it would wait here for ever
  EXPECT_EQ(transport.poll(events, runtime_.clock.now()), 0U) << "the NIC still reaches it";
  over.wait();
  const auto until = std::chrono::steady_clock::now() + kPatience;
  std::size_t count = 0;
  while (count == 0 && std::chrono::steady_clock::now() < until) count = transport.poll(events, runtime_.clock.now());
  ASSERT_EQ(count, 1U);
  EXPECT_EQ(events[0].kind, EventKind::deregistered);
  EXPECT_EQ(events[0].value, made->handle);
}

TEST_F(Regions, AClosedTransportAsksForNoStepAnyMore) {
  RegionTable table(16);
  NoTask task;
  VerbsOptions options;
  options.library = nic::library();
  VerbsTransport transport(table, runtime_, options);
  ASSERT_TRUE(transport.open());
  ASSERT_TRUE(transport.attach(task));
  std::array<Event, 4> events;
  (void)transport.poll(events, runtime_.clock.now());
  EXPECT_NE(transport.next_timer(), kNever) << "software devices are looked for";
  transport.close();
  EXPECT_EQ(transport.next_timer(), kNever);
}

TEST(RegionKeys, HaveAWordForAGpusMemoryAlone) {
  const Key host{0x1000, 7, {}}, gpu{0x2000, 8, {0x3000, 9}};
  for (const Key& key : {host, gpu}) {
    const auto bytes = encode(key);
    EXPECT_EQ(bytes.size(), key.word.address == 0 ? 12U : 24U);
    const auto read = decode_key(bytes);
    ASSERT_TRUE(read);
    EXPECT_TRUE(read->address == key.address && read->rkey == key.rkey && read->word == key.word);
    for (std::size_t size = 0; size < 30; ++size)
      EXPECT_EQ(decode_key(std::vector<std::byte>(size, std::byte{1})).is_ok(), size == 12 || size == 24) << size;
  }
  EXPECT_FALSE(decode_key(std::vector<std::byte>(24))) << "a word at no address";
}

}  // namespace
}  // namespace fairway::transport::verbs
