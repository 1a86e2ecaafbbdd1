#include "gpu_machine.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "gpu.h"

namespace fairway::tool::bench {

Result<std::string> bus_id_of(int device) {
  auto gpu = Gpu::open();
  if (!gpu) return gpu.status();
  char id[32] = {};
  const sys::CudaDriver& cu = (*gpu)->driver();
  if (device >= (*gpu)->count())
    return Status(ErrorCode::not_found, fmt::format("there is no GPU {} here: {} in all", device, (*gpu)->count()));
  if (Status status = cu.check(cu->cuDeviceGetPCIBusId(id, sizeof id, device), "where a GPU is"); !status)
    return status;
  return std::string(id);
}

std::optional<predict::Endpoint> gpu_of(const topology::Machine& machine, int device) {
  const auto id = bus_id_of(device);
  const auto wanted = id ? topology::BusId::parse(*id) : std::nullopt;
  const auto found = std::ranges::find_if(
      machine.gpus, [&](const auto& gpu) { return wanted && gpu.pci && machine.pci[gpu.pci.index].bus_id == *wanted; });
  if (found == machine.gpus.end()) return {};
  return predict::Endpoint{predict::EndpointKind::gpu, static_cast<std::uint32_t>(found - machine.gpus.begin()), {}};
}

}  // namespace fairway::tool::bench
