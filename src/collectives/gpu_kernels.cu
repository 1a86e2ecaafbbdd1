#include "collectives/gpu_reading.h"

// The kernels of collectives on GPU memory: of each family one for what moves bytes, and one for each type that is
// combined.
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
  static __device__ std::uint64_t now() {
    std::uint64_t time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
  }
  static __device__ void rest() {}

  static constexpr unsigned kLanesHere = 1;
  static __device__ unsigned row_lane(unsigned) { return threadIdx.x % 32; }
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
template <class T, Family kFamily>
__device__ __forceinline__ void run(const Call& call) {
  wait_for_stream();
  if (blockIdx.x < call.blocks) run_block<T, Gpu, kFamily>(call, blockIdx.x);
}
template <class T>
__device__ __forceinline__ void read(const ReadCall& call) {
  wait_for_stream();
  if (blockIdx.x < call.call.blocks) read_block<T, Gpu>(call, blockIdx.x);
}

}  // namespace
}  // namespace fairway::collectives::gpu

#define FAIRWAY_KERNEL(family, name, type)                                                              \
  extern "C" __global__ void __launch_bounds__(fairway::collectives::gpu::kThreads, 2)                  \
      fairway_##family##_##name(const __grid_constant__ fairway::collectives::gpu::Call call) {         \
    fairway::collectives::gpu::run<type, fairway::collectives::gpu::Family::family>(call);              \
  }
#define FAIRWAY_READ_KERNEL(name, type)                                                                \
  extern "C" __global__ void __launch_bounds__(fairway::collectives::gpu::kReadThreads, 1)             \
      fairway_read_##name(const __grid_constant__ fairway::collectives::gpu::ReadCall call) {          \
    fairway::collectives::gpu::read<type>(call);                                                       \
  }
#define FAIRWAY_GROUP_KERNEL(name, type) \
  FAIRWAY_KERNEL(pair, name, type)       \
  FAIRWAY_KERNEL(few, name, type)        \
  FAIRWAY_KERNEL(many, name, type)       \
  FAIRWAY_KERNEL(units, name, type)      \
  FAIRWAY_READ_KERNEL(name, type)
FAIRWAY_GROUP_KERNEL(move, fairway::collectives::gpu::Byte)
FAIRWAY_KERNEL(few, pass, fairway::collectives::gpu::PassedByte)
FAIRWAY_KERNEL(many, pass, fairway::collectives::gpu::PassedByte)
FAIRWAY_GROUP_KERNEL(i8, signed char)
FAIRWAY_GROUP_KERNEL(u8, unsigned char)
FAIRWAY_GROUP_KERNEL(i16, short)
FAIRWAY_GROUP_KERNEL(u16, unsigned short)
FAIRWAY_GROUP_KERNEL(i32, int)
FAIRWAY_GROUP_KERNEL(u32, unsigned)
FAIRWAY_GROUP_KERNEL(i64, long long)
FAIRWAY_GROUP_KERNEL(u64, unsigned long long)
FAIRWAY_GROUP_KERNEL(f16, fairway::collectives::gpu::Half)
FAIRWAY_GROUP_KERNEL(bf16, fairway::collectives::gpu::Bfloat)
FAIRWAY_GROUP_KERNEL(f32, float)
FAIRWAY_GROUP_KERNEL(f64, double)
