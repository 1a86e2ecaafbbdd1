#include "topo.h"

namespace fairway::tool {

render::ExpectRate expect_rates(const topology::Machine&) {
  return {};
}

}  // namespace fairway::tool
