#pragma once

#include "device_run.cuh"

// Kernels that access the other GPU: flags, data with flags, and the store rate of a grid.
namespace device {

namespace dev = fairway::device;

__global__ void grid_put(unsigned char* to, const unsigned char* from, std::uint64_t length) {
  dev::put_by_grid(to, from, length);
}

// ---- one thread against one thread ----

__device__ void raw_set(dev::Word* word, dev::Word value) {
  *static_cast<volatile dev::Word*>(word) = value;
}
__device__ void raw_wait(const dev::Word* word, dev::Word value) {
  while (*static_cast<const volatile dev::Word*>(word) < value) {
  }
}

enum class Flag : int { raw, bare, set, add };

__global__ void flags(Flag how, bool first, dev::Word* there, const dev::Word* here, unsigned rounds,
                      std::uint64_t* took) {
  const std::uint64_t begin = dev::now();
  for (unsigned round = 1; round <= rounds; ++round) {
    for (int turn = 0; turn < 2; ++turn) {
      if ((turn == 0) == first) {
        if (how == Flag::raw) raw_set(there, round);
        if (how == Flag::bare) dev::signal_bare(there, round);
        if (how == Flag::set) dev::signal_set<dev::Thread>(there, round);
        if (how == Flag::add) dev::signal_add<dev::Thread>(there, 1);
      } else if (how == Flag::raw) {
        raw_wait(here, round);
      } else if (!dev::signal_wait(here, round, begin + 20'000'000'000)) {
        *took = 0;
        return;
      }
    }
  }
  *took = dev::now() - begin;
}

// A block puts bytes and a signal; the other GPU's block waits for the signal and puts its own.
__global__ void puts(bool first, unsigned char* to, const unsigned char* from, std::uint64_t length, dev::Word* there,
                     const dev::Word* here, unsigned rounds, std::uint64_t* took) {
  const std::uint64_t begin = dev::now();
  for (unsigned round = 1; round <= rounds; ++round)
    for (int turn = 0; turn < 2; ++turn) {
      if ((turn == 0) == first) {
        dev::put<dev::Block>(to, from, length);
        dev::signal_set<dev::Block>(there, round);
      } else if (!dev::signal_wait_block(here, round, begin + 20'000'000'000)) {
        return;
      }
    }
  if (threadIdx.x == 0) *took = dev::now() - begin;
}

inline void measure_flags(Run& run) {
  Side& side = run.side;
  constexpr unsigned kRounds = 5000;
  std::uint64_t* took;
  CUDA_CHECK(cudaHostAlloc(&took, sizeof *took, cudaHostAllocPortable | cudaHostAllocMapped));
  if (side.rank == 0) std::printf("\nGPU flag to GPU flag, and bytes with it, in kernels (one way, us)\n");
  // `launch(rounds)` runs a kernel of that many rounds and returns the time.
  const auto figure = [&](const char* what, const char* who, std::size_t bytes, auto launch) {
    std::vector<double> all;
    for (int i = 0; i < 11; ++i) {
      side.clear_words();
      *took = 0;
      launch(kRounds, took);
      CUDA_CHECK(cudaGetLastError());
      CUDA_CHECK(cudaStreamSynchronize(side.stream));
      run.sound &= *took != 0;
      all.push_back(static_cast<double>(*took) / 1e3 / (2.0 * kRounds));
      side.meet();
    }
    if (side.rank == 0) std::printf("  %-34s %7.3f\n", who, median(all));
    run.say(what, bytes, who, median(all));
  };
  const auto by = [&](Flag how) {
    return [&, how](unsigned rounds, std::uint64_t* into) {
      flags<<<1, 1, 0, side.stream>>>(how, side.rank == 0, side.word_there(0), side.word(0), rounds, into);
    };
  };
  figure("flag", "raw volatile words, no order", 0, by(Flag::raw));
  figure("flag", "signal_bare and signal_wait", 0, by(Flag::bare));
  figure("flag", "signal_set and signal_wait", 0, by(Flag::set));
  figure("flag", "signal_add and signal_wait", 0, by(Flag::add));
  for (const std::size_t bytes : {std::size_t{1} << 10, std::size_t{4} << 10, std::size_t{16} << 10, std::size_t{64} << 10}) {
    run.prepare(bytes);
    figure("put in a kernel", ("put<Block> of " + text_of(bytes) + ", signal, wait").c_str(), bytes,
           [&](unsigned rounds, std::uint64_t* into) {
             puts<<<1, 512, 0, side.stream>>>(side.rank == 0, reinterpret_cast<unsigned char*>(side.there.address),
                                              side.source, bytes, side.word_there(0), side.word(0), rounds, into);
           });
    run.verify("a put in a kernel", bytes);
  }
}

inline void measure_shape(Run& run) {
  Side& side = run.side;
  if (side.rank != 0) return side.meet();
  std::printf("\nput_by_grid, GB/s\n  %-8s", "size");
  for (const int blocks : {8, 16, 32, 64, 128}) std::printf("  %4d x 512 %4d x 1024", blocks, blocks);
  cudaEvent_t begin, end;
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreate(&end));
  for (const std::size_t bytes : {std::size_t{256} << 10, std::size_t{1} << 20, std::size_t{16} << 20, run.options.to}) {
    std::printf("\n  %-8s", text_of(bytes).c_str());
    for (const int blocks : {8, 16, 32, 64, 128})
      for (const int threads : {512, 1024}) {
        const int rounds = bytes <= (16u << 20) ? 50 : 5;
        float ms = 0;
        for (int warm = 0; warm < 2; ++warm) {
          CUDA_CHECK(cudaEventRecord(begin, side.stream));
          for (int i = 0; i < rounds; ++i)
            grid_put<<<blocks, threads, 0, side.stream>>>(reinterpret_cast<unsigned char*>(side.there.address),
                                                          side.source, bytes);
          CUDA_CHECK(cudaEventRecord(end, side.stream));
          CUDA_CHECK(cudaStreamSynchronize(side.stream));
          CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
        }
        std::printf("  %10.1f", static_cast<double>(bytes) * rounds / ms / 1e6);
      }
  }
  std::printf("\n");
  side.meet();
}

}  // namespace device
