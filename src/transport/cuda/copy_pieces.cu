// Copies a list of pieces that lie anywhere.

struct Piece {
  unsigned char* to;
  const unsigned char* from;
  unsigned long long size;
};

namespace {

__device__ void copy_piece(unsigned char* to, const unsigned char* from, unsigned long long size, unsigned lane) {
  const unsigned long long places = reinterpret_cast<unsigned long long>(to) | reinterpret_cast<unsigned long long>(from);
  unsigned long long done = 0;
  if (places % 16 == 0) {
    const uint4* wide_from = reinterpret_cast<const uint4*>(from);
    uint4* wide_to = reinterpret_cast<uint4*>(to);
    const unsigned long long count = size / 16;
    unsigned long long i = lane;
    for (; i + 7 * 32 < count; i += 8 * 32) {
      uint4 part[8];
#pragma unroll
      for (unsigned k = 0; k < 8; ++k) part[k] = __ldcs(wide_from + i + k * 32);
#pragma unroll
      for (unsigned k = 0; k < 8; ++k) __stcs(wide_to + i + k * 32, part[k]);
    }
    for (; i < count; i += 32) wide_to[i] = wide_from[i];
    done = count * 16;
  } else if (places % 4 == 0) {
    const unsigned* wide_from = reinterpret_cast<const unsigned*>(from);
    unsigned* wide_to = reinterpret_cast<unsigned*>(to);
    for (unsigned long long i = lane; i < size / 4; i += 32) wide_to[i] = wide_from[i];
    done = size / 4 * 4;
  }
  for (unsigned long long i = done + lane; i < size; i += 32) to[i] = from[i];
}

}  // namespace

// One warp per piece. Any grid, blocks of whole warps. `pieces` may lie in pinned host memory.
extern "C" __global__ void fairway_copy_pieces(const Piece* pieces, unsigned count) {
  const unsigned lane = threadIdx.x % 32;
  const unsigned warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, warps = gridDim.x * blockDim.x / 32;
  for (unsigned i = warp; i < count; i += warps) copy_piece(pieces[i].to, pieces[i].from, pieces[i].size, lane);
}
