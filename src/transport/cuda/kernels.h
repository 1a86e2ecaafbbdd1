#pragma once

namespace fairway::transport::cuda {

// Kernel images for the driver; null if this was built without nvcc.
const char* copy_kernel();     // copies a list of pieces
const char* signal_kernels();  // for stream_put and stream_wait_signal

}  // namespace fairway::transport::cuda
