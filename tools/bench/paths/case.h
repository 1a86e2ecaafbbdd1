#pragma once

#include <cstdint>
#include <string>

#include "bench/bench.h"

namespace fairway::tool::bench {

// One path between two memories, and what it is compared with. A value.
struct Case {
  std::string via;  // empty: as the engine chooses
  std::string from, to;
  Roof roof = Roof::none;
  std::string roof_name;
  std::string transport = via;  // what the engines are told; differs if `via` is a path of a transport
  std::string memory;           // the kind that was asked for; empty: as named
};
Case make_case(const std::string& via, const std::string& from, const std::string& to);

}  // namespace fairway::tool::bench
