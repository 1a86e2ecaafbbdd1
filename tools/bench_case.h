#pragma once

#include <cstdint>
#include <string>

#include "bench.h"

namespace fairway::tool::bench {

// One way between two memories, and what stands beside it. A value.
struct Case {
  std::string via;  // empty: as the engine chooses
  std::string from, to;
  Roof roof = Roof::none;
  std::string roof_name;
  std::string transport = via;  // what the engines are told; differs where `via` is a way of a transport's
  std::string memory;           // the kind that was asked for; empty: as named
};
Case make_case(const std::string& via, const std::string& from, const std::string& to);

}  // namespace fairway::tool::bench
