#pragma once

#include "command.h"

// The parts of `fairway demo`.
namespace fairway::tool {

// Two engines of this process: writes and reads of many sizes beside memcpy, every byte verified.
Status demo_memory(Tool& tool);
// Two processes: they meet, one is killed, and comes back as a new incarnation.
Status demo_processes(Tool& tool);
// The other process: opens an engine, prints its address on stdout, ends with its stdin.
Exit demo_peer(Tool& tool);

}  // namespace fairway::tool
