#pragma once

#include <array>
#include <memory>
#include <string>

#include "conformance/fabric_shim.h"
#include "conformance/world.h"

namespace fairway::conformance {

// Two sides over one of libfabric's providers.
struct FabricSetting {
  std::string provider;
  ShimSetting shim{};
  std::array<std::string, 2> domains{};  // of each side, by name; empty: all that may listen
  std::string listen_host = "127.0.0.1";
};

// Null: no libfabric on this machine.
std::unique_ptr<World> make_fabric_world(const FabricSetting& setting);

}  // namespace fairway::conformance
