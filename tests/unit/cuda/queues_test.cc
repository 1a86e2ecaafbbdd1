#include "transport/cuda/queues.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <thread>

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "support/cuda/device_memory.h"

// How lists of copies are handed to the driver: by one call where it has one for several, by one each where it has not.
namespace fairway::transport::cuda {
namespace {

using Copy = host::Mover::Copy;

class Lists : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const char* named = std::getenv("FAIRWAY_CUDA_DRIVER");
    const bool another = named != nullptr && std::strcmp(named, FAIRWAY_STANDIN_CUDA) != 0;
    if (another && is_old()) GTEST_SKIP() << "another driver than the stand-ins is asked for";
    before_ = named == nullptr ? FAIRWAY_STANDIN_CUDA : named;
    ::setenv("FAIRWAY_CUDA_DRIVER", another ? named : GetParam(), 1);
    gpus_ = std::make_unique<support::DeviceMemory>();
    devices_ = std::make_unique<Devices>(sys::CudaDriver::open().value());
    has_batch_ = devices_->driver()->cuMemcpyBatchAsync != nullptr;
    auto made = Queues::make(*devices_, 0);
    ASSERT_TRUE(made) << made.status().to_string();
    queues_ = std::move(*made);
    from_ = gpus_->allocate(kBytes, 0);
    to_ = gpus_->allocate(kBytes, 1);
    ASSERT_TRUE(devices_->reach(0, 1));
    for (std::size_t i = 0; i < kBytes; ++i) bytes_[i] = static_cast<std::byte>(i * 131 >> 3);
    gpus_->write(from_, bytes_, 0);
    gpus_->write(to_, std::vector<std::byte>(kBytes), 1);
  }
  void TearDown() override {
    queues_.reset();
    devices_.reset();
    if (to_ != nullptr) gpus_->free(to_);
    if (from_ != nullptr) gpus_->free(from_);
    gpus_.reset();
    if (!before_.empty()) ::setenv("FAIRWAY_CUDA_DRIVER", before_.c_str(), 1);
  }
  static bool is_old() { return std::strcmp(GetParam(), FAIRWAY_STANDIN_CUDA_OLD) == 0; }

  // Piece i from place i to place i.
  std::vector<Copy> pieces(std::size_t count, std::uint64_t size) const {
    std::vector<Copy> all;
    for (std::size_t i = 0; i < count; ++i) all.push_back({to_ + i * size, from_ + i * size, size});
    return all;
  }
  // Until it is over; `why` where it was refused.
  bool over(std::span<const Copy> copies, std::string& why, std::uint64_t kernel_below = Queues::kKernelBelow) {
    host::Mover::Ticket ticket;
    if (const Status started = queues_->start(copies, kernel_below, false, nullptr, ticket); !started) {
      why = started.message();
      return false;
    }
    queues_->flush();
    return ends(ticket, why);
  }
  bool ends(const host::Mover::Ticket& ticket, std::string& why) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    for (;;) {
      const auto state = queues_->poll(ticket, why);
      if (state != host::Mover::Readiness::opening) return state == host::Mover::Readiness::ready;
      if (std::chrono::steady_clock::now() > until) {
        why = "it is never over";
        return false;
      }
      std::this_thread::yield();
    }
  }
  std::vector<std::byte> arrived(std::size_t size) {
    std::vector<std::byte> seen(size);
    gpus_->read(seen, to_, 1);
    return seen;
  }
  std::vector<std::byte> sent(std::size_t size) const {
    return {bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(size)};
  }
  // Calls so far, of those for one copy and of those for several; of a real driver nothing is known.
  struct Calls {
    unsigned long copies = 0, batches = 0;
  };
  bool counts(Calls& out) const {
    void* const driver = ::dlopen(std::getenv("FAIRWAY_CUDA_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
    if (driver == nullptr) return false;
    using Count = unsigned long (*)();
    const auto copies = reinterpret_cast<Count>(::dlsym(driver, "fairway_standin_stream_copies"));
    const auto batches = reinterpret_cast<Count>(::dlsym(driver, "fairway_standin_stream_batches"));
    ::dlclose(driver);
    if (copies == nullptr || batches == nullptr) return false;
    out = {copies(), batches()};
    return true;
  }
  // Where the driver counts: `batches` calls for `copies` of them, or a call for each where it has none for several.
  void expect_calls(const Calls& before, unsigned long copies, unsigned long batches) {
    Calls now;
    if (!counts(now)) return;
    EXPECT_EQ(now.batches - before.batches, has_batch_ ? batches : 0);
    EXPECT_EQ(now.copies - before.copies, has_batch_ && batches > 0 ? 0 : copies);
  }

  static constexpr std::size_t kBytes = 4 << 20;
  std::string before_;
  std::unique_ptr<support::DeviceMemory> gpus_;
  std::unique_ptr<Devices> devices_;
  std::unique_ptr<Queues> queues_;
  std::byte *from_ = nullptr, *to_ = nullptr;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(kBytes);
  bool has_batch_ = false;
};

TEST_P(Lists, SeveralCopiesAreOneCallWhereTheDriverHasIt) {
  if (std::strcmp(std::getenv("FAIRWAY_CUDA_DRIVER"), GetParam()) == 0) {
    EXPECT_EQ(has_batch_, !is_old());
  }
  Calls before;
  std::string why;
  for (const std::size_t count : {2, 7}) {
    counts(before);
    ASSERT_TRUE(over(pieces(count, 4096), why)) << why;
    expect_calls(before, count, 1);
    EXPECT_EQ(arrived(count * 4096), sent(count * 4096));
  }
  counts(before);
  ASSERT_TRUE(over(pieces(12, Queues::kKernelBelow), why)) << why;
  expect_calls(before, 12, 1);
  EXPECT_EQ(arrived(12 * Queues::kKernelBelow), sent(12 * Queues::kKernelBelow));
}

TEST_P(Lists, AListForTheKernelIsNoCopyOfTheEngines) {
  const std::span<Copy> list = queues_->list();
  if (!queues_->is_listed(list)) GTEST_SKIP() << "this build has no kernels: nvcc was not found";
  const auto listed = [&](std::size_t count, std::uint64_t size) {
    const auto all = pieces(count, size);
    std::copy(all.begin(), all.end(), list.begin());
    return list.first(count);
  };
  Calls before;
  std::string why;
  counts(before);
  ASSERT_TRUE(over(listed(Queues::kKernelFrom, 4096), why)) << why;
  expect_calls(before, 0, 0);
  EXPECT_EQ(arrived(Queues::kKernelFrom * 4096), sent(Queues::kKernelFrom * 4096));
  counts(before);
  ASSERT_TRUE(over(listed(Queues::kKernelFrom, Queues::kKernelBelow), why)) << why;
  expect_calls(before, Queues::kKernelFrom, 1);
  counts(before);
  ASSERT_TRUE(over(listed(Queues::kKernelFrom, Queues::kKernelBelow), why, Queues::kKernelBelowBetweenGpus)) << why;
  expect_calls(before, 0, 0);
}

TEST_P(Lists, OneCopyAndMemoryThatIsNotPinnedGoByACallEach) {
  Calls before;
  std::string why;
  counts(before);
  ASSERT_TRUE(over(pieces(1, 4096), why)) << why;
  expect_calls(before, 1, 0);
  counts(before);
  ASSERT_TRUE(over(pieces(5, 4096), why, 0)) << why;
  expect_calls(before, 5, 0);
  EXPECT_EQ(arrived(5 * 4096), sent(5 * 4096));
}

TEST_P(Lists, EmptyCopiesAndListsLongerThanACallTakesAreNoErrors) {
  auto some = pieces(4, 4096);
  some[0].size = some[2].size = 0;
  std::string why;
  ASSERT_TRUE(over(some, why)) << why;
  std::vector<std::byte> expected(4 * 4096);
  for (const std::size_t i : {1, 3})
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(i * 4096), 4096,
                expected.begin() + static_cast<std::ptrdiff_t>(i * 4096));
  EXPECT_EQ(arrived(4 * 4096), expected);
  some[1].size = some[3].size = 0;
  ASSERT_TRUE(over(some, why)) << why;
  Calls before;
  counts(before);
  const std::size_t many = Queues::kListed + 5;
  ASSERT_TRUE(over(pieces(many, 64), why)) << why;
  expect_calls(before, many, 2);
  EXPECT_EQ(arrived(many * 64), sent(many * 64));
}

// The word behind the list comes after the copies that the driver took before it, so nobody is told too early.
TEST_P(Lists, ARefusedCopyIsNamedOnceThoseBeforeItAreOver) {
  auto some = pieces(5, 4096);
  some[3].to = nullptr;
  std::string why;
  EXPECT_FALSE(over(some, why));
  EXPECT_EQ(why.rfind("copy 4 of 5 by GPU 0: ", 0), 0u) << why;
  EXPECT_EQ(arrived(3 * 4096), sent(3 * 4096));
  ASSERT_TRUE(over(pieces(5, 4096), why)) << "the queue goes on: " << why;
  EXPECT_EQ(arrived(5 * 4096), sent(5 * 4096));
}

TEST_P(Lists, WhatTheDriverTakesOneByOneAloneArrivesAsWell) {
  void* const driver = ::dlopen(std::getenv("FAIRWAY_CUDA_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
  const auto refuse = reinterpret_cast<void (*)(long)>(
      driver == nullptr ? nullptr : ::dlsym(driver, "fairway_standin_refuse_in_batches"));
  if (refuse == nullptr) GTEST_SKIP() << "the real driver refuses what it likes";
  for (const long number : {0L, 2L, 4L, -2L}) {
    gpus_->write(to_, std::vector<std::byte>(kBytes), 1);
    std::string why;
    refuse(number);
    const bool all = over(pieces(5, 4096), why);
    refuse(-1);
    EXPECT_TRUE(all) << number << ": " << why;
    EXPECT_EQ(arrived(5 * 4096), sent(5 * 4096)) << number;
  }
}

TEST_P(Lists, ARefusedCopyIsNoFailureOfOthersOfTheSameFlush) {
  auto good = pieces(1, 4096), bad = pieces(2, 4096);
  bad[1].to = nullptr;
  host::Mover::Ticket first, second, third;
  ASSERT_TRUE(queues_->start(good, 0, false, nullptr, first));
  ASSERT_TRUE(queues_->start(bad, 0, false, nullptr, second)) << "its first copy is under way";
  ASSERT_TRUE(queues_->start(good, 0, false, nullptr, third));
  queues_->flush();
  std::string why;
  EXPECT_TRUE(ends(first, why)) << why;
  EXPECT_FALSE(ends(second, why));
  EXPECT_EQ(why.rfind("copy 2 of 2 by GPU 0: ", 0), 0u) << why;
  EXPECT_TRUE(ends(third, why)) << why;
}

TEST_P(Lists, ACopyThatLeavesPinnedMemoryIsCutWhereItDoes) {
  constexpr std::size_t kPage = 4096;
  std::vector<std::byte> room(65536 + kPage);
  std::byte* const begin = room.data() + (kPage - reinterpret_cast<std::uintptr_t>(room.data()) % kPage);
  const std::span<std::byte> host(begin, 65536);
  std::copy_n(bytes_.begin(), host.size(), host.begin());
  const CudaDriver& cu = devices_->driver();
  const auto pin = [&](std::size_t from, std::size_t size) {
    return gpus_->on(0, [&] { return cu->cuMemHostRegister_v2(host.data() + from, size, 0); });
  };
  ASSERT_EQ(pin(4096, 8192), sys::cuda::kSuccess);
  ASSERT_EQ(pin(12288, 4096), sys::cuda::kSuccess);
  const auto moves = [&](const std::vector<Copy>& copies) {
    std::string why;
    EXPECT_TRUE(over(copies, why, 0)) << why;
  };
  gpus_->write(to_, std::vector<std::byte>(65536), 1);
  moves({{to_, host.data(), 5000}, {to_ + 5000, host.data() + 5000, 60536}});
  EXPECT_EQ(arrived(65536), sent(65536));
  const std::vector<std::byte> expected(host.begin(), host.end());
  std::fill(host.begin(), host.end(), std::byte{0});
  moves({{host.data() + 5000, to_ + 5000, 60536}, {host.data(), to_, 5000}});
  EXPECT_TRUE(std::equal(host.begin(), host.end(), expected.begin()));
  cu->cuMemHostUnregister(host.data() + 4096);
  cu->cuMemHostUnregister(host.data() + 12288);
}

TEST_P(Lists, AnEventOfACaptureIsRefusedAndTheQueueStaysOutOfIt) {
  const CudaDriver& cu = devices_->driver();
  if (cu->cuStreamBeginCapture_v2 == nullptr) GTEST_SKIP() << "this driver has no such call";
  sys::cuda::Stream stream = nullptr;
  sys::cuda::Event event = nullptr;
  sys::cuda::Graph graph = nullptr;
  gpus_->on(0, [&] {
    gpus_->check(cu->cuStreamCreateWithPriority(&stream, sys::cuda::kStreamNonBlocking, 0), "stream");
    gpus_->check(cu->cuEventCreate(&event, sys::cuda::kEventDisableTiming), "event");
    gpus_->check(cu->cuStreamBeginCapture_v2(stream, sys::cuda::kCaptureOfThread), "capture");
    gpus_->check(cu->cuEventRecord(event, stream), "record");
    return 0;
  });
  host::Mover::Ticket ticket;
  const Status refused = queues_->start(pieces(1, 4096), 0, false, event, ticket);
  EXPECT_EQ(refused.code(), ErrorCode::invalid_argument) << refused.to_string();
  EXPECT_NE(refused.message().find("start_after"), std::string::npos) << refused.to_string();
  cu->cuStreamEndCapture(stream, &graph);
  if (graph != nullptr) cu->cuGraphDestroy(graph);
  for (int i = 0; i < 8; ++i) {  // each of the queues for events
    gpus_->on(0, [&] { return cu->cuEventRecord(event, stream); });
    ASSERT_TRUE(queues_->start(pieces(1, 4096), 0, false, event, ticket));
    queues_->flush();
    std::string why;
    EXPECT_TRUE(ends(ticket, why)) << why;
  }
  cu->cuEventDestroy_v2(event);
  cu->cuStreamDestroy_v2(stream);
}

// The engines of a real driver serve a direction first come, first served; the stand-in's are held.
TEST_P(Lists, SmallCopiesPassLargeOnesByAKernel) {
  void* const driver = ::dlopen(std::getenv("FAIRWAY_CUDA_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
  const auto hold =
      reinterpret_cast<void (*)(bool)>(driver == nullptr ? nullptr : ::dlsym(driver, "fairway_standin_hold_copies"));
  if (hold == nullptr) GTEST_SKIP() << "a real driver's copies cannot be held";
  const std::span<Copy> list = queues_->list();
  if (!queues_->is_listed(list)) GTEST_SKIP() << "this build has no kernels: nvcc was not found";
  Calls before;
  std::string why;
  list[0] = pieces(1, 4096)[0];
  host::Mover::Ticket large, small;
  counts(before);
  ASSERT_TRUE(queues_->start(list.first(1), Queues::kKernelBelowBetweenGpus, true, nullptr, small));
  expect_calls(before, 1, 0);  // with nothing to pass an engine takes less time
  queues_->flush();
  EXPECT_TRUE(ends(small, why)) << why;
  hold(true);
  ASSERT_TRUE(queues_->start(pieces(1, 1 << 20), Queues::kKernelBelowBetweenGpus, false, nullptr, large));
  queues_->flush();
  list[0] = pieces(1, 4096)[0];
  ASSERT_TRUE(queues_->start(list.first(1), Queues::kKernelBelowBetweenGpus, true, nullptr, small));
  queues_->flush();
  const bool passed = ends(small, why);
  EXPECT_EQ(queues_->poll(large, why), host::Mover::Readiness::opening);
  hold(false);
  EXPECT_TRUE(passed) << why;
  EXPECT_TRUE(ends(large, why)) << why;
}

TEST_P(Lists, TheCallersContextIsWhatItWas) {
  const CudaDriver& cu = devices_->driver();
  sys::cuda::Context mine = gpus_->context(1), found = nullptr;
  ASSERT_EQ(cu->cuCtxPushCurrent_v2(mine), sys::cuda::kSuccess);
  std::string why;
  ASSERT_TRUE(over(pieces(3, 4096), why)) << why;
  ASSERT_EQ(cu->cuCtxPopCurrent_v2(&found), sys::cuda::kSuccess);
  EXPECT_EQ(found, mine);
  EXPECT_NE(cu->cuCtxPopCurrent_v2(&found), sys::cuda::kSuccess) << "none was left behind";
}

INSTANTIATE_TEST_SUITE_P(Drivers, Lists, testing::Values(FAIRWAY_STANDIN_CUDA, FAIRWAY_STANDIN_CUDA_OLD),
                         [](const auto& each) { return each.index == 0 ? "Newer" : "Older"; });

}  // namespace
}  // namespace fairway::transport::cuda
