#pragma once

#include <memory>
#include <string>

#include "bench/bench.h"

namespace fairway::tool::bench {

// The roof of a path over libfabric: one endpoint on each side and a loop over its bare interface, with a helper
// process of its own. `provider` as libfabric names it. Null where there is none, and in a build without libfabric.
std::unique_ptr<Mover> open_fabric_roof(const std::string& provider, std::uint64_t most);

}  // namespace fairway::tool::bench
