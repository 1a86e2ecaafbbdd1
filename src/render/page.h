#pragma once

#include <string>
#include <utility>
#include <vector>

#include "render/phrases.h"
#include "topology/machine.h"

namespace fairway::render {

// One self-contained HTML page: the picture, details on hovering, the matrix with expected rates, rails, findings and
// what is unknown. No script, font or image from elsewhere; dark and light as the reader prefers; prints.
std::string page(const topology::Machine& machine, const ExpectRate& expect);
std::string page(const topology::Fabric& fabric);

// The fixed parts of the page.
std::string page_css();
const char* page_script();

// The known facts (details.cc) about one part of the machine, as label and value, for the card that a page shows on
// hovering.
struct Details {
  std::string title;
  std::vector<std::pair<std::string, std::string>> rows;
};
Details details(const topology::Machine& machine, topology::NodeRef node);

}  // namespace fairway::render
