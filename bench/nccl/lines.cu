#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <cuda_runtime.h>
#include <sys/uio.h>
#include <unistd.h>

// Tests the assumption behind LL and LL128 for a plugin that writes straight into memory that a GPU polls: whoever sees
// a line's flag sees the whole line. One GPU's kernel polls lines as NCCL's do. Another GPU's copy engine or kernel
// writes them into its memory (FAIRWAY_GPU_MEMORY=on), or a CPU writes them into pinned host memory (off).
//   lines [rounds]
// An LL line has 8 bytes (4 of data, 4 of flag). An LL128 line has 128 bytes, the last 8 of them the flag. Prints a
// verdict per way of writing. Exit code 1: a line was torn; 4: a line never arrived.
namespace {

#define CHECK(call)                                                                                      \
  do {                                                                                                   \
    const cudaError_t result_ = (call);                                                                  \
    if (result_ != cudaSuccess) {                                                                        \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString(result_));              \
      std::exit(3);                                                                                      \
    }                                                                                                    \
  } while (0)

constexpr unsigned kBlocks = 4;

struct Seen {
  unsigned long long torn;  // the flag of this round with data of another
  unsigned long long looked;  // lines whose flag was seen
  unsigned finished[kBlocks];  // rounds finished, by block; a block without lines of a small message runs ahead
};

// This block has seen all its lines of the round.
__device__ void finish_round(Seen* seen, unsigned round) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence_system();
    *const_cast<volatile unsigned*>(&seen->finished[blockIdx.x]) = round;
  }
}

// LL: one 16-byte load reads two 8-byte lines, as in NCCL.
__global__ void poll_ll(const uint4* lines, std::size_t pairs, unsigned rounds, Seen* seen) {
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
    finish_round(seen, round);
  }
  atomicAdd_system(&seen->torn, torn);
  atomicAdd_system(&seen->looked, looked);
}

// LL128: eight threads of a warp read 16 bytes each, the last of which holds the flag. The warp continues when all
// flags are there, without a fence, as in NCCL.
__global__ void poll_ll128(const ulonglong2* lines, std::size_t count, unsigned rounds, Seen* seen) {
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
    finish_round(seen, round);
  }
  atomicAdd_system(&seen->torn, torn);
  atomicAdd_system(&seen->looked, looked);
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

enum class By { engine_from_host, engine_from_gpu, kernel, memcpy, writev };
constexpr By kAll[] = {By::engine_from_host, By::engine_from_gpu, By::kernel, By::memcpy, By::writev};
const char* name_of(By by) {
  switch (by) {
    case By::engine_from_host: return "copy engine, pinned host memory to GPU";
    case By::engine_from_gpu: return "copy engine, GPU to GPU";
    case By::kernel: return "kernel, GPU to GPU";
    case By::memcpy: return "memcpy, host to pinned host memory";
    case By::writev: return "process_vm_writev, to pinned host memory";
  }
  return "";
}
bool to_host(By by) {
  return by == By::memcpy || by == By::writev;
}

// Allocates everything before the kernel runs: the driver may make such calls wait for a running kernel.
struct Stage {
  static constexpr std::size_t kMost = (1u << 20) + 4096;
  unsigned char *target, *host_target, *source, *host;
  Seen* seen;
  cudaStream_t polling, writing;

  Stage() {
    CHECK(cudaSetDevice(1));
    CHECK(cudaMalloc(&target, kMost));
    CHECK(cudaStreamCreateWithFlags(&polling, cudaStreamNonBlocking));
    CHECK(cudaSetDevice(0));
    CHECK(cudaDeviceEnablePeerAccess(1, 0));
    CHECK(cudaMalloc(&source, kMost));
    CHECK(cudaStreamCreateWithFlags(&writing, cudaStreamNonBlocking));
    for (unsigned char** each : {&host, &host_target}) CHECK(cudaHostAlloc(each, kMost, cudaHostAllocPortable));
    CHECK(cudaHostAlloc(&seen, sizeof *seen, cudaHostAllocPortable));
    copy_lines<<<1, 32, 0, writing>>>(nullptr, nullptr, 0);  // loads the kernel
    CHECK(cudaStreamSynchronize(writing));
  }

  void copy(By by, unsigned char* lines, std::size_t bytes) {
    if (by == By::memcpy) {
      std::memcpy(lines, host, bytes);
      return;
    }
    if (by == By::writev) {
      const iovec from{host, bytes}, to{lines, bytes};
      if (::process_vm_writev(::getpid(), &from, 1, &to, 1, 0) != static_cast<ssize_t>(bytes)) {
        std::perror("process_vm_writev");
        std::exit(3);
      }
      return;
    }
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
  }

  bool all_finished(unsigned round) const {
    for (const unsigned& block : seen->finished)
      if (*const_cast<const volatile unsigned*>(&block) < round) return false;
    return true;
  }

  Seen attempt(By by, bool wide, std::size_t bytes, std::size_t offset, unsigned rounds) {
    *seen = {};
    unsigned char* lines = (to_host(by) ? host_target : target) + offset;
    std::memset(host_target, 0, kMost);
    CHECK(cudaSetDevice(1));
    CHECK(cudaMemsetAsync(target, 0, kMost, polling));
    if (wide)
      poll_ll128<<<kBlocks, 512, 0, polling>>>(reinterpret_cast<ulonglong2*>(lines), bytes / 128, rounds, seen);
    else
      poll_ll<<<kBlocks, 512, 0, polling>>>(reinterpret_cast<uint4*>(lines), bytes / 16, rounds, seen);
    CHECK(cudaGetLastError());
    CHECK(cudaSetDevice(0));
    for (unsigned round = 1; round <= rounds; ++round) {
      write_lines(host, bytes, wide, round);
      copy(by, lines, bytes);
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      while (!all_finished(round))
        if (std::chrono::steady_clock::now() > limit) {
          std::printf("%s: a line of round %u never came\n", name_of(by), round);
          std::exit(4);
        }
    }
    CHECK(cudaStreamSynchronize(polling));
    return *seen;
  }
};

}  // namespace

int main(int count, char** words) {
  const unsigned rounds = count > 1 ? static_cast<unsigned>(std::atoi(words[1])) : 3000;
  int devices = 0;
  CHECK(cudaGetDeviceCount(&devices));
  if (devices < 2) {
    std::printf("skipped: this needs two GPUs, there are %d\n", devices);
    return 0;
  }
  Stage stage;
  bool whole = true;
  for (const bool wide : {false, true})
    for (const By by : kAll) {
      Seen all{};
      for (const std::size_t bytes : {std::size_t{512}, std::size_t{4096}, std::size_t{65536}, std::size_t{1} << 20})
        for (const std::size_t offset : {std::size_t{0}, std::size_t{128}, std::size_t{1920}}) {
          const Seen one = stage.attempt(by, wide, bytes, offset, bytes >= 1 << 20 ? rounds / 20 + 1 : rounds);
          all.torn += one.torn;
          all.looked += one.looked;
        }
      std::printf("%-5s %-42s %s: %llu of %llu lines torn\n", wide ? "LL128" : "LL", name_of(by),
                  all.torn == 0 ? "holds" : "DOES NOT HOLD", all.torn, all.looked);
      std::fflush(stdout);
      whole = whole && all.torn == 0;
    }
  return whole ? 0 : 1;
}
