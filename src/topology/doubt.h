#pragma once

#include <vector>

#include "topology/machine.h"

// Link rates that a source states and that cannot be what the device has under load.
namespace fairway::topology {

// By edge: stated slower than half of a link below it, in a file that people or hypervisors write, or at a first
// generation's speed. Such a bridge is emulated or its entry is wrong.
std::vector<bool> doubtful_edges(const Machine& machine, const std::vector<Edge>& edges);

// A GPU's link at its slowest speed and full width: GPUs drop to it while nothing runs. Also where the source knows no
// best speed and the model's is more than four times as fast.
bool is_idle_reading(const Machine& machine, const Edge& edge);

}  // namespace fairway::topology
