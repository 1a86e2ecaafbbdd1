#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <cuda_runtime.h>

// What LL and LL128 rely on when a plugin writes straight into the memory of a GPU that is polling it: whoever sees a
// line's flag sees the line. One GPU's kernel polls lines as NCCL's do, another GPU's copy engine or kernel writes them.
//   lines [rounds]
// A line of LL is 8 bytes (4 of data, 4 of flag); one of LL128 is 128 bytes, the last 8 of which are the flag.
namespace {

#define CHECK(call)                                                                                      \
  do {                                                                                                   \
    const cudaError_t result_ = (call);                                                                  \
    if (result_ != cudaSuccess) {                                                                        \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(result_));              \
      std::exit(3);                                                                                      \
    }                                                                                                    \
  } while (0)

struct Seen {
  unsigned long long torn;    // flag of this round with data of another
  unsigned long long looked;  // lines whose flag was seen
};

// LL: two lines of eight bytes by one load of sixteen, as NCCL reads them.
__global__ void poll_ll(const uint4* lines, std::size_t pairs, unsigned rounds, Seen* seen, volatile unsigned* finished) {
  unsigned long long torn = 0, looked = 0;
  for (unsigned round = 1; round <= rounds; ++round) {
    for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < pairs; i += gridDim.x * blockDim.x) {
      unsigned d1, f1, d2, f2;
      do {
        asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(d1), "=r"(f1), "=r"(d2), "=r"(f2) : "l"(lines + i) : "memory");
        torn += (f1 == round && d1 != round * 2654435761u + static_cast<unsigned>(2 * i)) +
                (f2 == round && d2 != round * 2654435761u + static_cast<unsigned>(2 * i + 1));
      } while (f1 != round || f2 != round);
      looked += 2;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence_system();
      atomicAdd_system(const_cast<unsigned*>(finished), 1u);
    }
  }
  atomicAdd(&seen->torn, torn);
  atomicAdd(&seen->looked, looked);
}

// LL128: eight threads of a warp read sixteen bytes each, the last one has the flag; the warp goes on when all flags are
// there, without a fence, as NCCL does.
__global__ void poll_ll128(const ulonglong2* lines, std::size_t count, unsigned rounds, Seen* seen, volatile unsigned* finished) {
  unsigned long long torn = 0, looked = 0;
  const std::size_t warps = gridDim.x * blockDim.x / 32, warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const unsigned lane = threadIdx.x % 32;
  for (unsigned round = 1; round <= rounds; ++round) {
    for (std::size_t four = warp; four < count / 4; four += warps) {
      const std::size_t word = four * 32 + lane;
      unsigned long long a, b;
      bool more;
      do {
        asm volatile("ld.volatile.global.v2.u64 {%0,%1}, [%2];" : "=l"(a), "=l"(b) : "l"(lines + word) : "memory");
        more = lane % 8 == 7 && b != round;
      } while (__any_sync(~0u, more));
      const unsigned long long wanted = round * 0x9E3779B97F4A7C15ull + word;
      torn += (a != wanted) + (lane % 8 != 7 && b != ~wanted);
      looked += lane % 8 == 7;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence_system();
      atomicAdd_system(const_cast<unsigned*>(finished), 1u);
    }
  }
  atomicAdd(&seen->torn, torn);
  atomicAdd(&seen->looked, looked);
}

__global__ void copy_lines(uint4* to, const uint4* from, std::size_t count) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) to[i] = from[i];
}

void write_lines(unsigned char* to, std::size_t bytes, bool wide, unsigned round) {
  if (!wide) {
    auto* words = reinterpret_cast<unsigned*>(to);
    for (std::size_t i = 0; i < bytes / 8; ++i) {
      words[2 * i] = round * 2654435761u + static_cast<unsigned>(i);
      words[2 * i + 1] = round;
    }
    return;
  }
  auto* words = reinterpret_cast<unsigned long long*>(to);
  for (std::size_t i = 0; i < bytes / 16; ++i) {
    const unsigned long long value = round * 0x9E3779B97F4A7C15ull + i;
    words[2 * i] = value;
    words[2 * i + 1] = i % 8 == 7 ? round : ~value;
  }
}

enum class By { engine_from_host, engine_from_gpu, kernel };
const char* name_of(By by) {
  return by == By::engine_from_host ? "copy engine, from pinned host memory"
         : by == By::engine_from_gpu ? "copy engine, from the other GPU"
                                     : "kernel, from the other GPU";
}

// Torn lines found.
unsigned long long attempt(By by, bool wide, std::size_t bytes, std::size_t offset, unsigned rounds) {
  constexpr unsigned kBlocks = 4;
  unsigned char *target, *source, *host;
  Seen* seen;
  unsigned* finished;
  CHECK(cudaSetDevice(1));
  CHECK(cudaMalloc(&target, bytes + 4096));
  CHECK(cudaMemset(target, 0, bytes + 4096));
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaHostAlloc(&seen, sizeof *seen, cudaHostAllocPortable | cudaHostAllocMapped));
  CHECK(cudaHostAlloc(&finished, 4, cudaHostAllocPortable | cudaHostAllocMapped));
  std::memset(seen, 0, sizeof *seen);
  *finished = 0;
  cudaStream_t polling, writing;
  CHECK(cudaStreamCreateWithFlags(&polling, cudaStreamNonBlocking));
  unsigned char* lines = target + offset;
  if (wide)
    poll_ll128<<<kBlocks, 512, 0, polling>>>(reinterpret_cast<ulonglong2*>(lines), bytes / 128, rounds, seen, finished);
  else
    poll_ll<<<kBlocks, 512, 0, polling>>>(reinterpret_cast<uint4*>(lines), bytes / 16, rounds, seen, finished);
  CHECK(cudaGetLastError());
  CHECK(cudaSetDevice(0));
  (void)cudaDeviceEnablePeerAccess(1, 0);
  (void)cudaGetLastError();
  CHECK(cudaStreamCreateWithFlags(&writing, cudaStreamNonBlocking));
  CHECK(cudaMalloc(&source, bytes));
  CHECK(cudaHostAlloc(&host, bytes, cudaHostAllocPortable));
  for (unsigned round = 1; round <= rounds; ++round) {
    write_lines(host, bytes, wide, round);
    if (by == By::engine_from_host) {
      CHECK(cudaMemcpyAsync(lines, host, bytes, cudaMemcpyDefault, writing));
    } else {
      CHECK(cudaMemcpyAsync(source, host, bytes, cudaMemcpyDefault, writing));
      if (by == By::kernel)
        copy_lines<<<8, 256, 0, writing>>>(reinterpret_cast<uint4*>(lines), reinterpret_cast<uint4*>(source), bytes / 16);
      else
        CHECK(cudaMemcpyAsync(lines, source, bytes, cudaMemcpyDefault, writing));
    }
    CHECK(cudaStreamSynchronize(writing));
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (*static_cast<volatile unsigned*>(finished) < round * kBlocks)
      if (std::chrono::steady_clock::now() > limit) {
        std::printf("%s: a line never came\n", name_of(by));
        std::exit(4);
      }
  }
  CHECK(cudaSetDevice(1));
  CHECK(cudaStreamSynchronize(polling));
  const Seen result = *seen;
  CHECK(cudaFree(target));
  CHECK(cudaFree(source));
  CHECK(cudaFreeHost(host));
  CHECK(cudaFreeHost(seen));
  CHECK(cudaFreeHost(finished));
  std::printf("%-5s %-37s %8zu bytes at +%-4zu %10llu lines seen, %llu torn\n", wide ? "LL128" : "LL", name_of(by), bytes,
              offset, result.looked, result.torn);
  std::fflush(stdout);
  return result.torn;
}

}  // namespace

int main(int count, char** words) {
  const unsigned rounds = count > 1 ? static_cast<unsigned>(std::atoi(words[1])) : 300;
  int devices = 0;
  CHECK(cudaGetDeviceCount(&devices));
  if (devices < 2) {
    std::printf("skipped: this needs two GPUs, there are %d\n", devices);
    return 0;
  }
  unsigned long long torn = 0;
  for (const bool wide : {false, true})
    for (const By by : {By::engine_from_host, By::engine_from_gpu, By::kernel})
      for (const std::size_t bytes : {std::size_t{512}, std::size_t{4096}, std::size_t{65536}, std::size_t{1} << 20})
        for (const std::size_t offset : {std::size_t{0}, std::size_t{128}, std::size_t{1920}})
          torn += attempt(by, wide, bytes, offset, bytes >= 1 << 20 ? rounds / 10 + 1 : rounds);
  std::printf("%llu torn lines\n", torn);
  return torn == 0 ? 0 : 1;
}
