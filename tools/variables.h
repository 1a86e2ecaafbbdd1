#pragma once

#include <span>
#include <string_view>

namespace fairway::tool {

// A variable of the environment that some part of Fairway reads. `of`: which part. `otherwise`: what holds without it.
struct Variable {
  std::string_view name, of, otherwise, does;
};

// All of them; tests/repository/variables.py holds the list against the sources.
std::span<const Variable> variables();

}  // namespace fairway::tool
