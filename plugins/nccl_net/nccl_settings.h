#pragma once

#include <string>
#include <string_view>

#include "nccl_net/settings.h"

// Checks NCCL's own variables for values that do not work with this plugin. Read together with the plugin's variables.
namespace fairway::nccl {

// Whether NCCL_PROTO requests LL128 by name: "LL128", "Simple,LL128", "allreduce:LL128;broadcast:^LL", not "^LL128".
bool names_ll128(std::string_view protocols);
// Whether NCCL's log has more than warnings (NCCL_DEBUG).
bool logs_information(const Environment& environment);
// Empty, or why NCCL will fail with "out of memory" at its first send or receive, with the remedy.
std::string too_many_channels(const Environment& environment);

}  // namespace fairway::nccl
