#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "support/cuda/device_memory.h"
#include "sys/system_runtime.h"
#include "transport/cuda/cuda.h"
#include "transport/gpu_access.h"

// NVLinks that are kept awake: two transports of one process on two GPUs, with time that this test lets pass.
namespace fairway::transport::cuda {
namespace {

constexpr std::size_t kBytes = 1 << 20;

class TestClock final : public Clock {
 public:
  Time now() override { return time; }
  std::uint64_t unix_ns() override { return static_cast<std::uint64_t>(time); }
  std::atomic<Time> time{kSecond};
};

class Unwatched final : public Task {
 public:
  void wake() override {}
  void end() override {}
  Status watch(int) override { return {}; }
  void unwatch(int) override {}
};

struct End {
  End(Runtime& runtime, bool keep_awake)
      : regions(64), transport(open_cuda_transport(regions, runtime, false, keep_awake).value()) {
    EXPECT_TRUE(transport->attach(task));
  }
  ~End() { transport->close(); }
  Unwatched task;
  RegionTable regions;
  std::unique_ptr<Transport> transport;
  std::vector<Event> seen;
};

class KeptAwake : public testing::Test {
 protected:
  void SetUp() override {
    const char* const before = std::getenv("FAIRWAY_CUDA_DRIVER");
    before_ = before == nullptr ? "" : before;
    ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 1);
    gpus_ = std::make_unique<support::DeviceMemory>();
    void* const library = ::dlopen(FAIRWAY_STANDIN_CUDA, RTLD_NOW | RTLD_NOLOAD);
    ASSERT_NE(library, nullptr);
    copies_ = reinterpret_cast<unsigned long (*)()>(::dlsym(library, "fairway_standin_stream_copies"));
    hold_ = reinterpret_cast<void (*)(bool)>(::dlsym(library, "fairway_standin_hold_copies"));
    ASSERT_TRUE(copies_ != nullptr && hold_ != nullptr);
  }
  void TearDown() override {
    if (hold_ != nullptr) hold_(false);
    a_.reset();
    b_.reset();
    for (std::byte* place : places_) gpus_->free(place);
    for (const char* each : {"FAIRWAY_STANDIN_NO_NVLINK", "FAIRWAY_STANDIN_PCIE_ATOMICS", "FAIRWAY_NVML"})
      ::unsetenv(each);
    if (!before_.empty()) ::setenv("FAIRWAY_CUDA_DRIVER", before_.c_str(), 1);
  }

  struct Registered {
    Region region;
    RegisteredMemory memory;
  };
  Registered on_gpu(End& end, int gpu, Access access) {
    places_.push_back(gpus_->allocate(kBytes, gpu));
    Registered made;
    made.region = {{}, places_.back(), kBytes, MemoryKind::device, access};
    made.region.id = end.regions.add(places_.back(), kBytes, MemoryKind::device, access).value();
    made.memory = end.transport->register_memory(made.region, {}).value();
    return made;
  }
  // a uses GPU 0 and imports what b has on GPU 1.
  void join(bool keep_awake, Access access = Access::read) {
    a_ = std::make_unique<End>(runtime_, keep_awake);
    b_ = std::make_unique<End>(runtime_, false);
    own_ = on_gpu(*a_, 0, Access::none);
    theirs_ = on_gpu(*b_, 1, access);
    ASSERT_TRUE(b_->transport->connect(1, Role::acceptor));
    ASSERT_TRUE(a_->transport->connect(1, Role::initiator));
    ASSERT_TRUE(passes([&] { return has(*a_, EventKind::link_up) && has(*b_, EventKind::link_up); }));
    import_ = import(theirs_);
    std::string path;
    ASSERT_TRUE(passes([&] { return reach(path) == Reach::yes; })) << path;
  }
  std::uint64_t import(const Registered& memory) {
    Region there = memory.region;
    there.address = nullptr;
    return a_->transport->import(1, there, memory.memory.keys).value();
  }
  Reach reach(std::string& path) { return a_->transport->reach({}, own_.memory.handle, import_, &path); }
  std::string path() {
    std::string words;
    (void)reach(words);
    return words;
  }
  static bool has(const End& end, EventKind kind) {
    return std::any_of(end.seen.begin(), end.seen.end(), [kind](const Event& each) { return each.kind == kind; });
  }
  // One poll of both; what they say to each other is carried. The clock stands.
  void poll() {
    const auto step = [&](End& one, End* other) {
      std::array<Event, 16> events;
      const std::size_t count = one.transport->poll(events, clock_.time);
      for (std::size_t i = 0; i < count; ++i) {
        if (events[i].kind == EventKind::exchange && other) other->transport->exchange(1, events[i].bytes);
        one.seen.push_back(events[i]);
        one.seen.back().bytes = {};
      }
    };
    if (a_) step(*a_, b_.get());
    if (b_) step(*b_, a_.get());
  }
  // Lets a millisecond pass at a time, until it is so.
  template <class Condition>
  bool passes(Condition holds) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!holds()) {
      if (std::chrono::steady_clock::now() > until) return false;
      clock_.time += kMillisecond;
      poll();
      std::this_thread::yield();  // to the driver's threads
    }
    return true;
  }
  // Copies of `milliseconds` in which nobody transfers anything. Each is over before the next millisecond.
  unsigned long copies_within(int milliseconds) {
    const unsigned long first = copies_();
    for (int i = 0; i < milliseconds; ++i) {
      clock_.time += kMillisecond;
      poll();
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (!a_->transport->prepare_sleep() && std::chrono::steady_clock::now() < until) poll();
    }
    return copies_() - first;
  }

  std::string before_;
  std::unique_ptr<support::DeviceMemory> gpus_;
  unsigned long (*copies_)() = nullptr;
  void (*hold_)(bool) = nullptr;
  sys::SystemRuntime system_;
  Runtime whole_ = system_.runtime();
  TestClock clock_;
  Runtime runtime_{clock_, whole_.rng, whole_.executor, whole_.network};
  std::unique_ptr<End> a_, b_;
  Registered own_, theirs_;
  std::uint64_t import_ = 0;
  std::vector<std::byte*> places_;
};

TEST_F(KeptAwake, OneReadEach25MillisecondsAndTheTimerIsDueThen) {
  ASSERT_NO_FATAL_FAILURE(join(true));
  ASSERT_TRUE(passes([&] { return a_->transport->next_timer() > clock_.time; }));
  copies_within(25);
  EXPECT_LE(a_->transport->next_timer(), clock_.time + 25 * kMillisecond);
  EXPECT_EQ(copies_within(1000), 40u);
  EXPECT_NE(path().find("NVLink, kept awake"), std::string::npos) << path();
}

TEST_F(KeptAwake, NothingMovesUnlessSomebodyAskedForIt) {
  ASSERT_NO_FATAL_FAILURE(join(false));
  EXPECT_EQ(copies_within(1000), 0u);
  EXPECT_EQ(a_->transport->next_timer(), kNever);
  EXPECT_NE(path().find("NVLink sleeps after 50 ms"), std::string::npos) << path();
  EXPECT_NE(path().find("EngineOptions::keep_links_awake"), std::string::npos) << path();
}

TEST_F(KeptAwake, OneOfManyRegionsIsReadAndOnlyOneThatMayBe) {
  ASSERT_NO_FATAL_FAILURE(join(true, Access::write));
  EXPECT_EQ(copies_within(200), 0u) << "none may be read";
  EXPECT_NE(path().find("nothing of the peer's may be read"), std::string::npos) << path();
  for (int i = 0; i < 3; ++i) import(on_gpu(*b_, 1, Access::read));
  ASSERT_TRUE(passes([&] { return path().find("kept awake") != std::string::npos; })) << path();
  copies_within(25);
  EXPECT_EQ(copies_within(1000), 40u);
}

TEST_F(KeptAwake, WhatIsDeregisteredIsReadNoMoreAndItsEndIsNotHeldUp) {
  ASSERT_NO_FATAL_FAILURE(join(true));
  EXPECT_GT(copies_within(100), 0u);
  ASSERT_TRUE(b_->regions.revoke(theirs_.region.id));
  b_->transport->deregister(theirs_.memory.handle);
  ASSERT_TRUE(passes([&] { return has(*b_, EventKind::deregistered); }));
  EXPECT_EQ(copies_within(200), 0u);
}

TEST_F(KeptAwake, AReadThatIsUnderWayIsTheOnlyOneAndIsWaitedForBeforeTheMemoryEnds) {
  ASSERT_NO_FATAL_FAILURE(join(true));
  EXPECT_GT(copies_within(100), 0u);
  hold_(true);
  const unsigned long first = copies_();
  for (int i = 0; i < 200; ++i) {
    clock_.time += kMillisecond;
    poll();
  }
  EXPECT_EQ(copies_() - first, 1u);
  EXPECT_FALSE(a_->transport->prepare_sleep()) << "a device tells of its copies only in memory";
  ASSERT_TRUE(b_->regions.revoke(theirs_.region.id));
  b_->transport->deregister(theirs_.memory.handle);
  for (int i = 0; i < 200; ++i) {
    clock_.time += kMillisecond;
    poll();
  }
  EXPECT_FALSE(has(*b_, EventKind::deregistered)) << "it is still read";
  hold_(false);
  EXPECT_TRUE(passes([&] { return has(*b_, EventKind::deregistered); }));
}

TEST_F(KeptAwake, NoReadBeginsOverALinkThatIsFenced) {
  ASSERT_NO_FATAL_FAILURE(join(true));
  EXPECT_GT(copies_within(100), 0u);
  for (const Event& each : a_->seen)
    if (each.kind == EventKind::link_up) a_->transport->fence(each.link);
  ASSERT_TRUE(passes([&] { return has(*a_, EventKind::fenced); }));
  EXPECT_EQ(copies_within(200), 0u);
}

TEST_F(KeptAwake, WithoutNvLinkThereIsNothingToKeepAwake) {
  ::setenv("FAIRWAY_STANDIN_NO_NVLINK", "1", 1);
  ASSERT_NO_FATAL_FAILURE(join(true));
  EXPECT_EQ(copies_within(200), 0u);
  EXPECT_EQ(path().find("NVLink"), std::string::npos) << path();
}

// Some bridges of PCIe carry atomics: they say nothing of the link's kind.
TEST_F(KeptAwake, WhatHasAtomicsOverPcieIsNotTakenForNvLink) {
  ::setenv("FAIRWAY_NVML", FAIRWAY_STANDIN_CUDA, 1);
  ::setenv("FAIRWAY_STANDIN_PCIE_ATOMICS", "1", 1);
  ASSERT_NO_FATAL_FAILURE(join(true));
  EXPECT_EQ(copies_within(200), 0u);
  EXPECT_EQ(path().find("NVLink"), std::string::npos) << path();
}

}  // namespace
}  // namespace fairway::transport::cuda
