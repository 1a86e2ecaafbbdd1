#pragma once

namespace fairway::collectives::gpu {

// The kernels of kernels.cu as the driver takes them; null if this was built without nvcc.
const char* group_kernels();
const char* further_kernels();  // of further.cu

}  // namespace fairway::collectives::gpu
