#pragma once

#include <cstdlib>

namespace fairway {

// `make test-long` runs this: many attempts of what a few show in `make test`.
inline bool at_length() {
  return std::getenv("FAIRWAY_LONG") != nullptr;
}

}  // namespace fairway
