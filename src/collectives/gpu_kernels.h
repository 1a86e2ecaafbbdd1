#pragma once

namespace fairway::collectives::gpu {

// The kernels of gpu_kernels.cu as the driver takes them; null if this was built without nvcc.
const char* group_kernels();
const char* further_kernels();  // of gpu_further.cu

}  // namespace fairway::collectives::gpu
