#pragma once

#include <optional>
#include <string>

namespace fairway::sys {

// Whether two GPUs of this machine do atomics on each other's memory natively, as over NVLink, by NVML, the driver's
// library of management. It knows GPUs that CUDA_VISIBLE_DEVICES hides from this process, too. GPUs are named by bus id
// or by "GPU-<uuid>". Nothing: NVML is not there, or does not know one of them, as in a container with some of the
// GPUs. Opens the library each time, so it may take milliseconds. Any thread.
std::optional<bool> native_atomics(const std::string& gpu, const std::string& other);
// Whether they reach each other over NVLink, which keeps 128 bytes of a warp whole: of PCIe, native atomics say nothing
// of that. The rest as above.
std::optional<bool> over_nvlink(const std::string& gpu, const std::string& other);

}  // namespace fairway::sys
