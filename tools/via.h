#pragma once

#include <string>
#include <vector>

#include "fairway/options.h"

namespace fairway::tool {

// What --via names: transports, with "fabric:PROVIDER" one of libfabric's providers besides, and with "staged" or
// "staged:TRANSPORT" that (or shm) under device memory that every engine copies to and from host memory.
void use_only(EngineOptions& options, const std::vector<std::string>& via);
// The provider that it names; empty: none.
std::string provider_of(const std::string& via);

}  // namespace fairway::tool
