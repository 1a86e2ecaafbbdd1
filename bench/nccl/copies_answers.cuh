#pragma once

#include <cstring>

#include <sys/wait.h>
#include <unistd.h>

#include "copies_driver.cuh"

// How cuMemcpyBatchAsync reports bad arguments, with each case in its own process. The tests' stand-in driver returns
// the same results (tests/support/cuda).
namespace copies {

struct Asked {  // four copies of 4 KiB from pinned memory to a GPU, with the errors below
  const char* what;
  bool default_stream = false, no_attributes = false, bad_index = false, nothing = false;
  int zero_size = -1, bad_source = -1, bad_target = -1, beyond = -1;  // index of the affected copy
  bool pageable = false, managed = false, twice_to_one_place = false;
  bool to_pageable = false, to_managed = false;
  CUmemcpySrcAccessOrder order = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
};

inline void answer(const Asked& asked) {
  constexpr std::size_t kSize = 4096, kCount = 4, kAll = kSize * kCount;
  const Driver driver;
  if (!driver.has_batch()) {
    std::printf("%-46s this driver has no such call\n", asked.what);
    return;
  }
  unsigned char *device = nullptr, *host = nullptr, *back = nullptr;
  if (asked.to_managed)
    CUDA_CHECK(cudaMallocManaged(&device, kAll));
  else if (asked.to_pageable)
    device = static_cast<unsigned char*>(std::malloc(kAll));
  else
    CUDA_CHECK(cudaMalloc(&device, kAll));
  CUDA_CHECK(cudaHostAlloc(&host, kAll, cudaHostAllocPortable));
  CUDA_CHECK(cudaHostAlloc(&back, kAll, cudaHostAllocPortable));
  if (asked.pageable) host = static_cast<unsigned char*>(std::malloc(kAll));
  if (asked.managed) CUDA_CHECK(cudaMallocManaged(&host, kAll));
  for (std::size_t i = 0; i < kAll; ++i) host[i] = static_cast<unsigned char>(1 + i / kSize);
  if (asked.to_pageable)
    std::memset(device, 0, kAll);
  else
    CUDA_CHECK(cudaMemset(device, 0, kAll));
  CUDA_CHECK(cudaDeviceSynchronize());
  cudaStream_t stream = nullptr, other = nullptr;
  CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CUDA_CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));

  CUdeviceptr to[kCount], from[kCount];
  std::size_t sizes[kCount], first = asked.bad_index ? 1 : 0, refused = ~std::size_t{0};
  for (std::size_t i = 0; i < kCount; ++i) {
    const int number = static_cast<int>(i);
    to[i] = reinterpret_cast<CUdeviceptr>(device + (asked.twice_to_one_place ? 0 : i * kSize));
    from[i] = reinterpret_cast<CUdeviceptr>(host + i * kSize);
    sizes[i] = number == asked.zero_size ? 0 : kSize;
    if (number == asked.bad_source) from[i] = 0;
    if (number == asked.bad_target) to[i] = 0;
    if (number == asked.beyond) to[i] = reinterpret_cast<CUdeviceptr>(device) + (std::size_t{1} << 40);
  }
  CUmemcpyAttributes how{};
  how.srcAccessOrder = asked.order;
  const CUstream on = asked.default_stream ? nullptr : stream;
  CUmemcpyAttributes* const attributes = asked.no_attributes ? nullptr : &how;
  const std::size_t count = asked.nothing ? 0 : kCount, described = asked.no_attributes ? 0 : 1;
  CUresult result = CUDA_SUCCESS, old = CUDA_SUCCESS;
  if (driver.batch != nullptr) result = driver.batch(to, from, sizes, count, attributes, &first, described, on);
  const cudaError_t after = cudaStreamSynchronize(stream);
  if (driver.batch_12 != nullptr)
    old = driver.batch_12(to, from, sizes, count, attributes, &first, described, &refused, on);
  const cudaError_t after_old = cudaStreamSynchronize(stream);
  std::printf("%-46s", asked.what);
  if (driver.batch != nullptr)
    std::printf(" 13: %3d, stream then %d;", static_cast<int>(result), static_cast<int>(after));
  if (driver.batch_12 != nullptr)
    std::printf(" 12.8: %3d, index %lld, stream then %d;", static_cast<int>(old), static_cast<long long>(refused),
                static_cast<int>(after_old));
  const cudaError_t read = cudaMemcpyAsync(back, device, kAll, cudaMemcpyDefault, other);
  const cudaError_t done = cudaStreamSynchronize(other);
  std::printf(" copied:");
  if (read != cudaSuccess || done != cudaSuccess) std::printf(" the context is dead (%d)", static_cast<int>(done));
  for (std::size_t i = 0; i < kCount && read == cudaSuccess && done == cudaSuccess; ++i)
    std::printf(" %s", back[i * kSize] == i + 1 && back[i * kSize + kSize - 1] == i + 1 ? "yes" : "no");
  std::printf("\n");
}

inline int show_answers() {
  std::vector<Asked> all;
  const auto add = [&all](const char* what) -> Asked& {
    all.push_back({});
    all.back().what = what;
    return all.back();
  };
  add("nothing wrong");
  add("the default stream").default_stream = true;
  add("no attributes").no_attributes = true;
  add("the first index is not 0").bad_index = true;
  add("no copies").nothing = true;
  add("copy 2 of no bytes").zero_size = 2;
  add("copy 2 from null").bad_source = 2;
  add("copy 2 to null").bad_target = 2;
  add("copy 2 to where nothing is").beyond = 2;
  add("copy 0 to where nothing is").beyond = 0;
  add("all to one place").twice_to_one_place = true;
  add("from ordinary memory, in stream order").pageable = true;
  add("from managed memory").managed = true;
  add("to managed memory").to_managed = true;
  add("to ordinary memory").to_pageable = true;
  add("access order 0").order = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
  {
    Asked& any = add("from ordinary memory, in any order");
    any.pageable = true;
    any.order = CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
  }
  for (const Asked& each : all) {
    std::fflush(stdout);
    const pid_t child = ::fork();  // before this process's first CUDA call
    if (child == 0) {
      answer(each);
      std::fflush(stdout);
      std::_Exit(0);
    }
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child) {
      std::perror("fork");
      return 3;
    }
    if (WIFSIGNALED(status)) std::printf("%-46s the process was killed by signal %d\n", each.what, WTERMSIG(status));
  }
  return 0;
}

}  // namespace copies
