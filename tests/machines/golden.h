#pragma once

#include <string>
#include <vector>

#include "topology/machine.h"

namespace fairway::machines {

// The names of the recorded machines in a folder (its .json files), sorted.
std::vector<std::string> recorded(const std::string& folder);

// What the model makes of a machine, as text: matrix, edges, rails, the NICs of each GPU, lint findings.
std::string golden(const topology::Fabric& fabric);

}  // namespace fairway::machines
