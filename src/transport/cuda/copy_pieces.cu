#include "fairway/device.cuh"

// Copies a list of pieces that lie anywhere.

struct Piece {
  unsigned char* to;
  const unsigned char* from;
  unsigned long long size;
};

namespace {

using fairway::device::detail::cut_from;

constexpr unsigned kLanes = 32, kAtOnce = 8, kAll = 0xffffffff;

// `count` words to places that begin at one.
__device__ void copy_words(uint4* to, const uint4* from, unsigned long long count, unsigned lane) {
  unsigned long long i = lane;
  for (; i + (kAtOnce - 1) * kLanes < count; i += kAtOnce * kLanes) {
    uint4 part[kAtOnce];
#pragma unroll
    for (unsigned k = 0; k < kAtOnce; ++k) part[k] = __ldcs(from + i + k * kLanes);
#pragma unroll
    for (unsigned k = 0; k < kAtOnce; ++k) __stcs(to + i + k * kLanes, part[k]);
  }
  for (; i < count; i += kLanes) to[i] = from[i];
}

__device__ uint4 from_lane(uint4 word, unsigned lane) {
  return {__shfl_sync(kAll, word.x, lane), __shfl_sync(kAll, word.y, lane), __shfl_sync(kAll, word.z, lane),
          __shfl_sync(kAll, word.w, lane)};
}

// The same from places that do not begin at a word: each word is read once, and has bytes of two. Of the `count` + 1
// words from `from` on each has a byte that is copied.
__device__ void copy_shifted(uint4* to, const uint4* from, unsigned apart, unsigned long long count, unsigned lane) {
  unsigned long long begin = 0;
  for (; begin + kAtOnce * kLanes <= count; begin += kAtOnce * kLanes) {
    uint4 part[kAtOnce + 1];
#pragma unroll
    for (unsigned k = 0; k < kAtOnce; ++k) part[k] = __ldcs(from + begin + k * kLanes + lane);
    part[kAtOnce] = from[begin + kAtOnce * kLanes];  // one word, for the last lane
#pragma unroll
    for (unsigned k = 0; k < kAtOnce; ++k) {
      const uint4 next = from_lane(part[k], lane + 1), first = from_lane(part[k + 1], 0);
      __stcs(to + begin + k * kLanes + lane, cut_from(part[k], lane + 1 == kLanes ? first : next, apart));
    }
  }
  for (; begin < count; begin += kLanes) {
    const unsigned long long i = begin + lane;
    const uint4 word = from[i < count ? i : count], first = from[begin + kLanes < count ? begin + kLanes : count];
    const uint4 next = from_lane(word, lane + 1);
    if (i < count) to[i] = cut_from(word, lane + 1 == kLanes ? first : next, apart);
  }
}

// In whole words of 16 bytes wherever the bytes lie: to places that begin at one, but for the first and last few bytes.
__device__ void copy_piece(unsigned char* to, const unsigned char* from, unsigned long long size, unsigned lane) {
  unsigned long long head = (16 - reinterpret_cast<unsigned long long>(to) % 16) % 16;
  if (head > size) head = size;
  const unsigned long long count = (size - head) / 16, tail = head + count * 16;
  if (lane < head) to[lane] = from[lane];
  if (tail + lane < size) to[tail + lane] = from[tail + lane];
  if (count == 0) return;
  uint4* const words = reinterpret_cast<uint4*>(to + head);
  const unsigned char* const begin = from + head;
  const auto apart = static_cast<unsigned>(reinterpret_cast<unsigned long long>(begin) % 16);
  const uint4* const source = reinterpret_cast<const uint4*>(begin - apart);
  if (apart == 0)
    copy_words(words, source, count, lane);
  else
    copy_shifted(words, source, apart, count, lane);
}

}  // namespace

// One warp per piece. Any grid, blocks of whole warps. `pieces` may lie in pinned host memory.
extern "C" __global__ void fairway_copy_pieces(const Piece* pieces, unsigned count) {
  const unsigned lane = threadIdx.x % kLanes;
  const unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / kLanes, warps = gridDim.x * blockDim.x / kLanes;
  for (unsigned i = warp; i < count; i += warps) copy_piece(pieces[i].to, pieces[i].from, pieces[i].size, lane);
}
