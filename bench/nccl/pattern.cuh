#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "library.h"

// The value of every element at every rank, in every data type, and the comparison of a collective's result. Values are
// so small that sums and products are exact in all types. Everything runs on the GPU.
namespace pattern {

inline std::size_t size_of(nccl::Type type) {
  constexpr std::size_t sizes[nccl::kTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[type];
}
inline const char* name_of(nccl::Type type) {
  constexpr const char* names[nccl::kTypes] = {"int8",    "uint8",   "int32",   "uint32",   "int64",      "uint64",
                                               "float16", "float32", "float64", "bfloat16", "float8e4m3", "float8e5m2"};
  return names[type];
}

// 1 or 2, so that a product of eight is at most 256 and a sum at most 16. `narrow`, for types of 8 bits or fewer:
// mostly 1.
__host__ __device__ inline int value(std::uint64_t seed, int rank, std::uint64_t i, bool narrow) {
  std::uint64_t h = (i + 1) * 0x9E3779B97F4A7C15ull ^ (seed * 1000003ull + static_cast<std::uint64_t>(rank)) * 0xC2B2AE3D27D4EB4Full;
  h ^= h >> 29;
  h *= 0xBF58476D1CE4E5B9ull;
  h ^= h >> 32;
  return narrow ? static_cast<int>(h & 1) : 1 + static_cast<int>(h & 1);
}
inline bool narrow(nccl::Type type, nccl::Reduction reduction) {
  return type == nccl::float8e4m3 || type == nccl::float8e5m2 || (reduction == nccl::product && size_of(type) == 1);
}

__device__ inline void store(void* to, nccl::Type type, std::uint64_t i, int v) {
  switch (type) {
    case nccl::int8: static_cast<std::int8_t*>(to)[i] = static_cast<std::int8_t>(v); return;
    case nccl::uint8: static_cast<std::uint8_t*>(to)[i] = static_cast<std::uint8_t>(v); return;
    case nccl::int32: static_cast<std::int32_t*>(to)[i] = v; return;
    case nccl::uint32: static_cast<std::uint32_t*>(to)[i] = static_cast<std::uint32_t>(v); return;
    case nccl::int64: static_cast<std::int64_t*>(to)[i] = v; return;
    case nccl::uint64: static_cast<std::uint64_t*>(to)[i] = static_cast<std::uint64_t>(v); return;
    case nccl::float16: static_cast<__half*>(to)[i] = __float2half(static_cast<float>(v)); return;
    case nccl::float32: static_cast<float*>(to)[i] = static_cast<float>(v); return;
    case nccl::float64: static_cast<double*>(to)[i] = v; return;
    case nccl::bfloat16: static_cast<__nv_bfloat16*>(to)[i] = __float2bfloat16(static_cast<float>(v)); return;
    case nccl::float8e4m3: static_cast<__nv_fp8_e4m3*>(to)[i] = __nv_fp8_e4m3(static_cast<float>(v)); return;
    case nccl::float8e5m2: static_cast<__nv_fp8_e5m2*>(to)[i] = __nv_fp8_e5m2(static_cast<float>(v)); return;
  }
}
__device__ inline double load(const void* from, nccl::Type type, std::uint64_t i) {
  switch (type) {
    case nccl::int8: return static_cast<const std::int8_t*>(from)[i];
    case nccl::uint8: return static_cast<const std::uint8_t*>(from)[i];
    case nccl::int32: return static_cast<const std::int32_t*>(from)[i];
    case nccl::uint32: return static_cast<const std::uint32_t*>(from)[i];
    case nccl::int64: return static_cast<double>(static_cast<const std::int64_t*>(from)[i]);
    case nccl::uint64: return static_cast<double>(static_cast<const std::uint64_t*>(from)[i]);
    case nccl::float16: return __half2float(static_cast<const __half*>(from)[i]);
    case nccl::float32: return static_cast<const float*>(from)[i];
    case nccl::float64: return static_cast<const double*>(from)[i];
    case nccl::bfloat16: return __bfloat162float(static_cast<const __nv_bfloat16*>(from)[i]);
    case nccl::float8e4m3: return static_cast<float>(static_cast<const __nv_fp8_e4m3*>(from)[i]);
    case nccl::float8e5m2: return static_cast<float>(static_cast<const __nv_fp8_e5m2*>(from)[i]);
  }
  return -1;
}

// The expected content: one rank's values, or all ranks' values reduced. `first` is the index in that rank's data.
struct Expected {
  std::uint64_t seed;
  int rank;  // -1: all ranks, reduced
  int ranks;
  nccl::Reduction reduction;
  std::uint64_t first;
  bool narrow;
};

__device__ inline double expected_at(const Expected& e, std::uint64_t i) {
  if (e.rank >= 0) return value(e.seed, e.rank, e.first + i, e.narrow);
  double all = value(e.seed, 0, e.first + i, e.narrow);
  for (int rank = 1; rank < e.ranks; ++rank) {
    const double one = value(e.seed, rank, e.first + i, e.narrow);
    switch (e.reduction) {
      case nccl::sum: all += one; break;
      case nccl::product: all *= one; break;
      case nccl::maximum: all = one > all ? one : all; break;
      case nccl::minimum: all = one < all ? one : all; break;
    }
  }
  return all;
}

__global__ void fill(void* to, nccl::Type type, std::uint64_t count, std::uint64_t seed, int rank, std::uint64_t first,
                     bool narrow) {
  for (std::uint64_t i = blockIdx.x * std::uint64_t{blockDim.x} + threadIdx.x; i < count; i += std::uint64_t{gridDim.x} * blockDim.x)
    store(to, type, i, value(seed, rank, first + i, narrow));
}
__global__ void compare(const void* from, nccl::Type type, std::uint64_t count, Expected e, unsigned long long* wrong) {
  for (std::uint64_t i = blockIdx.x * std::uint64_t{blockDim.x} + threadIdx.x; i < count; i += std::uint64_t{gridDim.x} * blockDim.x)
    if (load(from, type, i) != expected_at(e, i)) atomicAdd(wrong, 1ull);
}

}  // namespace pattern
