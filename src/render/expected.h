#pragma once

#include <functional>
#include <optional>
#include <string>

#include "topology/ids.h"

namespace fairway::render {

// What a path should reach, GB/s per direction: a range, and what bounds it.
struct Expected {
  double low_gbs = 0;
  double expected_gbs = 0;
  double high_gbs = 0;
  std::string bottleneck;  // "PCIe Gen5 x16 of GPU3"
};

// Asked for a pair of GPUs and NICs of one machine; nothing where no figure can be given. Empty: no figures at all.
using ExpectRate = std::function<std::optional<Expected>(topology::NodeRef a, topology::NodeRef b)>;

// "35-48", or one number where both ends say the same.
std::string range(const Expected& expected);

}  // namespace fairway::render
