#pragma once

#include <cstddef>
#include <string>

#include "fairway/collectives.h"

#include "collectives/gpu/calls.h"

namespace fairway::collectives {

// Communicator::measure_gpu() of `group`, which is open; `gpu`: its operations on streams.
Result<std::string> measure_ways(Communicator& group, GpuCalls& gpu, std::size_t most_bytes, bool compare);

}  // namespace fairway::collectives
