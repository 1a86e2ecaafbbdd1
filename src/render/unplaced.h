#pragma once

#include "render/device_box.h"
#include "render/outline.h"

namespace fairway::render {

// Adds the GPUs and NICs without a place in a PCI tree, grouped by the recorded matrix: a box around those that are
// PIX, PXB or PHB to each other, inside their NUMA node if it is known. Each such box is marked as inferred.
void place_rest(const topology::Machine& machine, const DeviceBoxes& devices, Outline& outline);

}  // namespace fairway::render
