#pragma once

#include <utility>

#include "device_flags.cuh"

// The rate of put_by_grid at places that are no multiples of 16.
namespace device {

inline void measure_odd(Run& run) {
  Side& side = run.side;
  const std::size_t bytes = std::min(run.options.to, std::size_t{256} << 20) - 64;
  constexpr std::pair<int, int> kPlaces[] = {{0, 0}, {8, 8}, {1, 1}, {0, 8}, {0, 4}, {0, 2}, {0, 1}, {1, 0}, {3, 14}};
  constexpr int kRounds = 10;
  if (side.rank == 0) std::printf("\nput_by_grid at odd places, 128 x 512, %s (GB/s)\n  %-10s  %8s  %8s\n", text_of(bytes).c_str(), "to, from", "write", "read");
  cudaEvent_t begin, end;
  CUDA_CHECK(cudaEventCreate(&begin));
  CUDA_CHECK(cudaEventCreate(&end));
  for (const auto [to, from] : kPlaces) {
    if (side.rank == 0) std::printf("  %2d, %2d    ", to, from);
    for (const bool reads : {false, true}) {
      ++run.seed;
      // Rank 0 moves: from its source to rank 1's box, or back.
      const bool has_source = (side.rank == 0) != reads;
      unsigned char* const own = (side.rank == 0 ? side.source : side.box) + (has_source ? from : to);
      if (has_source) pair::fill<<<512, 256, 0, side.stream>>>(own, bytes, run.seed, nullptr);
      if (!has_source) CUDA_CHECK(cudaMemsetAsync(own, 0xA5, bytes, side.stream));
      CUDA_CHECK(cudaStreamSynchronize(side.stream));
      side.meet();
      if (side.rank == 0) {
        auto* const there = reinterpret_cast<unsigned char*>(side.there.address) + (reads ? from : to);
        float ms = 0;
        for (int warm = 0; warm < 2; ++warm) {
          CUDA_CHECK(cudaEventRecord(begin, side.stream));
          for (int i = 0; i < kRounds; ++i)
            grid_put<<<128, 512, 0, side.stream>>>(reads ? own : there, reads ? there : own, bytes);
          CUDA_CHECK(cudaEventRecord(end, side.stream));
          CUDA_CHECK(cudaStreamSynchronize(side.stream));
          CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
        }
        const double us = ms * 1e3 / kRounds;
        std::printf("  %8.1f", static_cast<double>(bytes) / us / 1e3);
        std::fflush(stdout);
        run.say("put_by_grid at odd places", bytes,
                (std::string(reads ? "read " : "write ") + std::to_string(to) + " " + std::to_string(from)).c_str(), us);
      }
      side.meet();
      *side.wrong = 0;
      if (!has_source) pair::compare<<<512, 256, 0, side.stream>>>(own, bytes, run.seed, nullptr, side.wrong);
      CUDA_CHECK(cudaStreamSynchronize(side.stream));
      if (*side.wrong != 0) {
        std::fprintf(stderr, "put_by_grid from %d to %d: %llu wrong bytes\n", from, to, *side.wrong);
        run.sound = false;
      }
      side.meet();
    }
    if (side.rank == 0) std::printf("\n");
  }
  CUDA_CHECK(cudaEventDestroy(begin));
  CUDA_CHECK(cudaEventDestroy(end));
}

}  // namespace device
