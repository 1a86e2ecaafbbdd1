#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <thread>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "support/cuda/device_memory.h"
#include "sys/system_runtime.h"
#include "transport/cuda/cuda.h"
#include "transport/cuda/exporter.h"
#include "transport/gpu_access.h"

// What is found out about pointers, and how allocations are lent, on the driver that stands in for CUDA's.
namespace fairway::transport::cuda {
namespace {

class Lending : public testing::Test {
 protected:
  void SetUp() override { ::setenv("FAIRWAY_CUDA_DRIVER", FAIRWAY_STANDIN_CUDA, 0); }
  static Region region(std::uint32_t slot, std::byte* address, std::uint64_t size) {
    return {{slot, 1}, address, size, MemoryKind::device, Access::read};
  }
};

TEST_F(Lending, APointerSaysWhatItIs) {
  support::DeviceMemory gpus;
  std::byte* on_gpu = gpus.allocate(1 << 20, 1);
  const Pointer pointer = look_at(gpus.driver(), on_gpu + 5000);
  EXPECT_EQ(pointer.kind, MemoryKind::device);
  EXPECT_EQ(pointer.device, 1);
  EXPECT_EQ(pointer.base, reinterpret_cast<std::uint64_t>(on_gpu));
  EXPECT_TRUE(pointer.ipc);
  EXPECT_FALSE(pointer.file);
  EXPECT_TRUE(look_at(gpus.driver(), gpus.map(2 << 20, 0, true)).file);
  int ordinary = 0;
  EXPECT_FALSE(look_at(gpus.driver(), &ordinary).kind);
  gpus.free(on_gpu);
}

TEST_F(Lending, RegionsOfOneAllocationShareItsHandleUntilTheLastIsGone) {
  support::DeviceMemory gpus;
  const auto devices = std::make_shared<Devices>(sys::CudaDriver::open().value());
  Exporter exporter(devices, {});
  std::byte* bytes = gpus.allocate(1 << 20, 0);
  const auto first = exporter.export_memory(region(1, bytes, 4096));
  const auto second = exporter.export_memory(region(2, bytes + 8192, 4096));
  ASSERT_TRUE(first && *first && second && *second);
  EXPECT_EQ((*first)->identity, (*second)->identity);
  EXPECT_EQ((*first)->handle, (*second)->handle);
  EXPECT_EQ((*second)->offset, 8192u);
  EXPECT_EQ(exporter.device_of({2, 1}), 0);
  exporter.end_export({1, 1});
  exporter.end_export({2, 1});
  EXPECT_EQ(exporter.device_of({2, 1}), -1);
  gpus.free(bytes);
  std::byte* again = gpus.allocate(1 << 20, 0);  // perhaps at the same address
  const auto third = exporter.export_memory(region(3, again, 4096));
  ASSERT_TRUE(third && *third);
  EXPECT_NE((*third)->identity, (*first)->identity);
  exporter.end_export({3, 1});
  gpus.free(again);
}

// Workers that copy ask it about regions all the time.
TEST_F(Lending, AnExportThatTakesLongHoldsUpNobodyWhoAsksAboutOtherRegions) {
  void* const library = ::dlopen(std::getenv("FAIRWAY_CUDA_DRIVER"), RTLD_NOW);
  const auto hold = reinterpret_cast<void (*)(bool)>(
      library == nullptr ? nullptr : ::dlsym(library, "fairway_standin_hold_openings"));
  if (hold == nullptr) GTEST_SKIP() << "a real driver's calls cannot be held";
  support::DeviceMemory gpus;
  Exporter exporter(std::make_shared<Devices>(sys::CudaDriver::open().value()), {});
  std::byte* const known = gpus.allocate(1 << 20, 0);
  std::byte* const slow = gpus.allocate(1 << 20, 1);
  ASSERT_TRUE(exporter.export_memory(region(1, known, 4096)));
  hold(true);
  auto lent = std::async(std::launch::async, [&] { return exporter.export_memory(region(2, slow, 4096)).status(); });
  auto asked = std::async(std::launch::async, [&] {
    int device = 0;
    for (int i = 0; i < 100 && device == 0; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(1)))
      device = exporter.device_of({1, 1});
    return device;
  });
  EXPECT_EQ(asked.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(lent.wait_for(std::chrono::seconds(0)), std::future_status::timeout) << "it was not held";
  hold(false);
  EXPECT_EQ(asked.get(), 0);
  EXPECT_TRUE(lent.get());
  EXPECT_EQ(exporter.device_of({2, 1}), 1);
  for (const std::uint32_t slot : {1u, 2u}) exporter.end_export({slot, 1});
  gpus.free(known);
  gpus.free(slow);
}

TEST_F(Lending, WhatLeavesItsAllocationOrIsNoGpusIsRefused) {
  support::DeviceMemory gpus;
  Exporter exporter(std::make_shared<Devices>(sys::CudaDriver::open().value()), {});
  std::byte* bytes = gpus.allocate(1 << 20, 0);
  EXPECT_EQ(exporter.export_memory(region(1, bytes, (1 << 20) + 1)).status().code(), ErrorCode::out_of_range);
  std::byte ordinary{};
  EXPECT_EQ(exporter.export_memory(region(1, &ordinary, 1)).status().code(), ErrorCode::invalid_argument);
  const auto locked = exporter.export_memory(region(2, gpus.map(2 << 20, 1, false), 4096));
  ASSERT_TRUE(locked && *locked);
  const auto handle = decode((*locked)->handle);
  ASSERT_TRUE(handle);
  EXPECT_EQ(handle->by, Export::none);
  EXPECT_NE(handle->why, "");
  exporter.end_export({2, 1});
  gpus.free(bytes);
}

// PyTorch's expandable segments.
TEST_F(Lending, ARegionOverSeveralMappingsIsLentWithADescriptorForEach) {
  support::DeviceMemory gpus;
  Exporter exporter(std::make_shared<Devices>(sys::CudaDriver::open().value()), {});
  constexpr std::uint64_t kPart = 2 << 20;
  std::byte* bytes = gpus.map(4 * kPart, 0, true, 4);
  const auto middle =
      exporter.export_memory(region(1, bytes + kPart + 5000, 2 * kPart));  // of the second to the fourth
  ASSERT_TRUE(middle && *middle) << middle.status().to_string();
  EXPECT_EQ((*middle)->offset, 5000u);
  EXPECT_EQ((*middle)->files.size(), 3u);
  const auto handle = decode((*middle)->handle);
  ASSERT_TRUE(handle);
  EXPECT_EQ(handle->base, reinterpret_cast<std::uint64_t>(bytes) + kPart);
  EXPECT_EQ(handle->mappings, (std::vector<std::uint64_t>{kPart, kPart, kPart}));
  const auto same = exporter.export_memory(region(2, bytes + kPart, 3 * kPart));
  const auto other = exporter.export_memory(region(3, bytes, 2 * kPart));
  ASSERT_TRUE(same && *same && other && *other);
  EXPECT_EQ((*same)->identity, (*middle)->identity);
  EXPECT_NE((*other)->identity, (*middle)->identity);
  EXPECT_EQ(exporter.export_memory(region(4, bytes, 4 * kPart + 1)).status().code(), ErrorCode::out_of_range);
  const auto locked = exporter.export_memory(region(5, gpus.map(2 * kPart, 0, false, 2), 2 * kPart));
  ASSERT_TRUE(locked && *locked);
  EXPECT_EQ(decode((*locked)->handle)->by, Export::none);
  for (std::uint32_t slot = 1; slot <= 5; ++slot) exporter.end_export({slot, 1});
}

TEST_F(Lending, WithoutADriverTheReasonIsSaid) {
  const auto none = sys::CudaDriver::open("/nowhere/libcuda.so");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.status().code(), ErrorCode::unsupported);
  EXPECT_NE(none.status().message().find("/nowhere/libcuda.so"), std::string::npos);
}

TEST_F(Lending, AViewIsOfAKindThatTheCallerAccepts) {
  sys::SystemRuntime system;
  Runtime runtime = system.runtime();
  RegionTable regions(4);
  const auto links = open_cuda_transport(regions, runtime), none = open_staging_transport(regions, runtime);
  ASSERT_TRUE(links && none) << links.status().to_string();
  EXPECT_TRUE(has(**links, DeviceInitiated::address));
  EXPECT_FALSE(has(**links, DeviceInitiated::nic_queue));
  EXPECT_FALSE(has(**none, DeviceInitiated::address)) << "it reaches no peer";
  GpuAccess::View view;
  Status why;
  EXPECT_EQ((*links)->gpu()->view_own(1, 0, static_cast<Bits>(DeviceInitiated::nic_queue), view, why), Reach::no);
  EXPECT_EQ(why.code(), ErrorCode::unsupported) << why.to_string();
  EXPECT_EQ((*links)->gpu()->view_own(1, 0, static_cast<Bits>(DeviceInitiated::address), view, why), Reach::no);
  EXPECT_NE(why.code(), ErrorCode::unsupported) << why.to_string();
}

}  // namespace
}  // namespace fairway::transport::cuda
