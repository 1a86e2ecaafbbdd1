#include "collectives/gpu_kernels.h"

// For builds without nvcc; otherwise this function is generated from gpu_kernels.cu.
namespace fairway::collectives::gpu {

const char* group_kernels() {
  return nullptr;
}

}  // namespace fairway::collectives::gpu
