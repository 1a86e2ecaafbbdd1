#include "transport/cuda/kernels.h"

namespace fairway::transport::cuda {

#ifdef FAIRWAY_HAVE_KERNELS
const char* copy_kernel() {
  static constexpr char kCode[] =
#include "copy_pieces.inc"
      ;
  return kCode;
}
#else
const char* copy_kernel() {
  return nullptr;
}
#endif

}  // namespace fairway::transport::cuda
