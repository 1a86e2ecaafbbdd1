#include "transport/cuda/cuda.h"

#include <utility>

#include "transport/cuda/mover.h"
#include "transport/host/transport.h"

namespace fairway::transport {
namespace {

// What stands for the transport where there is no driver: it says why, and does nothing.
class NoCuda final : public host::HostTransport {
 public:
  NoCuda(RegionTable& regions, Runtime& runtime, Status why)
      : HostTransport(regions, runtime, {}), why_(std::move(why)) {}
  Status probe() override { return why_; }

 private:
  Status why_;
};

}  // namespace

std::unique_ptr<Transport> make_cuda_transport(RegionTable& regions, Runtime& runtime) {
  auto driver = sys::CudaDriver::open();
  if (!driver) return std::make_unique<NoCuda>(regions, runtime, driver.status());
  host::HostOptions with;
  with.name = "cuda";
  with.device = "gpus";
  with.max_slice_bytes = with.piece_bytes = std::uint64_t{256} << 20;
  with.piece_blocks = 16384;
  return std::make_unique<host::HostTransport>(regions, runtime, std::move(with),
                                               std::make_unique<cuda::CudaMover>(runtime, std::move(*driver)));
}

}  // namespace fairway::transport
