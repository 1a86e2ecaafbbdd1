#pragma once

#include "topology/machine.h"

namespace fairway::topology {

// Tells root ports, switch ports and other bridges apart by their place in a tree that shows every port (hwloc, sysfs):
// without root nobody may read the PCI Express capability that says it. Endpoints are left alone.
void classify_bridges(Machine& machine);

}  // namespace fairway::topology
