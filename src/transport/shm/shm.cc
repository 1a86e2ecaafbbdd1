#include "transport/shm/shm.h"

#include "transport/host/transport.h"

namespace fairway::transport {

Result<std::unique_ptr<Transport>> open_shm_transport(RegionTable& regions, Runtime& runtime,
                                                      const ShmOptions& options) {
  host::HostOptions with;
  with.name = "shm";
  with.device = "memory";
  with.map = options.map;
  with.cma = options.cma;
  return host::open(regions, runtime, std::move(with));
}

}  // namespace fairway::transport
