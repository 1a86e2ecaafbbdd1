#pragma once

#include <cstdint>

#include "fairway/fairway.h"

#include "command.h"

// The parts of `fairway demo`.
namespace fairway::tool {

inline constexpr std::uint64_t kDemoBytes = 16u << 20;  // of the region that the other side publishes as "target"

// The route to a peer, and writes and reads of many sizes over it beside memcpy; what comes back is compared.
Status demo_path(Tool& tool, Engine& engine, PeerId peer);
// Two engines of this process: writes and reads of many sizes beside memcpy, every byte verified.
Status demo_memory(Tool& tool);
// Two processes: they meet and move bytes, one is killed, and comes back as a new incarnation.
Status demo_processes(Tool& tool);
// The other process: opens an engine, prints its address on stdout, ends with its stdin.
Exit demo_peer(Tool& tool);

}  // namespace fairway::tool
