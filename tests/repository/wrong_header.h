#pragma once

// Uses std::string without including it: the test of self-contained headers must see that.
inline std::string leans_on_its_includer() {
  return {};
}
