#pragma once

#include <vector>

#include "topology/assess.h"

namespace fairway::topology {

// GPUs and NICs whose place in the machine no source says, and which output of that machine would.
std::vector<Finding> lint_places(const Machine& machine);

// Cards whose slot is too small for their ports, and nodes and masks that neighbours contradict.
std::vector<Finding> lint_slots(const Machine& machine);

}  // namespace fairway::topology
