#pragma once

#include <memory>
#include <string>

#include "conformance/fabric_shim.h"
#include "conformance/world.h"

namespace fairway::conformance {

// Two sides over one of libfabric's providers; null: no libfabric on this machine.
std::unique_ptr<World> make_fabric_world(const std::string& provider, const ShimSetting& setting);

}  // namespace fairway::conformance
