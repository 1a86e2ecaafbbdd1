#include "via.h"

#include <algorithm>

namespace fairway::tool {

std::string provider_of(const std::string& via) {
  return via.starts_with("fabric:") ? via.substr(7) : std::string();
}

void use_only(EngineOptions& options, const std::vector<std::string>& via) {
  for (const std::string& each : via) {
    const std::string provider = provider_of(each);
    const std::string transport = provider.empty() ? each : "fabric";
    if (!provider.empty()) options.providers.push_back(provider);
    if (std::find(options.transports.begin(), options.transports.end(), transport) == options.transports.end())
      options.transports.push_back(transport);
  }
}

}  // namespace fairway::tool
