#pragma once

#include <string>
#include <vector>

#include "fairway/options.h"

namespace fairway::tool {

// What --via names: transports, and with "fabric:PROVIDER" one of libfabric's providers besides.
void use_only(EngineOptions& options, const std::vector<std::string>& via);
// The provider that it names; empty: none.
std::string provider_of(const std::string& via);

}  // namespace fairway::tool
