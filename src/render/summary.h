#pragma once

#include <string>

#include "render/expected.h"
#include "render/phrases.h"
#include "topology/fabric.h"

namespace fairway::render {

// The machine in a few lines: sockets, GPUs, links, NICs, rails, and what is unknown.
std::string summary(const topology::Machine& machine, const TextStyle& style);

// The whole of `fairway topo`: summary, then the matrix, then how to read it.
std::string overview(const topology::Machine& machine, const ExpectRate& expect, const TextStyle& style);
std::string overview(const topology::Fabric& fabric, const TextStyle& style);

}  // namespace fairway::render
