#include "transport/cuda/cuda.h"

#include <utility>

#include "transport/cuda/mover.h"
#include "transport/host/transport.h"

namespace fairway::transport {

namespace {

std::unique_ptr<Transport> make(RegionTable& regions, Runtime& runtime, host::HostOptions with) {
  with.device = "gpus";
  auto driver = sys::CudaDriver::open();
  if (!driver) {
    with.usable = driver.status();
    return std::make_unique<host::HostTransport>(regions, runtime, std::move(with));
  }
  with.max_slice_bytes = with.piece_bytes = std::uint64_t{256} << 20;
  with.piece_blocks = 16384;
  return std::make_unique<host::HostTransport>(regions, runtime, std::move(with),
                                               std::make_unique<cuda::CudaMover>(runtime, std::move(*driver)));
}

}  // namespace

std::unique_ptr<Transport> make_cuda_transport(RegionTable& regions, Runtime& runtime, bool strict) {
  host::HostOptions with;
  with.name = "cuda";
  if (!strict) return make(regions, runtime, std::move(with));
  with.usable = {ErrorCode::unsupported,
                 "cuda: the driver opens whole allocations of a peer's, which EngineOptions::strict_isolation forbids"};
  return std::make_unique<host::HostTransport>(regions, runtime, std::move(with));
}

std::unique_ptr<Transport> make_staging_transport(RegionTable& regions, Runtime& runtime) {
  host::HostOptions with;
  with.name = "staged";
  with.links = false;
  return make(regions, runtime, std::move(with));
}

}  // namespace fairway::transport
