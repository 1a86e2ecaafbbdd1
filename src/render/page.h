#pragma once

#include <string>

#include "render/expected.h"
#include "topology/fabric.h"

namespace fairway::render {

// One self-contained HTML page: the picture, details on hovering, the matrix with expected rates, rails, findings and
// what is unknown. No script, font or image from elsewhere; dark and light as the reader prefers; prints.
std::string page(const topology::Machine& machine, const ExpectRate& expect);
std::string page(const topology::Fabric& fabric);

// The fixed parts of the page.
std::string page_css();
const char* page_script();

}  // namespace fairway::render
