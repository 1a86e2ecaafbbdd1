#include "transport/fabric/fabric.h"

// For builds without libfabric's headers.
namespace fairway::transport {

Result<std::unique_ptr<Transport>> open_fabric_transport(RegionTable&, Runtime&, const FabricOptions&) {
  return Status(ErrorCode::unsupported,
                "fabric: this build has no libfabric support: install libfabric-dev and build again");
}

}  // namespace fairway::transport
