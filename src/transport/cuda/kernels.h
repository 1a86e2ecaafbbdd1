#pragma once

namespace fairway::transport::cuda {

// Code for the driver to load; null where this build had no nvcc.
const char* copy_kernel();     // copies a list of pieces
const char* signal_kernels();  // what streams do for stream_put and stream_wait_signal

}  // namespace fairway::transport::cuda
