#pragma once

#include <cstdio>
#include <cstdlib>

#include <cuda_runtime.h>

// A call of the CUDA runtime that must not fail: what failed is said, and the process ends.
#define CUDA_CHECK(call)                                                                                         \
  do {                                                                                                           \
    const cudaError_t result_ = (call);                                                                          \
    if (result_ != cudaSuccess) {                                                                                \
      std::fprintf(stderr, "%s:%d: CUDA: %s\n", __FILE__, __LINE__, cudaGetErrorString(result_));                \
      std::_Exit(3);                                                                                             \
    }                                                                                                            \
  } while (0)
