#pragma once

#include <string>
#include <utility>
#include <vector>

#include "topology/machine.h"

namespace fairway::render {

// The known facts about one part of the machine, as label and value, for the card that a page shows on hovering.
struct Details {
  std::string title;
  std::vector<std::pair<std::string, std::string>> rows;
};
Details details(const topology::Machine& machine, topology::NodeRef node);

}  // namespace fairway::render
