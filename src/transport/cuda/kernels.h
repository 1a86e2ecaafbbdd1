#pragma once

namespace fairway::transport::cuda {

// The kernel that copies a list of pieces, as code for the driver to load; null where this build had no nvcc.
const char* copy_kernel();

}  // namespace fairway::transport::cuda
