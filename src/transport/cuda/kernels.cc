#include "transport/cuda/kernels.h"

// Where this build had no nvcc; else the function is made of copy_pieces.cu.
namespace fairway::transport::cuda {

const char* copy_kernel() {
  return nullptr;
}

}  // namespace fairway::transport::cuda
