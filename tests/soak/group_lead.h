#pragma once

#include <string>

#include "group_board.h"

namespace fairway::tool::soak::groups {

// Has a life lived: starts its processes, wakes those that are stopped, gives a dead one's seat to a new one, and
// watches that they get on. `wrong` is empty when all held.
struct Lived {
  bool interrupted = false;
  std::string wrong;
};
Lived lead(const Life& life, Board& board);

}  // namespace fairway::tool::soak::groups
