#pragma once

#include <string_view>
#include <vector>

#include "topology/machine.h"

// What is wrong with a machine's links: rates that a source states and that cannot be what the device has under load,
// and links that no source records.
namespace fairway::topology {

// By edge: stated slower than half of a link below it, in a file that people or hypervisors write, or at a first
// generation's speed. Such a bridge is emulated or its entry is wrong.
std::vector<bool> doubtful_edges(const Machine& machine, const std::vector<Edge>& edges);

// A GPU's link at its slowest speed and full width: GPUs drop to it while nothing runs. Also where the source knows no
// best speed and the model's is more than four times as fast.
bool is_idle_reading(const Machine& machine, const Edge& edge);

// The kind of link that these GPUs have by their model and that this source does not record ("NVLink", "xGMI"); empty
// where links are recorded, the driver was asked, or such GPUs have none. What lies between two GPUs is then unknown.
std::string_view unrecorded_gpu_links(const Machine& machine);

}  // namespace fairway::topology
