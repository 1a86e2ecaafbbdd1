#pragma once

#include <functional>
#include <optional>
#include <string>

#include "topology/ids.h"

namespace fairway::render {

// The expected rate of a path, GB/s per direction: a range, and its bottleneck.
struct Expected {
  double low_gbs = 0;
  double expected_gbs = 0;
  double high_gbs = 0;
  std::string bottleneck;  // "PCIe Gen5 x16 of GPU3"
};

// The expected rate between two GPUs, NICs or NUMA nodes of one machine; none if unknown. An empty function: no rates
// are shown.
using ExpectRate = std::function<std::optional<Expected>(topology::NodeRef a, topology::NodeRef b)>;

// "35-48", or one number if both ends are equal.
std::string range(const Expected& expected);

}  // namespace fairway::render
