#pragma once

#include "render/device_box.h"
#include "render/outline.h"

namespace fairway::render {

// Adds the GPUs and NICs that no source places in a PCI tree, grouped by what a recorded matrix says of them: a box for
// what is PIX, PXB or PHB to each other, inside its NUMA node where that is known. Every such box is marked inferred.
void place_rest(const topology::Machine& machine, const DeviceBoxes& devices, Outline& outline);

}  // namespace fairway::render
