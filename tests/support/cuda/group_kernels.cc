#include "collectives/gpu_work.h"
#include "support/cuda/cpu_block.h"
#include "support/cuda/kernels.h"
#include "support/cuda/memory.h"

// The kernels of src/collectives/gpu_kernels.cu: the same code, with one lane, its blocks one after the other.
namespace standin {
namespace {

namespace gpu = fairway::collectives::gpu;

// Where that device reaches [address, address + size); null: it may not. Adjacent mappings are not followed.
unsigned char* reached(const void* address, std::uint64_t size, int device) {
  Range range;
  const auto at = reinterpret_cast<Address>(address);
  if (!Memory::get().find(at, range) || size > range.size - (at - range.base)) return nullptr;
  if (!range.reached_by.empty() && !range.reached_by.contains(device)) return nullptr;
  return range.shadow + (at - range.base);
}

template <class T, gpu::Family kFamily>
std::function<bool()> run(int device, void** arguments) {
  return [device, given = *static_cast<gpu::Call*>(arguments[0])] {
    gpu::Call call = given;
    if (call.blocks == 0) return true;
    for (unsigned rank = 0; rank < call.size; ++rank)
      if ((call.scratch[rank] = reached(call.scratch[rank], gpu::kScratchHead, device)) == nullptr) return false;
    const std::uint64_t block = call.count * sizeof(T), all = block * call.size;
    const bool to_each = gpu::is_to_each(call.work);
    const bool gathers = call.work == gpu::Work::to_all || call.work == gpu::Work::to_each;
    if (block != 0 && gpu::sends(call, call.rank)) {
      call.input = reached(call.input, to_each ? all : block, device);
      if (call.input == nullptr) return false;
    }
    if (block != 0 && call.work != gpu::Work::nothing) {
      call.output = reached(call.output, gathers ? all : block, device);
      if (call.output == nullptr) return false;
    }
    for (unsigned i = 0; i < call.blocks; ++i) gpu::run_block<T, fairway::support::CpuBlock, kFamily>(call, i);
    return true;
  };
}

#define KERNELS_OF(family)                                                  \
  {"fairway_" #family "_move", run<gpu::Byte, gpu::Family::family>},        \
      {"fairway_" #family "_i8", run<std::int8_t, gpu::Family::family>},    \
      {"fairway_" #family "_u8", run<std::uint8_t, gpu::Family::family>},   \
      {"fairway_" #family "_i16", run<std::int16_t, gpu::Family::family>},  \
      {"fairway_" #family "_u16", run<std::uint16_t, gpu::Family::family>}, \
      {"fairway_" #family "_i32", run<std::int32_t, gpu::Family::family>},  \
      {"fairway_" #family "_u32", run<std::uint32_t, gpu::Family::family>}, \
      {"fairway_" #family "_i64", run<std::int64_t, gpu::Family::family>},  \
      {"fairway_" #family "_u64", run<std::uint64_t, gpu::Family::family>}, \
      {"fairway_" #family "_f16", run<gpu::Half, gpu::Family::family>},     \
      {"fairway_" #family "_bf16", run<gpu::Bfloat, gpu::Family::family>},  \
      {"fairway_" #family "_f32", run<float, gpu::Family::family>}, {       \
    "fairway_" #family "_f64", run<double, gpu::Family::family>             \
  }
constexpr Kernel kGroupKernels[] = {KERNELS_OF(pair),
                                    KERNELS_OF(few),
                                    {"fairway_few_pass", run<gpu::PassedByte, gpu::Family::few>},
                                    KERNELS_OF(many),
                                    {"fairway_many_pass", run<gpu::PassedByte, gpu::Family::many>},
                                    KERNELS_OF(units)};

}  // namespace

std::span<const Kernel> group_kernels() {
  return kGroupKernels;
}

}  // namespace standin
