#include "transport/fabric/memory.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/bytes.h"
#include "sys/cuda_memory.h"

namespace fairway::transport::fabric {
namespace {

constexpr int kKeyTries = 8;  // to find a free key
constexpr std::uint8_t kByLink = 1;

std::uint64_t access_of(Access access, bool writable) {
  std::uint64_t flags = FI_WRITE | (writable ? FI_READ : 0);  // local memory of writes and, if writable, reads
  if (includes(access, Access::write)) flags |= FI_REMOTE_WRITE;
  if (includes(access, Access::read)) flags |= FI_REMOTE_READ;
  return flags;
}

// The GPU's index in the driver.
Result<int> gpu_of(const std::byte* address) {
  auto driver = sys::CudaDriver::open();
  if (!driver) return driver.status();
  const sys::CudaPointer pointer = sys::look_at(**driver, address);
  if (pointer.device < 0) return Status(ErrorCode::invalid_argument, "the address is not in GPU memory");
  return pointer.device;
}

}  // namespace

std::vector<std::byte> encode(const Key& key) {
  std::vector<std::byte> bytes(17);
  ByteWriter(bytes).put(key.address).put(key.key).put(key.by_link ? kByLink : std::uint8_t{0});
  return bytes;
}

Result<Key> decode_key(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Key key;
  key.address = reader.get<std::uint64_t>();
  key.key = reader.get<std::uint64_t>();
  const auto flags = reader.get<std::uint8_t>();
  key.by_link = flags == kByLink;
  if (!reader.done() || flags > kByLink) return Status(ErrorCode::protocol_error, "fabric: malformed key");
  return key;
}

Result<Registered> register_with(const Domain& domain, const Region& memory, Rng& random, fid_ep* end) {
  iovec place{memory.address, memory.size_bytes};
  fi_mr_attr attributes{};
  attributes.mr_iov = &place;
  attributes.iov_count = 1;
  if (memory.kind == MemoryKind::device) {
    const auto gpu = gpu_of(memory.address);
    if (!gpu) return Status(gpu.status()).with_context("fabric: " + domain.device().name);
    attributes.iface = FI_HMEM_CUDA;
    attributes.device.cuda = *gpu;
  }
  const bool written = includes(memory.access, Access::write) || includes(memory.access, Access::atomic);
  Registered made;
  int result = 0;
  for (const bool writable : {true, false}) {
    if (!writable && written) break;  // otherwise the pages may be read-only
    attributes.access = access_of(memory.access, writable);
    for (int i = 0; i < kKeyTries; ++i) {
      std::uint64_t chance = 0;
      random.fill(std::as_writable_bytes(std::span(&chance, 1)));
      attributes.requested_key = domain.has_mode(FI_MR_PROV_KEY) ? 0 : domain.requested_key(chance);
      fid_mr* region = nullptr;
      result = domain.calls().register_memory(domain.get(), &attributes, &region);
      if (result == 0) made.region.reset(region);
      if (result != -FI_ENOKEY) break;
    }
    if (result == 0) break;
  }
  if (result == 0 && end != nullptr) result = domain.calls().bind(made.region.get(), end);
  if (result == 0) return made;
  const bool limit = result == -FI_ENOMEM || result == -FI_EAGAIN;
  return Status(limit ? ErrorCode::resource_exhausted : ErrorCode::system_error,
                fmt::format("fabric: {} cannot register the memory: {}{}", domain.device().name, domain.text(result),
                            limit ? ": raise the limit of locked memory (ulimit -l, LimitMEMLOCK=)" : ""));
}

Status Registration::end(std::span<const std::unique_ptr<Domain>> of) {
  Status status;
  for (std::size_t i = 0; i < with.size(); ++i)
    if (const int result = close(with[i].region); result != 0)
      status = {ErrorCode::not_fenced, fmt::format("fabric: {}: its provider does not end the registration: {}",
                                                   of[i]->device().name, of[i]->text(result))};
  return status;
}

Registrations::~Registrations() {
  for (const auto& slot : slots_) delete slot.load(std::memory_order_relaxed);
}

Result<const sys::BusGpu*> Registrations::gpu_of(const std::byte* address) {
  const auto device = fabric::gpu_of(address);
  if (!device) return Status(device.status()).with_context("fabric");
  auto driver = sys::CudaDriver::open();
  if (!driver) return Status(driver.status()).with_context("fabric");
  const std::lock_guard lock(gpus_mutex_);
  const auto known = gpus_.find(*device);
  if (known != gpus_.end()) return known->second.get();
  auto made = sys::BusGpu::open(*driver, *device);
  if (!made) return Status(made.status()).with_context("fabric");
  return gpus_.emplace(*device, std::move(*made)).first->second.get();
}

Result<RegisteredMemory> Registrations::add(std::span<const std::unique_ptr<Domain>> domains, const Region& memory,
                                            Runtime& runtime) {
  const bool host = memory.kind == MemoryKind::host || memory.kind == MemoryKind::pinned;
  if (memory.id.slot >= slots_.size()) return Status(ErrorCode::invalid_argument, "fabric: no such region");
  auto made = std::make_unique<Registration>();
  made->memory = memory;
  made->with.resize(domains.size());
  const bool by_gpu = memory.kind == MemoryKind::device &&
                      std::ranges::any_of(domains, [](const auto& domain) { return domain->moves_gpu_memory(); });
  if (by_gpu) {
    const auto gpu = gpu_of(memory.address);
    if (!gpu) return gpu.status();
    made->gpu = *gpu;
    made->gpu->order_copies(memory.address);
  }
  std::vector<Status> refused(domains.size());
  const auto work = [&](std::size_t i) {
    const Domain& domain = *domains[i];
    if (!host && !(memory.kind == MemoryKind::device && domain.moves_gpu_memory())) {
      refused[i] = Status(ErrorCode::unsupported, "fabric: " + domain.device().name + " registers host memory only");
    } else if (!domain.has_mode(FI_MR_ENDPOINT)) {
      auto registered = register_with(domain, memory, runtime.rng, nullptr);
      refused[i] = registered.status();
      if (registered) made->with[i] = std::move(*registered);
    }
  };
  if (memory.size_bytes >= kManyPages)
    runtime.executor.run_all(domains.size(), work);
  else
    for (std::size_t i = 0; i < domains.size(); ++i) work(i);
  RegisteredMemory out;
  for (std::size_t i = 0; i < domains.size(); ++i) {
    if (!refused[i]) {
      out.keys.emplace_back();
      made->refused.emplace_back(static_cast<DeviceIndex>(i), refused[i]);
      continue;
    }
    made->domains |= std::uint64_t{1} << i;
    Key key;
    key.address = domains[i]->has_mode(FI_MR_VIRT_ADDR) ? reinterpret_cast<std::uintptr_t>(memory.address) : 0;
    key.by_link = domains[i]->has_mode(FI_MR_ENDPOINT);
    if (!key.by_link) key.key = made->with[i].key();
    out.keys.push_back(encode(key));
  }
  if (made->domains == 0) return made->refused.front().second;
  out.handle = handle_of(memory.id);
  delete slots_[memory.id.slot].exchange(made.release(), std::memory_order_acq_rel);
  return out;
}

const Registration* Registrations::find(std::uint64_t handle) const {
  const RegionId id = region_of(handle);
  if (id.slot >= slots_.size()) return nullptr;
  const Registration* found = slots_[id.slot].load(std::memory_order_acquire);
  return found != nullptr && found->memory.id.generation == id.generation ? found : nullptr;
}

std::unique_ptr<Registration> Registrations::take(std::uint64_t handle) {
  if (find(handle) == nullptr) return nullptr;
  return std::unique_ptr<Registration>(slots_[region_of(handle).slot].exchange(nullptr, std::memory_order_acq_rel));
}

}  // namespace fairway::transport::fabric
