#include "transport/cuda/mover.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "support/cuda/device_memory.h"
#include "sys/cuda_memory.h"
#include "sys/nvml.h"
#include "sys/system_runtime.h"
#include "transport/cuda/pins.h"

// What the mover asks of its threads, and what of the driver outlives what it is for.
namespace fairway::transport::cuda {
namespace {

// Threads that never come to their work, until they end.
class Idle final : public Executor {
 public:
  class Asleep final : public Task {
   public:
    explicit Asleep(std::atomic<int>& wakes) : wakes_(wakes) {}
    void wake() override { ++wakes_; }
    void end() override {}
    Status watch(int) override { return {}; }
    void unwatch(int) override {}

   private:
    std::atomic<int>& wakes_;
  };
  Result<std::unique_ptr<Task>> start(const TaskOptions&, Stepper&) override {
    return std::unique_ptr<Task>(std::make_unique<Asleep>(wakes));
  }
  Result<std::unique_ptr<Signal>> make_signal() override { return Status(ErrorCode::unsupported, "none"); }
  void wait(std::atomic<std::uint32_t>&, std::uint32_t, Time) override {}
  void wake_all(std::atomic<std::uint32_t>&) override {}
  std::atomic<int> wakes{0};
};

class MoverOf : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 1);
    driver_ = sys::CudaDriver::open().value();
    library_ = ::dlopen(FAIRWAY_STANDIN_CUDA, RTLD_NOW | RTLD_NOLOAD);
    ASSERT_NE(library_, nullptr);
  }
  template <class Function>
  Function standin(const char* name) const {
    return reinterpret_cast<Function>(::dlsym(library_, name));
  }
  std::shared_ptr<const sys::CudaDriver> driver_;
  sys::SystemRuntime system_;
  void* library_ = nullptr;
};

// A thread that a kernel holds up is asked again at each poll of each transfer that waits.
TEST_F(MoverOf, QueuesAreAskedForOnceHoweverOftenSomebodyLooks) {
  Idle idle;
  Runtime whole = system_.runtime();
  Runtime runtime{whole.clock, whole.rng, idle, whole.network};
  Idle::Asleep task(idle.wakes);  // outlives whom it wakes
  CudaMover mover(runtime, driver_);
  ASSERT_TRUE(mover.attach(task));
  host::Mover::Path path;
  std::string why;
  for (int poll = 0; poll < 1000; ++poll)
    ASSERT_EQ(mover.path({1, 1}, nullptr, {}, path, why), host::Mover::Readiness::opening);
  EXPECT_EQ(idle.wakes, 1);
}

TEST_F(MoverOf, WhatACaptureDoesNotAllowIsTriedAgain) {
  Runtime runtime = system_.runtime();
  Idle idle;
  Idle::Asleep task(idle.wakes);
  CudaMover mover(runtime, driver_);
  ASSERT_TRUE(mover.attach(task));
  standin<void (*)(unsigned)>("fairway_standin_refuse_unsafe")(1);
  host::Mover::Path path;
  std::string why;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  auto ready = host::Mover::Readiness::opening;
  while (ready == host::Mover::Readiness::opening && std::chrono::steady_clock::now() < until)
    ready = mover.path({1, 1}, nullptr, {}, path, why);
  EXPECT_EQ(ready, host::Mover::Readiness::ready) << why;
  mover.close();
}

TEST_F(MoverOf, APinThatACaptureDoesNotAllowIsForgottenAndTriedAgain) {
  Runtime runtime = system_.runtime();
  const auto devices = std::make_shared<Devices>(driver_);
  ASSERT_TRUE(devices->use(0));
  transport::Janitor opening(runtime, "pins");
  const auto pins = std::make_shared<Pins>(devices, opening, std::make_shared<sys::CudaClosing>(driver_));
  std::vector<std::byte> memory(1 << 16);
  for (const bool well : {false, true}) {
    if (!well) standin<void (*)(unsigned)>("fairway_standin_refuse_unsafe")(1);
    std::atomic<int> ended{-1};
    pins->use(7, 0, memory.data(), memory.size(), [&](bool pinned) { ended = pinned ? 1 : 0; });
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while ((ended < 0 || pins->knows(7) != well) && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(ended, well ? 1 : 0);
    EXPECT_EQ(pins->knows(7), well);
  }
  std::atomic<bool> dropped{false};
  pins->drop(7, [&] { dropped = true; });
  while (!dropped) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST_F(MoverOf, GpusThatThisProcessDoesNotSeeAreAskedFor) {
  ::setenv("FAIRWAY_NVML", FAIRWAY_STANDIN_CUDA, 1);
  EXPECT_EQ(sys::native_atomics("0000:00:06.0", "0000:00:0D.0"), true);
  EXPECT_EQ(sys::native_atomics("0000:00:06.0", "0000:00:0E.0"), std::nullopt);
  EXPECT_EQ(sys::native_atomics("GPU-005a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a", "GPU-075a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a"),
            true);
  EXPECT_EQ(sys::native_atomics("GPU-005a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a", "GPU-085a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a"),
            std::nullopt);
  ::setenv("FAIRWAY_STANDIN_NO_NVLINK", "1", 1);
  EXPECT_EQ(sys::native_atomics("0000:00:06.0", "0000:00:0D.0"), false);
  ::unsetenv("FAIRWAY_STANDIN_NO_NVLINK");
  ::setenv("FAIRWAY_STANDIN_PCIE_ATOMICS", "1", 1);
  EXPECT_EQ(sys::native_atomics("0000:00:06.0", "0000:00:0D.0"), true);
  EXPECT_EQ(sys::over_nvlink("0000:00:06.0", "0000:00:0D.0"), false);
  ::unsetenv("FAIRWAY_STANDIN_PCIE_ATOMICS");
  EXPECT_EQ(sys::over_nvlink("0000:00:06.0", "0000:00:0D.0"), true);
  ::setenv("FAIRWAY_NVML", "/nowhere/libnvidia-ml.so.1", 1);
  EXPECT_EQ(sys::native_atomics("0000:00:06.0", "0000:00:0D.0"), std::nullopt);
  ::unsetenv("FAIRWAY_NVML");
}

class CudaPinsOf : public MoverOf {
 protected:
  void SetUp() override {
    MoverOf::SetUp();
    gpus_ = std::make_unique<support::DeviceMemory>();
  }
  int pin(std::size_t from, std::size_t size) {
    return gpus_->on(0, [&] { return driver_->pins().pin(memory_.data() + from, size); });
  }
  bool is_pinned(std::size_t at) const {
    return sys::look_at(*driver_, memory_.data() + at).kind == MemoryKind::pinned;
  }
  std::unique_ptr<support::DeviceMemory> gpus_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(1 << 16);
};

TEST_F(CudaPinsOf, APartThatTwoNeedStaysPinnedUntilBothHaveLetGo) {
  ASSERT_EQ(pin(0, 8192), sys::cuda::kSuccess);
  ASSERT_EQ(pin(4096, 4096), sys::cuda::kSuccess);
  driver_->pins().unpin(memory_.data());
  EXPECT_TRUE(is_pinned(4096)) << "a kernel of the other's may still read it";
  driver_->pins().unpin(memory_.data() + 4096);
  EXPECT_FALSE(is_pinned(4096));
  EXPECT_FALSE(driver_->pins().touches(memory_.data(), memory_.size()));
}

TEST_F(CudaPinsOf, WhatIsPinnedInPartIsPinnedForNobodyElse) {
  ASSERT_EQ(pin(4096, 4096), sys::cuda::kSuccess);
  EXPECT_NE(pin(0, 8192), sys::cuda::kSuccess);
  EXPECT_NE(pin(6000, 8192), sys::cuda::kSuccess);
  EXPECT_EQ(pin(8192, 4096), sys::cuda::kSuccess) << "beside it";
  driver_->pins().unpin(memory_.data() + 4096);
  driver_->pins().unpin(memory_.data() + 8192);
  EXPECT_EQ(pin(0, 8192), sys::cuda::kSuccess);
  driver_->pins().unpin(memory_.data());
}

TEST_F(CudaPinsOf, OnlyWhatTheProgramHasPinnedItselfAndWhollyIsTheProgramsPin) {
  const auto whole = [&](std::size_t from, std::size_t size) {
    return sys::pinned_by_program(*driver_, memory_.data() + from, size);
  };
  EXPECT_FALSE(whole(0, 4096));
  ASSERT_EQ(pin(0, 4096), sys::cuda::kSuccess);
  EXPECT_FALSE(whole(0, 4096)) << "Fairway's own, which may end";
  driver_->pins().unpin(memory_.data());
  gpus_->on(0, [&] { return (*driver_)->cuMemHostRegister_v2(memory_.data(), 4096, 0); });
  gpus_->on(0, [&] { return (*driver_)->cuMemHostRegister_v2(memory_.data() + 4096, 4096, 0); });
  EXPECT_TRUE(whole(0, 4096));
  EXPECT_TRUE(whole(100, 8000)) << "by two calls";
  EXPECT_FALSE(whole(100, 8192));
  (*driver_)->cuMemHostUnregister(memory_.data());
  (*driver_)->cuMemHostUnregister(memory_.data() + 4096);
}

}  // namespace
}  // namespace fairway::transport::cuda
