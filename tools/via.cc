#include "via.h"

#include <algorithm>

namespace fairway::tool {

std::string provider_of(const std::string& via) {
  return via.starts_with("fabric:") ? via.substr(7) : std::string();
}

void use_only(EngineOptions& options, const std::vector<std::string>& via) {
  const auto add = [&](const std::string& name) {
    if (std::ranges::find(options.transports, name) == options.transports.end()) options.transports.push_back(name);
  };
  for (const std::string& named : via) {
    const bool staged = named == "staged" || named.starts_with("staged:");
    if (staged) add("staged");
    const std::string each = !staged ? named : named == "staged" ? "shm" : named.substr(7);
    const std::string provider = provider_of(each);
    if (!provider.empty()) options.providers.push_back(provider);
    add(provider.empty() ? each : "fabric");
  }
}

}  // namespace fairway::tool
