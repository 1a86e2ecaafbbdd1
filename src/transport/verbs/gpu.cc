#include "transport/verbs/gpu.h"

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include <fmt/format.h>

// Registers NVIDIA GPU memory with ports by the methods that the kernel offers, in order of preference.
namespace fairway::transport::verbs {

Gpu::Gpu(std::unique_ptr<sys::BusGpu> bus, std::size_t ports) : bus_(std::move(bus)), words_(ports) {}

Result<Word> Gpu::word_at(const Port& port) {
  const std::lock_guard lock(mutex_);
  OwnRegion& here = words_[port.index()];
  if (!here) {
    const GpuPart part(*bus_, bus_->word(), sys::BusGpu::kWordBytes);
    std::string how;
    auto region = part.register_at(port, abi::kRemoteRead | abi::kLocalWrite, false, how);
    if (!region) return region.status();
    here = std::move(*region);
  }
  return Word{reinterpret_cast<std::uintptr_t>(bus_->word()), here->rkey};
}

OwnRegion Gpu::give_up(std::size_t port) {
  const std::lock_guard lock(mutex_);
  return std::move(words_[port]);
}

GpuPart::GpuPart(const sys::BusGpu& gpu, void* address, std::size_t size)
    : address_(address), size_(size), exported_(gpu.export_dmabuf(address, size)) {}

Result<OwnRegion> GpuPart::register_at(const Port& port, int access, bool relaxed, std::string& how) const {
  const Library& library = port.library();
  std::string why;
  const EndRegion end{&library};
  if (library.register_dmabuf == nullptr) {
    why = "libibverbs.so.1 has no ibv_reg_dmabuf_mr (rdma-core 34 and newer have)";
  } else if (!exported_) {
    why = exported_.status().message() + " (NVIDIA's open kernel modules export them, from Linux 5.12 on)";
  } else {
    const auto place = reinterpret_cast<std::uintptr_t>(address_);
    const auto attempt = [&](int flags) {
      return library.register_dmabuf(port.domain(), exported_->offset, size_, place, exported_->file.get(), flags);
    };
    how = "by dma-buf";
    if (relaxed)
      if (auto* region = attempt(access | abi::kRelaxedOrdering)) return OwnRegion(region, end);
    if (auto* region = attempt(access)) return OwnRegion(region, end);
    why = "ibv_reg_dmabuf_mr: " + std::generic_category().message(errno);
  }
  how = "by nvidia_peermem; not by dma-buf: " + why;
  if (auto* region = port.register_memory(address_, size_, access, relaxed)) return OwnRegion(region, end);
  return Status(ErrorCode::unsupported,
                fmt::format("verbs: {}: GPU memory cannot be registered: by dma-buf: {}; by address: {} (is the kernel "
                            "module nvidia_peermem loaded?)",
                            port.device().name, why, std::generic_category().message(errno)));
}

Result<Gpu*> Gpus::of(const void* address, std::size_t ports) {
  auto driver = sys::CudaDriver::open();
  if (!driver) return Status(driver.status()).with_context("verbs");
  const sys::CudaPointer pointer = sys::look_at(**driver, address);
  if (pointer.kind != MemoryKind::device)
    return Status(ErrorCode::invalid_argument, "verbs: the address is not in GPU memory");
  const std::lock_guard lock(mutex_);
  const auto known = all_.find(pointer.device);
  if (known != all_.end()) return known->second.get();
  auto bus = sys::BusGpu::open(*driver, pointer.device);
  if (!bus) return Status(bus.status()).with_context("verbs");
  return all_.emplace(pointer.device, std::make_unique<Gpu>(std::move(*bus), ports)).first->second.get();
}

void Gpus::give_up(std::size_t port, std::vector<OwnRegion>& all) {
  const std::lock_guard lock(mutex_);
  for (auto& [device, gpu] : all_)
    if (auto region = gpu->give_up(port)) all.push_back(std::move(region));
}

std::optional<MemoryPlace> place_of_gpu_memory(const void* address) {
  const auto driver = sys::CudaDriver::in_use();
  if (!driver) return {};
  const sys::CudaPointer pointer = sys::look_at(*driver, address);
  if (!pointer.kind) return {};
  MemoryPlace place{*pointer.kind, {}};
  sys::cuda::Device device = 0;
  std::array<char, 32> bus_id{};
  if (place.kind == MemoryKind::device && (*driver)->cuDeviceGet(&device, pointer.device) == sys::cuda::kSuccess &&
      (*driver)->cuDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), device) == sys::cuda::kSuccess)
    place.gpu = bus_id.data();
  return place;
}

}  // namespace fairway::transport::verbs
