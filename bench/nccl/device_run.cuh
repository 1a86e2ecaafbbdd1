#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "checks.cuh"
#include "library.h"
#include "pair.cuh"

// Shared by the parts of device.cu: poisoned boxes, comparison of every byte, medians, JSON.
namespace device {

using pair::Side;

struct Options {
  std::string parts = "flags,shape,beside,signals,switch,graph,eager,odd,pauses";
  std::size_t to = std::size_t{1} << 30;
  const char* json = nullptr;
  bool has(const char* part) const { return parts.find(part) != std::string::npos; }
};

inline double median(std::vector<double> all) {
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

inline std::string text_of(std::size_t bytes) {
  if (bytes >= (1u << 30)) return std::to_string(bytes >> 30) + " GiB";
  if (bytes >= (1u << 20)) return std::to_string(bytes >> 20) + " MiB";
  if (bytes >= (1u << 10)) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes) + " B";
}

// One rank with what every part of the benchmark needs.
struct Run {
  const Options& options;
  Side& side;
  nccl::Comm comm = nullptr;
  std::FILE* json = nullptr;
  std::uint64_t seed = 1;
  bool sound = true;

  void say(const char* what, std::size_t bytes, const char* who, double us) {
    if (side.rank != 0) return;
    if (json != nullptr) {
      std::fprintf(json, "{\"what\": \"%s\", \"bytes\": %zu, \"who\": \"%s\", \"us\": %.3f, \"gbs\": %.2f}\n", what, bytes,
                   who, us, us > 0 ? static_cast<double>(bytes) / us / 1e3 : 0);
      std::fflush(json);
    }
  }

  void prepare(std::size_t bytes) {
    ++seed;
    CUDA_CHECK(cudaMemsetAsync(side.box, 0xA5, bytes, side.stream));
    pair::fill<<<pair::blocks_for(bytes), 256, 0, side.stream>>>(side.source, bytes, seed * 2 + side.rank, nullptr);
    side.clear_words();
  }
  // `only`: the only rank that received; -1: both did.
  void verify(const char* what, std::size_t bytes, int only = -1) {
    *side.wrong = 0;
    if (only < 0 || only == side.rank)
      pair::compare<<<pair::blocks_for(bytes), 256, 0, side.stream>>>(side.box, bytes, seed * 2 + 1 - side.rank, nullptr,
                                                                      side.wrong);
    CUDA_CHECK(cudaStreamSynchronize(side.stream));
    if (*side.wrong != 0) {
      std::fprintf(stderr, "%s of %zu bytes: %llu wrong bytes at rank %d\n", what, bytes, *side.wrong, side.rank);
      sound = false;
    }
    side.meet();
  }

  void see_outcome() {
    std::uint32_t outcome = 1;
    CUDA_CHECK(cudaMemcpy(&outcome, side.word(2), sizeof outcome, cudaMemcpyDeviceToHost));
    sound &= outcome == 0;
  }
};

}  // namespace device
