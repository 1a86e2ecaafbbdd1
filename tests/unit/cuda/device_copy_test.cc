#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

// The copies of fairway/device.cuh on a CPU, one thread of a group after the other. Signals are left out: they are
// written in the GPU's own assembly.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wuninitialized"
#ifdef __clang__
#pragma GCC diagnostic ignored "-Wkeyword-macro"
#endif
// NOLINTBEGIN: names of CUDA's
#define __device__
#define asm
#define volatile(...) (void)0
namespace on_cpu {

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct Index {
  unsigned x = 0, y = 0, z = 0;
};
inline Index threadIdx, blockIdx, blockDim, gridDim;
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned bits) {
  return static_cast<unsigned>((static_cast<std::uint64_t>(high) << 32 | low) >> bits);
}
inline void __syncwarp() {}
inline void __syncthreads() {}
inline int __syncthreads_or(bool any) {
  return any;
}
// NOLINTEND
#include "fairway/device.cuh"

}  // namespace on_cpu
#undef volatile
#undef asm
#undef __device__
#pragma GCC diagnostic pop

namespace fairway {
namespace {

namespace dev = on_cpu::fairway::device;

constexpr std::size_t kGuard = 64;

enum class By { thread, warp, block, grid };

void put(By by, std::byte* to, const std::byte* from, std::size_t length) {
  on_cpu::gridDim = {by == By::grid ? 3u : 1u, 1, 1};
  on_cpu::blockDim = {by == By::thread ? 1u : by == By::warp ? 32u : 96u, 1, 1};
  for (on_cpu::blockIdx.x = 0; on_cpu::blockIdx.x < on_cpu::gridDim.x; ++on_cpu::blockIdx.x)
    for (on_cpu::threadIdx.x = 0; on_cpu::threadIdx.x < on_cpu::blockDim.x; ++on_cpu::threadIdx.x) switch (by) {
        case By::thread: dev::put<dev::Thread>(to, from, length); break;
        case By::warp: dev::put<dev::Warp>(to, from, length); break;
        case By::block: dev::put<dev::Block>(to, from, length); break;
        case By::grid: dev::put_by_grid(to, from, length); break;
      }
}

class DeviceCopy : public testing::TestWithParam<By> {};

// The source is read in whole words of 16 bytes, and none without a byte of its own: an address sanitizer sees others.
TEST_P(DeviceCopy, EveryByteFromEveryPlaceToEveryPlaceAndNothingBeside) {
  for (const std::size_t length : {0, 1, 7, 15, 16, 17, 33, 255, 511, 512, 513, 527, 1000, 4099, 20011})
    for (std::size_t from = 0; from < 16; ++from) {
      const std::size_t whole = (from + length + 15) / 16 * 16;
      const std::unique_ptr<std::byte, void (*)(void*)> source(
          static_cast<std::byte*>(std::aligned_alloc(16, whole == 0 ? 16 : whole)),
          [](void* memory) { std::free(memory); });
      for (std::size_t i = 0; i < whole; ++i) source.get()[i] = static_cast<std::byte>(i * 131 >> 3 ^ i);
      for (std::size_t to = 0; to < 16; ++to) {
        std::vector<std::byte> room(length + 3 * kGuard, std::byte{0xA5});
        const std::size_t at = kGuard + (16 - reinterpret_cast<std::uintptr_t>(room.data()) % 16) % 16 + to;
        put(GetParam(), room.data() + at, source.get() + from, length);
        for (std::size_t i = 0; i < room.size(); ++i) {
          const bool inside = i >= at && i < at + length;
          ASSERT_EQ(room[i], inside ? source.get()[from + i - at] : std::byte{0xA5})
              << i - at << " of " << length << " bytes from " << from << " to " << to;
        }
      }
    }
}

std::string name_of(const testing::TestParamInfo<By>& row) {
  constexpr const char* kNames[] = {"a_thread", "a_warp", "a_block", "a_grid"};
  return kNames[static_cast<int>(row.param)];
}
INSTANTIATE_TEST_SUITE_P(Of, DeviceCopy, testing::Values(By::thread, By::warp, By::block, By::grid), name_of);

}  // namespace
}  // namespace fairway
