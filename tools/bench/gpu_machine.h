#pragma once

#include <optional>
#include <string>

#include "fairway/status.h"

#include "predict/flow.h"
#include "topology/machine.h"

// GPUs as CUDA numbers them, and as a machine's description has them.
namespace fairway::tool::bench {

Result<std::string> bus_id_of(int device);
// Empty: the description does not have it.
std::optional<predict::Endpoint> gpu_of(const topology::Machine& machine, int device);

}  // namespace fairway::tool::bench
