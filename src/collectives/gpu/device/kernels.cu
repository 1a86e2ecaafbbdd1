#include "collectives/gpu/device/hardware.cuh"
#include "collectives/gpu/device/reduce_window.cuh"

// The kernels of collectives on GPU memory: of each family one for what moves bytes, and one for each type that is
// combined.
namespace fairway::collectives::gpu {
namespace {

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

#define FAIRWAY_KERNEL(family, name, type)                                                      \
  extern "C" __global__ void __launch_bounds__(fairway::collectives::gpu::kThreads, 2)          \
      fairway_##family##_##name(const __grid_constant__ fairway::collectives::gpu::Call call) { \
    fairway::collectives::gpu::run<type, fairway::collectives::gpu::Family::family>(call);      \
  }
#define FAIRWAY_READ_KERNEL(name, type)                                                       \
  extern "C" __global__ void __launch_bounds__(fairway::collectives::gpu::kReadThreads, 1)    \
      fairway_read_##name(const __grid_constant__ fairway::collectives::gpu::ReadCall call) { \
    fairway::collectives::gpu::read<type>(call);                                              \
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
