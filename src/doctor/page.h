#pragma once

#include <string>

#include "doctor/finding.h"

// The parts of the doctor's pages.
namespace fairway::doctor {

// A whole document; `picture` is an SVG or empty.
std::string page_of(const std::string& title, const std::string& picture, const std::string& body);
std::string findings_of(const Report& report);

}  // namespace fairway::doctor
