#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <unistd.h>

#include "support/cuda/exported.h"
#include "support/verbs/nic_world.h"

// The stand-in NICs' memory regions, and bytes on their way to a GPU.
namespace fairway::support::nic {

void arrive(int gpu, bool pushed) {
  std::erase_if(world().posted, [&](const OnItsWay& each) {
    if (each.gpu != gpu) return false;
    std::memcpy(each.to, each.bytes.data(), each.bytes.size());
    if (pushed) world().counts.pushed += each.bytes.size();
    return true;
  });
}

namespace {

// The CUDA driver's entry points, real or stand-in; null: no driver is in use.
template <class Call>
Call of_driver(const char* name) {
  const char* driver = std::getenv("FAIRWAY_CUDA_DRIVER");
  void* loaded = driver == nullptr ? nullptr : ::dlopen(driver, RTLD_NOW | RTLD_NOLOAD);
  if (loaded == nullptr) return nullptr;
  ::dlclose(loaded);
  return reinterpret_cast<Call>(::dlsym(loaded, name));
}

bool where(void* address, std::size_t size, standin::Exported& out) {
  const auto asks = of_driver<bool (*)(std::uint64_t, std::uint64_t, standin::Exported*)>("fairway_standin_where");
  return asks != nullptr && asks(reinterpret_cast<std::uint64_t>(address), size, &out);
}

void flushed(int gpu) {
  const std::lock_guard lock(world().mutex);
  arrive(gpu, false);
}

abi::MemoryRegion* add(abi::ProtectionDomain* domain, void* address, std::size_t size, unsigned char* bytes, int gpu,
                       int access) {
  if (settings().registering) settings().registering(size);
  if (settings().small == domain->context->device->name && size > std::atomic_ref(settings().small_takes).load()) {
    errno = ENOMEM;
    return nullptr;
  }
  if (gpu >= 0)
    if (const auto hears = of_driver<void (*)(void (*)(int))>("fairway_standin_on_flush")) hears(&flushed);
  const bool pins = gpu < 0 && (access & abi::kOnDemand) == 0;
  const std::lock_guard lock(world().mutex);
  const std::uint64_t pinned = pins ? size : 0;
  if (pinned > settings().most_pinned - std::min(world().pinned, settings().most_pinned)) {
    errno = ENOMEM;
    return nullptr;
  }
  world().pinned += pinned;
  auto* made = new Region;
  const std::uint32_t key = world().next++;
  made->region = {domain->context, domain, address, size, key, key, key};
  made->bytes = bytes;
  made->access = access;
  made->gpu = gpu;
  made->pinned = pinned;
  world().regions[key] = made;
  ++world().counts.regions;
  if ((access & abi::kOnDemand) != 0) ++world().counts.on_demand;
  return &made->region;
}

abi::MemoryRegion* register_region(abi::ProtectionDomain* domain, void* address, std::size_t size, int access) {
  if ((access & abi::kOnDemand) != 0 && (settings().paging.general == 0 || !settings().kernel_takes_on_demand)) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  standin::Exported gpu;
  if (!where(address, size, gpu)) return add(domain, address, size, static_cast<unsigned char*>(address), -1, access);
  if (!settings().peer_memory || settings().refuses_gpus == domain->context->device->name) {
    errno = EFAULT;
    return nullptr;
  }
  ++world().counts.by_peer_memory;
  return add(domain, address, size, gpu.bytes, gpu.device, access);
}

abi::MemoryRegion* register_dmabuf(abi::ProtectionDomain* domain, std::uint64_t offset, std::size_t size,
                                   std::uint64_t address, int fd, int access) {
  standin::Exported says;
  errno = settings().refuses_gpus == domain->context->device->name ? EOPNOTSUPP : settings().dmabuf_error;
  if (errno != 0) return nullptr;
  errno = EBADF;
  if (::pread(fd, &says, sizeof says, 0) != sizeof says || says.magic != standin::Exported::kMagic) return nullptr;
  errno = EINVAL;
  constexpr std::uint64_t kPage = 4096;
  const int allowed = abi::kLocalWrite | abi::kRemoteWrite | abi::kRemoteRead | abi::kRelaxedOrdering;
  const bool writes = (access & abi::kRemoteWrite) == 0 || (access & abi::kLocalWrite) != 0;
  if (size > says.size || offset > says.size - size || address % kPage != offset % kPage || (access & ~allowed) != 0 ||
      !writes)
    return nullptr;
  ++world().counts.by_dmabuf;
  return add(domain, reinterpret_cast<void*>(address), size, says.bytes + offset, says.device, access);
}

int deregister(abi::MemoryRegion* handle) {
  if (settings().deregistering) settings().deregistering(handle->length);
  if (const int error = settings().keeping ? settings().keeping(handle->length) : 0; error != 0) return error;
  const std::lock_guard lock(world().mutex);
  Region& region = of<Region>(handle);
  if (region.gpu >= 0) arrive(region.gpu, false);
  world().pinned -= region.pinned;
  world().regions.erase(handle->lkey);
  --world().counts.regions;
  delete &region;
  return 0;
}

}  // namespace

void add_memory(transport::verbs::Library& table) {
  table.register_region = &register_region;
  table.register_dmabuf = settings().dmabuf_in_library ? &register_dmabuf : nullptr;
  table.deregister = &deregister;
}

}  // namespace fairway::support::nic
