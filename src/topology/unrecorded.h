#pragma once

#include <string_view>

namespace fairway::topology {

struct Machine;

// The kind of link that these GPUs have by their model and that this source does not record ("NVLink", "xGMI"); empty
// where links are recorded, the driver was asked, or such GPUs have none. What lies between two GPUs is then unknown.
std::string_view unrecorded_gpu_links(const Machine& machine);

}  // namespace fairway::topology
