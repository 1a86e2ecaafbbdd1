#pragma once

#include <string>

#include "render/outline.h"
#include "render/phrases.h"
#include "topology/fabric.h"

namespace fairway::render {

// The outline as indented lines, for issue reports: every device with its bus id, link and rate. Plain ASCII branches.
std::string tree_text(const topology::Machine& machine, const TextStyle& style);
std::string tree_text(const topology::Fabric& fabric, const TextStyle& style);

}  // namespace fairway::render
