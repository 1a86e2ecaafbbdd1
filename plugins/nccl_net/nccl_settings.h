#pragma once

#include <string>
#include <string_view>

#include "nccl_net/settings.h"

// What NCCL's own variables ask for and cannot have here. Read along with the plugin's.
namespace fairway::nccl {

// Whether NCCL_PROTO asks for LL128 by name: "LL128", "Simple,LL128", "allreduce:LL128;broadcast:^LL", not "^LL128".
bool names_ll128(std::string_view protocols);
// Empty, or why NCCL will end with "out of memory" at its first send or receive, and what helps.
std::string too_many_channels(const Environment& environment);

}  // namespace fairway::nccl
