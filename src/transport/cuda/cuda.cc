#include "transport/cuda/cuda.h"

#include <utility>

#include "transport/cuda/mover.h"
#include "transport/host/transport.h"

namespace fairway::transport {

namespace {

Result<std::unique_ptr<Transport>> open_with_driver(RegionTable& regions, Runtime& runtime, host::HostOptions with,
                                                    bool keep_awake = false) {
  with.device = "gpus";
  auto driver = sys::CudaDriver::open();
  if (!driver) return driver.status();
  with.max_slice_bytes = std::uint64_t{256} << 20;
  with.max_slice_blocks = 16384;
  return host::open(regions, runtime, std::move(with),
                    std::make_unique<cuda::CudaMover>(runtime, std::move(*driver), keep_awake));
}

}  // namespace

Result<std::unique_ptr<Transport>> open_cuda_transport(RegionTable& regions, Runtime& runtime, bool strict,
                                                       bool keep_awake) {
  if (strict)
    return Status(
        ErrorCode::unsupported,
        "cuda: the driver opens whole allocations of a peer's, which EngineOptions::strict_isolation forbids");
  host::HostOptions with;
  with.name = "cuda";
  return open_with_driver(regions, runtime, std::move(with), keep_awake);
}

Result<std::unique_ptr<Transport>> open_staging_transport(RegionTable& regions, Runtime& runtime) {
  host::HostOptions with;
  with.name = "staged";
  with.links = false;
  return open_with_driver(regions, runtime, std::move(with));
}

}  // namespace fairway::transport
