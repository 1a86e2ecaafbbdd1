#include "collectives/gpu/device/further.h"
#include "collectives/gpu/device/hardware.cuh"

// The further kernels of collectives on GPU memory, and those of messages, in a module of their own: of each form one for
// what moves bytes, one for each type that is combined, and one for messages.
namespace fairway::collectives::gpu {
namespace {

template <class T, class F>
__device__ __forceinline__ void further(const FurtherCall& call) {
  wait_for_stream();
  if (blockIdx.x < call.call.blocks) run_further<T, Gpu, F>(call, blockIdx.x);
}

}  // namespace
}  // namespace fairway::collectives::gpu

#define FAIRWAY_FURTHER(form, Form, name, type)                                                    \
  extern "C" __global__ void __launch_bounds__(fairway::collectives::gpu::kThreads, 2)             \
      fairway_further_##form##_##name(const __grid_constant__ fairway::collectives::gpu::FurtherCall call) { \
    fairway::collectives::gpu::further<type, fairway::collectives::gpu::Form>(call);               \
  }
#define FAIRWAY_FURTHER_FORM(form, Form)                                                                     \
  FAIRWAY_FURTHER(form, Form, move, fairway::collectives::gpu::Byte)                                         \
  FAIRWAY_FURTHER(form, Form, i8, signed char)                                                               \
  FAIRWAY_FURTHER(form, Form, u8, unsigned char)                                                             \
  FAIRWAY_FURTHER(form, Form, i16, short)                                                                    \
  FAIRWAY_FURTHER(form, Form, u16, unsigned short)                                                           \
  FAIRWAY_FURTHER(form, Form, i32, int)                                                                      \
  FAIRWAY_FURTHER(form, Form, u32, unsigned)                                                                 \
  FAIRWAY_FURTHER(form, Form, i64, long long)                                                                \
  FAIRWAY_FURTHER(form, Form, u64, unsigned long long)                                                       \
  FAIRWAY_FURTHER(form, Form, f16, fairway::collectives::gpu::Half)                                          \
  FAIRWAY_FURTHER(form, Form, bf16, fairway::collectives::gpu::Bfloat)                                       \
  FAIRWAY_FURTHER(form, Form, f32, float)                                                                    \
  FAIRWAY_FURTHER(form, Form, f64, double)                                                                   \
  FAIRWAY_FURTHER(form, Form, f8e4m3, fairway::collectives::gpu::E4m3)                                       \
  FAIRWAY_FURTHER(form, Form, f8e5m2, fairway::collectives::gpu::E5m2)                                       \
  extern "C" __global__ void __launch_bounds__(fairway::collectives::gpu::kThreads, 2)                       \
      fairway_further_##form##_messages(const __grid_constant__ fairway::collectives::gpu::MessagesCall all) { \
    fairway::collectives::gpu::wait_for_stream();                                                            \
    fairway::collectives::gpu::run_messages<fairway::collectives::gpu::Gpu, fairway::collectives::gpu::Form>( \
        all, blockIdx.x);                                                                                    \
  }
FAIRWAY_FURTHER_FORM(lines, LineForm)
FAIRWAY_FURTHER_FORM(units, UnitForm)
