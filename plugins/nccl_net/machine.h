#pragma once

#include <cstdint>
#include <string>

#include "fairway/explain.h"

namespace fairway::nccl {

struct Device;

// The same for two processes that reach each other over this host's loopback.
std::uint64_t host_identity();
// Fills in what NCCL wants to know of a device whose engine is open.
void describe(Device& device, std::uint64_t host);
// How many engines a device has, each with a thread that stands in for NCCL's; its first one is open.
std::uint32_t engines_of(const Device& device);
std::string why_no_gpu_memory(const Device& device);
// The route of a connection's first message, on one line of NCCL's log.
std::string route_text(const Explanation& plan);

}  // namespace fairway::nccl
