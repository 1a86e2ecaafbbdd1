#pragma once

#include <cstdint>

// What each rank has, and whether a collective made of it what it should.
namespace {

// Values are whole numbers so small that bf16 holds every sum of 8.
__device__ float value_of(int rank, std::uint64_t at) {
  return static_cast<float>((rank * 5 + static_cast<int>(at % 13)) % 16);
}
template <class T>
__device__ T narrow(float value);
template <>
__device__ float narrow<float>(float value) {
  return value;
}
template <>
__device__ unsigned short narrow<unsigned short>(float value) {  // exact: bf16 is the upper half of a float
  return static_cast<unsigned short>(__float_as_uint(value) >> 16);
}
template <class T>
__global__ void fill(T* to, std::uint64_t count, int rank) {
  for (std::uint64_t i = blockIdx.x * std::uint64_t{blockDim.x} + threadIdx.x; i < count;
       i += std::uint64_t{gridDim.x} * blockDim.x)
    to[i] = narrow<T>(value_of(rank, i));
}
// kind: 0 all_reduce, 1 all_gather, 2 reduce_scatter, 3 all_to_all, 4 broadcast, 5 reduce, 6 gather, 7 scatter,
// 8 all_to_allv, 9 messages around a ring. Roots are rank 0. `block`: elements of a block.
template <class T>
__global__ void compare(const T* with, std::uint64_t count, std::uint64_t block, int kind, int rank, int ranks,
                        unsigned long long* wrong) {
  for (std::uint64_t i = blockIdx.x * std::uint64_t{blockDim.x} + threadIdx.x; i < count;
       i += std::uint64_t{gridDim.x} * blockDim.x) {
    float want = 0;
    if (kind == 0 || kind == 2 || kind == 5)
      for (int r = 0; r < ranks; ++r) want += value_of(r, kind == 2 ? rank * block + i : i);
    if (kind == 7) want = value_of(0, rank * block + i);
    if (kind == 9) want = value_of((rank + ranks - 1) % ranks, i);
    if (kind == 1 || kind == 6) want = value_of(static_cast<int>(i / block), i % block);
    if (kind == 3 || kind == 8) want = value_of(static_cast<int>(i / block), rank * block + i % block);
    if (kind == 4) want = value_of(0, i);
    if (with[i] != narrow<T>(want)) atomicAdd(wrong, 1ULL);
  }
}

}  // namespace
