#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "command.h"

namespace fairway::tool {

struct SimCollectives {
  std::vector<int> ranks;
  std::uint64_t most_bytes = 2U << 20;
  std::vector<std::string> only;    // of sim::names_of_calls(); empty: all
  int per_host = 1;                 // consecutive ranks of a host, by `hierarchical`
  std::uint32_t slot_bytes = 4096;  // the longest message
  bool local = false;               // those that have a root, with local completion
  bool trace = false;               // print every event
  std::string svg;                  // a folder for pictures, in place of the table; empty: none
};

// Every collective with each of its algorithms on so many simulated ranks, beside what the formulas say.
Exit simulate_collectives(Tool& tool, const SimCollectives& wanted);

// A picture of each collective by each algorithm, a file each in wanted.svg.
Exit draw_collectives(Tool& tool, const SimCollectives& wanted);

}  // namespace fairway::tool
