#include <algorithm>
#include <cstring>

#include <dlfcn.h>
#include <sys/mman.h>

#include "process/cuda/gpu_pair.h"
#include "sys/cuda_memory.h"

// Memory of the host that is pinned in part, or no more: a copy arrives all the same, and the program's context lives.
namespace fairway {
namespace {

using namespace gpu_pair;

constexpr std::uint64_t kPageBytes = 16384, kListed = 64, kBorder = kBytes / 2;

class CudaPinned : public GpuPair {
 protected:
  void SetUp() override {
    meet("malloc");
    void* const place = ::mmap(nullptr, 3 * kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(place, MAP_FAILED);
    host_ = static_cast<std::byte*>(place) + kBytes;  // with as much before it, and behind
  }
  ~CudaPinned() override {
    engine_.reset();
    ::munmap(host_ - kBytes, 3 * kBytes);
  }
  void pin(std::ptrdiff_t from, std::size_t size) {
    gpus_->on(0, [&] {
      gpus_->check(gpus_->driver()->cuMemHostRegister_v2(host_ + from, size, sys::cuda::kHostPortable), "pinning");
      return 0;
    });
  }
  void unpin(std::ptrdiff_t from) { gpus_->driver()->cuMemHostUnregister(host_ + from); }
  Region registered(std::size_t size = kBytes) {
    auto region = engine_->register_memory(host_, size, Access::none);
    EXPECT_TRUE(region) << region.status().to_string();
    return *region;
  }
  // Blocks that begin on one side of the border and end on the other, and lists of pages across it and behind it.
  void moves_all(const Region& region, const char* what) {
    SCOPED_TRACE(what);
    for (const std::uint64_t size : {std::uint64_t{8192}, kBytes / 2}) there_and_back(region, kBorder - size / 2, size);
    for (const std::uint64_t first : {kBorder / kPageBytes - kListed / 2, kBorder / kPageBytes + kListed / 2})
      pages_there_and_back(region, first);
  }
  void there_and_back(const Region& region, std::uint64_t at, std::uint64_t size) {
    const auto out = patterns(++turn_, size);
    std::memcpy(host_ + at, out.data(), size);
    const Extent extent{{region.id, at, size}, {remote_.id, at}};
    const Status wrote = finish(*engine_, engine_->write(peer_, extent));
    ASSERT_TRUE(wrote) << size << ": " << wrote.to_string();
    std::memset(host_ + at, 0, size);
    const Status read = finish(*engine_, engine_->read(peer_, extent));
    ASSERT_TRUE(read) << size << ": " << read.to_string();
    EXPECT_EQ(std::memcmp(host_ + at, out.data(), size), 0) << size;
  }
  void pages_there_and_back(const Region& region, std::uint64_t first) {
    std::vector<std::uint64_t> index(kListed);
    for (std::uint64_t i = 0; i < kListed; ++i) index[i] = first + i * 13 % kListed;
    const auto out = patterns(++turn_, kPageBytes * kListed);
    std::memcpy(host_ + first * kPageBytes, out.data(), out.size());
    const Paged paged{region.id, remote_.id, kPageBytes, kPageBytes, kPageBytes, index, index};
    const Status wrote = finish(*engine_, engine_->write(peer_, paged));
    ASSERT_TRUE(wrote) << "pages from " << first << ": " << wrote.to_string();
    std::memset(host_ + first * kPageBytes, 0, out.size());
    const Status read = finish(*engine_, engine_->read(peer_, paged));
    ASSERT_TRUE(read) << "pages from " << first << ": " << read.to_string();
    EXPECT_EQ(std::memcmp(host_ + first * kPageBytes, out.data(), out.size()), 0) << first;
  }
  bool is_pinned(std::ptrdiff_t at) const {
    return sys::look_at(gpus_->driver(), host_ + at).kind == MemoryKind::pinned;
  }
  // Until Fairway has pinned it, which it does at the first large copy.
  void use_until_pinned(const Region& region) {
    const auto until = std::chrono::steady_clock::now() + kSoon;
    while (!is_pinned(0) && std::chrono::steady_clock::now() < until) there_and_back(region, 0, 65536);
    ASSERT_TRUE(is_pinned(0));
  }

  std::byte* host_ = nullptr;
  std::uint64_t turn_ = 0;
};

TEST_F(CudaPinned, InPartByTheProgramBeforeItIsRegistered) {
  pin(0, kBorder);
  moves_all(registered(), "the first half");
  unpin(0);
}

TEST_F(CudaPinned, ByANeighbourThatEndsInIt) {
  pin(-static_cast<std::ptrdiff_t>(kBytes), kBytes + kBorder);
  moves_all(registered(), "a neighbour");
  unpin(-static_cast<std::ptrdiff_t>(kBytes));
}

TEST_F(CudaPinned, ByTwoCallsOfTheProgram) {
  pin(0, kBorder);
  pin(kBorder, kBytes - kBorder);
  moves_all(registered(), "two halves");
  unpin(0);
  unpin(kBorder);
}

TEST_F(CudaPinned, InPartByTheProgramOnceItIsRegistered) {
  const Region region = registered();
  pin(0, kBorder);
  moves_all(region, "later");
  unpin(0);
}

TEST_F(CudaPinned, ByTheProgramThatGivesItUp) {
  pin(0, kBytes);
  const Region region = registered();
  moves_all(region, "pinned");
  unpin(0);
  moves_all(region, "no more");
}

TEST_F(CudaPinned, InPartForAnotherRegion) {
  const Region half = registered(kBorder);
  use_until_pinned(half);
  moves_all(registered(), "beside the half's");
}

TEST_F(CudaPinned, InPartForAnotherRegionThatIsUsedLater) {
  const Region half = registered(kBorder), whole = registered();
  use_until_pinned(half);
  moves_all(whole, "beside the half's");
}

TEST_F(CudaPinned, ForAnotherRegionThatIsGone) {
  const Region first = registered();
  use_until_pinned(first);
  const Region second = registered();
  moves_all(second, "as the first");
  ASSERT_TRUE(engine_->deregister(first, kSoon));
  moves_all(second, "by itself");
}

// The peer's pages are read by a kernel of this side that begins only with the user's event.
TEST_F(CudaPinned, UntilNothingIsCopiedFromItAnyMore) {
  const Region region = registered();
  use_until_pinned(region);
  const auto& cu = gpus_->driver();
  sys::cuda::Stream work = nullptr;
  sys::cuda::Event before = nullptr;
  void* words = nullptr;
  gpus_->on(0, [&] {
    gpus_->check(cu->cuStreamCreateWithPriority(&work, sys::cuda::kStreamNonBlocking, 0), "stream");
    gpus_->check(cu->cuEventCreate(&before, sys::cuda::kEventDisableTiming), "event");
    gpus_->check(cu->cuMemHostAlloc(&words, 64, sys::cuda::kHostPortable), "word");
    gpus_->check(cu->cuStreamWaitValue32_v2(work, reinterpret_cast<sys::cuda::Address>(words), 1, 0), "wait");
    gpus_->check(cu->cuEventRecord(before, work), "record");
    return 0;
  });
  std::vector<std::uint64_t> index(kListed);
  for (std::uint64_t i = 0; i < kListed; ++i) index[i] = i;
  RequestOptions options;
  options.start_after = before;
  const auto id =
      engine_->write(peer_, Paged{region.id, remote_.id, kPageBytes, kPageBytes, kPageBytes, index, index}, options);
  ASSERT_TRUE(id) << id.status().to_string();
  EXPECT_EQ(engine_->wait(*id, std::chrono::milliseconds(20)).status().code(), ErrorCode::timed_out);
  EXPECT_EQ(engine_->deregister(region, std::chrono::milliseconds(50)).code(), ErrorCode::not_fenced);
  EXPECT_TRUE(is_pinned(0)) << "the copy has not begun";
  std::atomic_ref(*static_cast<std::uint32_t*>(words)).store(1);
  const auto until = std::chrono::steady_clock::now() + kSoon;
  while (is_pinned(0) && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  EXPECT_FALSE(is_pinned(0));
  while (cu->cuStreamQuery(work) != sys::cuda::kSuccess && std::chrono::steady_clock::now() < until)
    std::this_thread::yield();  // the event is over before the stream says that it is
  EXPECT_EQ(cu->cuStreamQuery(work), sys::cuda::kSuccess);
  gpus_->on(0, [&] {
    cu->cuStreamSynchronize(work);
    cu->cuStreamDestroy_v2(work);
    cu->cuEventDestroy_v2(before);
    return cu->cuMemFreeHost(words);
  });
}

// More than a path queues at once holds up no small slice, though their copies are of the same peer and direction.
TEST_F(CudaPinned, AFullQueueHoldsUpNoSmallSlice) {
#ifndef FAIRWAY_HAS_KERNELS
  GTEST_SKIP() << "this build has no kernels: nvcc was not found";
#endif
  void* const driver = ::dlopen(std::getenv("FAIRWAY_CUDA_DRIVER"), RTLD_NOW | RTLD_NOLOAD);
  const auto hold =
      reinterpret_cast<void (*)(bool)>(driver == nullptr ? nullptr : ::dlsym(driver, "fairway_standin_hold_copies"));
  if (hold == nullptr) GTEST_SKIP() << "a real driver's copies cannot be held";
  const Region region = registered();
  use_until_pinned(region);
  const std::vector<std::uint64_t> same(80, 0), two{0, 1};  // 320 MiB, of which 192 are queued at once
  hold(true);
  const auto large = engine_->write(peer_, Paged{region.id, remote_.id, kBytes, kBytes, kBytes, same, same});
  const auto small = engine_->write(peer_, Paged{region.id, remote_.id, 64, 64, 64, two, two});
  const Status passed = finish(*engine_, small);
  hold(false);
  EXPECT_TRUE(passed) << passed.to_string();
  const Status ended = finish(*engine_, large);
  EXPECT_TRUE(ended) << ended.to_string();
}

}  // namespace
}  // namespace fairway
