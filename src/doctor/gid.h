#pragma once

#include "topology/network.h"

namespace fairway::doctor {

// Whether routers forward packets to this GID: RoCE v2 with an address that is not link-local.
inline bool is_routable(const topology::Gid& gid) {
  const auto scope = gid.scope.value_or("");
  return gid.type.value_or("") == "RoCE v2" && (scope == "IPv4" || scope == "IPv6");
}

}  // namespace fairway::doctor
