#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "fairway/explain.h"

namespace fairway::nccl {

struct Device;

// The same for two processes that reach each other over this host's loopback.
std::uint64_t host_identity();
// Fills in what NCCL wants to know of a device whose engine is open.
void describe(Device& device, std::uint64_t host);
std::string why_no_gpu_memory(const Device& device);
// An explanation on one line of NCCL's log.
std::string one_line(std::string_view before, const Explanation& explanation);

}  // namespace fairway::nccl
