#pragma once

#include <cstdint>
#include <vector>

#include <cuda.h>

#include "cuda_check.cuh"

// The CUDA driver calls that copies.cu times, made as libfairway makes them.
namespace copies {

#define DRIVER_CHECK(call)                                                                            \
  do {                                                                                                \
    const CUresult result_ = (call);                                                                  \
    if (result_ != CUDA_SUCCESS) {                                                                    \
      std::fprintf(stderr, "%s:%d: the driver said %d\n", __FILE__, __LINE__, static_cast<int>(result_)); \
      std::_Exit(3);                                                                                  \
    }                                                                                                 \
  } while (0)

struct Driver {
  CUresult (*copy)(CUdeviceptr, CUdeviceptr, std::size_t, CUstream) = nullptr;
  CUresult (*word)(CUstream, CUdeviceptr, cuuint32_t, unsigned) = nullptr;
  CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void**,
                     void**) = nullptr;
  // Of CUDA 13, and of 12.8, which also reports which copy it refused. Null when this driver has none.
  CUresult (*batch)(CUdeviceptr*, CUdeviceptr*, std::size_t*, std::size_t, CUmemcpyAttributes*, std::size_t*,
                    std::size_t, CUstream) = nullptr;
  CUresult (*batch_12)(CUdeviceptr*, CUdeviceptr*, std::size_t*, std::size_t, CUmemcpyAttributes*, std::size_t*,
                       std::size_t, std::size_t*, CUstream) = nullptr;

  Driver() {
    find(copy, "cuMemcpyAsync", 4000);
    find(word, "cuStreamWriteValue32", 11070);
    find(launch, "cuLaunchKernel", 4000);
    find(batch, "cuMemcpyBatchAsync", 13000);
    find(batch_12, "cuMemcpyBatchAsync", 12080);
    if (copy == nullptr || word == nullptr || launch == nullptr) {
      std::fprintf(stderr, "this driver lacks cuMemcpyAsync, cuStreamWriteValue32 or cuLaunchKernel\n");
      std::_Exit(3);
    }
  }
  bool has_batch() const { return batch != nullptr || batch_12 != nullptr; }

  // `failed`: index of the refused copy if the driver reports it, otherwise ~0.
  CUresult copy_all(CUdeviceptr* to, CUdeviceptr* from, std::size_t* sizes, std::size_t count, CUstream stream,
                    CUmemcpySrcAccessOrder order = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
                    std::size_t* failed = nullptr) const {
    CUmemcpyAttributes how{};
    how.srcAccessOrder = order;
    std::size_t first = 0, refused = ~std::size_t{0};
    CUresult result = CUDA_SUCCESS;
    if (batch != nullptr)
      result = batch(to, from, sizes, count, &how, &first, 1, stream);
    else
      result = batch_12(to, from, sizes, count, &how, &first, 1, &refused, stream);
    if (failed != nullptr) *failed = refused;
    return result;
  }

 private:
  template <class Call>
  static void find(Call& call, const char* name, unsigned version) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t result = cudaGetDriverEntryPointByVersion(name, &entry, version, cudaEnableDefault, &found);
    if (result == cudaSuccess && found == cudaDriverEntryPointSuccess) call = reinterpret_cast<Call>(entry);
    (void)cudaGetLastError();
  }
};

}  // namespace copies
