#pragma once

#include <string>

#include "topology/machine.h"

namespace fairway::render {

// What `fairway topo` and `fairway topo --tree` print of a machine into a file, without rates that a predictor expects.
std::string golden_text(const topology::Fabric& fabric);

}  // namespace fairway::render
