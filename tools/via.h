#pragma once

#include <string>
#include <vector>

#include "fairway/options.h"

namespace fairway::tool {

// Restricts the engine to the paths of --via: transports; "fabric:PROVIDER", with that provider of libfabric; "staged"
// and "staged:TRANSPORT", where engines copy device memory to and from host memory and use that transport (default:
// shm).
void use_only(EngineOptions& options, const std::vector<std::string>& via);
// The provider in "fabric:PROVIDER"; empty if there is none.
std::string provider_of(const std::string& via);

}  // namespace fairway::tool
