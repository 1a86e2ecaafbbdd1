#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "collectives/gpu/device/further.h"
#include "collectives/gpu/device/reduce_window.cuh"
#include "support/cuda/cpu_block.h"
#include "support/cuda/kernels.h"
#include "support/cuda/memory.h"

// The kernels of src/collectives/gpu/device/kernels.cu: the same code, with one lane, its blocks one after the other.
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

// The scratch memory of each rank, in this process. Where an operation of this GPU's has failed, kernels touch no other
// rank's, which may be gone. False: the device does not reach what they touch.
bool find_scratch(gpu::Call& call, int device) {
  unsigned char* const own = reached(call.scratch[call.rank], gpu::kScratchHead, device);
  if (own == nullptr) return false;
  const bool failed = std::atomic_ref(reinterpret_cast<gpu::ScratchHead*>(own)->failed).load() != 0;
  for (unsigned rank = 0; rank < call.size; ++rank) {
    call.scratch[rank] = reached(call.scratch[rank], gpu::kScratchHead, device);
    if (call.scratch[rank] == nullptr && !failed) return false;
  }
  return true;
}

// Makes the addresses of a call those of this process. False: the device does not reach them.
bool find_memory(gpu::Call& call, std::uint64_t element, int device) {
  if (!find_scratch(call, device)) return false;
  if (call.work == gpu::Work::mark) return true;  // what another library does with the call's memory
  const std::uint64_t block = call.count * element, all = block * call.size;
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
  return true;
}

template <class T>
std::function<bool()> read(int device, void** arguments) {
  return [device, given = *static_cast<gpu::ReadCall*>(arguments[0])] {
    gpu::ReadCall call = given;
    if (call.call.blocks == 0) return true;
    const std::uint64_t element = gpu::kCombines<T> ? sizeof(T) : 0;  // else other calls of the driver copy
    if (!find_memory(call.call, element, device)) return false;
    const bool to_each = gpu::is_to_each(call.call.work);
    const std::uint64_t bytes = call.call.count * element * (to_each ? call.call.size : 1);
    for (unsigned rank = 0; rank < call.call.size && bytes != 0; ++rank)
      if (rank != call.call.rank && (call.inputs[rank] = reached(call.inputs[rank], bytes, device)) == nullptr)
        return false;
    for (unsigned i = 0; i < call.call.blocks; ++i) gpu::read_block<T, fairway::support::CpuBlock>(call, i);
    return true;
  };
}

std::atomic<unsigned> blocks_that_run{0};

template <class T, gpu::Family kFamily>
std::function<bool()> run(int device, void** arguments) {
  return [device, given = *static_cast<gpu::Call*>(arguments[0])] {
    gpu::Call call = given;
    if (call.blocks == 0) return true;
    if (!find_memory(call, sizeof(T), device)) return false;
    blocks_that_run += call.blocks;
    for (unsigned i = 0; i < call.blocks; ++i) gpu::run_block<T, fairway::support::CpuBlock, kFamily>(call, i);
    blocks_that_run -= call.blocks;
    return true;
  };
}

// The furthest byte of blocks.
std::uint64_t reach(const std::uint64_t (&at)[gpu::kMostRanks], const std::uint64_t (&bytes)[gpu::kMostRanks]) {
  std::uint64_t most = 0;
  for (unsigned rank = 0; rank < gpu::kMostRanks; ++rank)
    if (bytes[rank] != 0) most = std::max(most, at[rank] + bytes[rank]);
  return most;
}

bool find_memory(gpu::FurtherCall& further, std::uint64_t element, int device) {
  gpu::Call& call = further.call;
  if (!find_scratch(call, device)) return false;
  std::uint64_t in = call.count * element, out = in;
  if (call.work == gpu::Work::reduce_to_each) in *= call.size;
  if (call.work == gpu::Work::reduce_to_root && call.rank != call.root) out = 0;
  if (call.work == gpu::Work::blocks) {
    in = reach(further.send_at, further.sends);
    out = reach(further.take_at, further.takes);
  }
  if (in != 0 && (call.input = reached(call.input, in, device)) == nullptr) return false;
  return out == 0 || (call.output = reached(call.output, out, device)) != nullptr;
}

template <class T, class F>
std::function<bool()> further(int device, void** arguments) {
  return [device, given = *static_cast<gpu::FurtherCall*>(arguments[0])] {
    gpu::FurtherCall call = given;
    if (call.call.blocks == 0) return true;
    if (!find_memory(call, sizeof(T), device)) return false;
    for (unsigned i = 0; i < call.call.blocks; ++i) gpu::run_further<T, fairway::support::CpuBlock, F>(call, i);
    return true;
  };
}

template <class F>
std::function<bool()> messages(int device, void** arguments) {
  return [device, given = *static_cast<gpu::MessagesCall*>(arguments[0])] {
    gpu::MessagesCall all = given;
    for (unsigned i = 0; i < all.count; ++i) {
      gpu::Call& call = all.each[i].call;
      if (!find_scratch(call, device)) return false;
      if (call.count == 0) continue;
      const bool sends = all.each[i].sends != 0;
      if (sends && (call.input = reached(call.input, call.count, device)) == nullptr) return false;
      if (!sends && (call.output = reached(call.output, call.count, device)) == nullptr) return false;
    }
    // A GPU runs their blocks at once; here each message is a thread.
    std::vector<std::thread> threads;
    for (unsigned i = 0, first = 0; i < all.count; first += all.each[i++].call.blocks)
      threads.emplace_back([&all, i, first] {
        for (unsigned block = 0; block < all.each[i].call.blocks; ++block)
          gpu::run_messages<fairway::support::CpuBlock, F>(all, first + block);
      });
    for (std::thread& thread : threads) thread.join();
    return true;
  };
}

#define KERNELS_OF(family, how)                                                                        \
  {"fairway_" #family "_move", how(gpu::Byte)}, {"fairway_" #family "_i8", how(std::int8_t)},          \
      {"fairway_" #family "_u8", how(std::uint8_t)}, {"fairway_" #family "_i16", how(std::int16_t)},   \
      {"fairway_" #family "_u16", how(std::uint16_t)}, {"fairway_" #family "_i32", how(std::int32_t)}, \
      {"fairway_" #family "_u32", how(std::uint32_t)}, {"fairway_" #family "_i64", how(std::int64_t)}, \
      {"fairway_" #family "_u64", how(std::uint64_t)}, {"fairway_" #family "_f16", how(gpu::Half)},    \
      {"fairway_" #family "_bf16", how(gpu::Bfloat)}, {"fairway_" #family "_f32", how(float)}, {       \
    "fairway_" #family "_f64", how(double)                                                             \
  }
#define AS_PAIR(type) run<type, gpu::Family::pair>
#define AS_FEW(type) run<type, gpu::Family::few>
#define AS_MANY(type) run<type, gpu::Family::many>
#define AS_UNITS(type) run<type, gpu::Family::units>
#define AS_READ(type) read<type>
#define AS_LINES(type) further<type, gpu::LineForm>
#define AS_SLOTS(type) further<type, gpu::UnitForm>
constexpr Kernel kGroupKernels[] = {KERNELS_OF(pair, AS_PAIR),
                                    KERNELS_OF(few, AS_FEW),
                                    {"fairway_few_pass", AS_FEW(gpu::PassedByte)},
                                    KERNELS_OF(many, AS_MANY),
                                    {"fairway_many_pass", AS_MANY(gpu::PassedByte)},
                                    KERNELS_OF(units, AS_UNITS),
                                    KERNELS_OF(read, AS_READ),
                                    KERNELS_OF(further_lines, AS_LINES),
                                    {"fairway_further_lines_f8e4m3", AS_LINES(gpu::E4m3)},
                                    {"fairway_further_lines_f8e5m2", AS_LINES(gpu::E5m2)},
                                    {"fairway_further_lines_messages", messages<gpu::LineForm>},
                                    KERNELS_OF(further_units, AS_SLOTS),
                                    {"fairway_further_units_f8e4m3", AS_SLOTS(gpu::E4m3)},
                                    {"fairway_further_units_f8e5m2", AS_SLOTS(gpu::E5m2)},
                                    {"fairway_further_units_messages", messages<gpu::UnitForm>}};

}  // namespace

std::span<const Kernel> group_kernels() {
  return kGroupKernels;
}

}  // namespace standin

// For tests: how many blocks the kernels of collectives have that run now, in all streams.
#pragma GCC visibility push(default)
extern "C" unsigned fairway_standin_blocks_that_run() {
  return standin::blocks_that_run.load();
}
#pragma GCC visibility pop
