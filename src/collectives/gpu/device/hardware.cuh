#pragma once

#include <cstdint>

// What kernels of collectives access memory with, as channel.h and rows.h have it, on a GPU.
namespace fairway::collectives::gpu {
namespace {

struct Gpu {
  static constexpr std::uint32_t kLooksPerQuestion = 64;

  static __device__ unsigned lane() { return threadIdx.x; }
  static __device__ unsigned lanes() { return blockDim.x; }
  static __device__ void meet() { __syncthreads(); }
  static __device__ bool any(bool one) { return __syncthreads_or(one) != 0; }
  static __device__ std::uint64_t from_first(std::uint64_t word) {
    __shared__ std::uint64_t first;
    if (threadIdx.x == 0) first = word;
    __syncthreads();
    return first;
  }

  // Two 8-byte words, each whole; one access where the hardware has it.
  static __device__ void store_pair(unsigned char* at, std::uint64_t a, std::uint64_t b) {
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(a), "l"(b) : "memory");
  }
  static __device__ void load_pair(const unsigned char* at, std::uint64_t& a, std::uint64_t& b) {
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(at) : "memory");
  }
  static __device__ void store(std::uint64_t* at, std::uint64_t value) {
    asm volatile("st.relaxed.sys.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
  }
  static __device__ void store(std::uint32_t* at, std::uint32_t value) {
    asm volatile("st.relaxed.sys.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
  }
  static __device__ std::uint64_t load(const std::uint64_t* at) {
    std::uint64_t value;
    asm volatile("ld.relaxed.sys.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
  }
  static __device__ std::uint32_t load(const std::uint32_t* at) {
    std::uint32_t value;
    asm volatile("ld.relaxed.sys.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
  }
  static __device__ std::uint64_t load_acquire(const std::uint64_t* at) {
    std::uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
  }
  static __device__ void fence() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
  static __device__ bool take(std::uint32_t* at, std::uint32_t from, std::uint32_t to) {
    return atomicCAS(at, from, to) == from;
  }
  static __device__ bool take(std::uint64_t* at, unsigned long long from, unsigned long long to) {
    return atomicCAS(reinterpret_cast<unsigned long long*>(at), from, to) == from;
  }
  static __device__ std::uint32_t count(std::uint32_t* at) {
    std::uint32_t before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;" : "=r"(before) : "l"(at) : "memory");
    return before + 1;
  }
  static __device__ std::uint32_t count_only(std::uint32_t* at) { return atomicAdd(at, 1U) + 1; }
  // The largest of all lanes', to all, which meet. Once in a kernel.
  static __device__ std::uint64_t most(std::uint64_t word) {
    __shared__ unsigned long long largest;
    if (threadIdx.x == 0) largest = 0;
    __syncthreads();
    atomicMax(&largest, static_cast<unsigned long long>(word));
    __syncthreads();
    return largest;
  }
  static __device__ std::uint64_t now() {
    std::uint64_t time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
  }
  static __device__ void rest() {}

  static constexpr unsigned kLanesHere = 1;
  static __device__ unsigned row_lane(unsigned) { return threadIdx.x % 32; }
  static __device__ std::uint64_t row_first(std::uint64_t word) { return __shfl_sync(~0U, word, 0); }
  static __device__ bool all_of_row(bool one) { return __all_sync(~0U, one) != 0; }
  // One access of the warp for each line, so its lanes must be together: one that the compiler has left behind, as lane 0
  // after it has waited for the area, would load its part of a line earlier than the flag.
  static __device__ void store_row(unsigned char* at, const std::uint64_t (&words)[1][2]) {
    asm volatile("bar.warp.sync 0xffffffff;\n\tst.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(
                     at + threadIdx.x % 32 * 16),
                 "l"(words[0][0]), "l"(words[0][1])
                 : "memory");
  }
  static __device__ void load_row(const unsigned char* at, std::uint64_t (&words)[1][2]) {
    asm volatile("bar.warp.sync 0xffffffff;\n\tld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(words[0][0]), "=l"(words[0][1])
                 : "l"(at + threadIdx.x % 32 * 16)
                 : "memory");
  }
  static __device__ void let_next_begin() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
  }
  template <class One>
  static __device__ void each_warp(unsigned count, One one) {
    if (threadIdx.x / 32 < count) one(threadIdx.x / 32);
  }
};

// The driver may start a kernel before the one ahead of it in the stream has ended (GpuGroup::start).
__device__ __forceinline__ void wait_for_stream() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace
}  // namespace fairway::collectives::gpu
