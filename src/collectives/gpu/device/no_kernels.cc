#include "collectives/gpu/device/call.h"

// For builds without nvcc; otherwise these functions are generated from kernels.cu and further.cu.
namespace fairway::collectives::gpu {

const char* group_kernels() {
  return nullptr;
}
const char* further_kernels() {
  return nullptr;
}

}  // namespace fairway::collectives::gpu
