#pragma once

#include "sys/cuda.h"

namespace fairway::sys {

// As cuModuleLoadData(), in the current context, which is `context`: its kernels stay loaded for as long as the context
// lives. So only the first who needs an image waits for the kernels that run on that GPU then: the driver makes
// loading wait for them, and unloading too (H200, driver 580). `image` is compared by its address. Any thread.
int load_once(const CudaDriver& driver, cuda::Context context, const void* image, cuda::Module* module);

}  // namespace fairway::sys
