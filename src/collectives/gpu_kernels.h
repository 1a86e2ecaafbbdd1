#pragma once

namespace fairway::collectives::gpu {

// The kernels of gpu_kernels.cu as the driver takes them; null if this was built without nvcc.
const char* group_kernels();

}  // namespace fairway::collectives::gpu
