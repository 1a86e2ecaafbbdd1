#pragma once

#include <cstdio>
#include <cstdlib>

#include <cuda_runtime.h>

// Checks a call of the CUDA runtime: prints the error and exits the process.
#define CUDA_CHECK(call)                                                                                         \
  do {                                                                                                           \
    const cudaError_t result_ = (call);                                                                          \
    if (result_ != cudaSuccess) {                                                                                \
      std::fprintf(stderr, "%s:%d: CUDA: %s\n", __FILE__, __LINE__, cudaGetErrorString(result_));                \
      std::_Exit(3);                                                                                             \
    }                                                                                                            \
  } while (0)
