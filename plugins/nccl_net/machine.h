#pragma once

#include <cstdint>
#include <string>

#include "fairway/explain.h"

namespace fairway::nccl {

struct Device;

// Equal for two processes that reach each other over this host's loopback.
std::uint64_t host_identity();
// Fills in the properties that NCCL asks for. The device's first engine must be open.
void describe(Device& device, std::uint64_t host);
// The number of engines of a device, each with its own progress thread. The first engine must be open.
std::uint32_t engines_of(const Device& device);
std::string why_no_gpu_memory(const Device& device);
// One line for NCCL's log: the route of a connection's first message.
std::string route_text(const Explanation& plan);

}  // namespace fairway::nccl
