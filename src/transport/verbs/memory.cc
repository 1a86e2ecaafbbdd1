#include "transport/verbs/memory.h"

#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/bytes.h"

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

constexpr std::size_t kKeyBytes = 12, kGpuKeyBytes = kMaxKeyBytes;

std::vector<std::byte> encode(const Key& key) {
  std::vector<std::byte> bytes(key.word.address == 0 ? kKeyBytes : kGpuKeyBytes);
  ByteWriter writer(bytes);
  writer.put(key.address).put(key.rkey);
  if (key.word.address != 0) writer.put(key.word.address).put(key.word.rkey);
  return bytes;
}

Result<Key> decode_key(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Key key;
  key.address = reader.get<std::uint64_t>();
  key.rkey = reader.get<std::uint32_t>();
  if (bytes.size() == kGpuKeyBytes) {
    key.word.address = reader.get<std::uint64_t>();
    key.word.rkey = reader.get<std::uint32_t>();
    if (key.word.address == 0) return Status(ErrorCode::protocol_error, "verbs: malformed key: no flush word");
  }
  if (!reader.done()) return Status(ErrorCode::protocol_error, "verbs: malformed key: wrong length");
  return key;
}

Registrations::~Registrations() {
  for (const auto& slot : slots_) delete slot.load(std::memory_order_relaxed);
}

namespace {

// Relaxed ordering is only for data. Words that CPUs poll, or that atomics change, need strict ordering.
bool may_be_relaxed(const Region& memory) {
  return !includes(memory.access, Access::atomic);
}

int rights(const Region& memory) {
  return (includes(memory.access, Access::write) ? abi::kRemoteWrite : 0) |
         (includes(memory.access, Access::read) ? abi::kRemoteRead : 0);
}

void register_gpu_part(const Port& port, const GpuPart& part, Placing& made) {
  const auto word = made.gpu->word_at(port);
  made.status = word.status();
  if (!word) return;
  made.word = *word;
  auto region = part.register_at(port, rights(made.memory) | abi::kLocalWrite, may_be_relaxed(made.memory), made.how);
  made.status = region.status();
  if (region) made.region = std::move(*region);
}

void register_host(const Port& port, Placing& made) {
  const Region& memory = made.memory;
  const bool atomics = includes(memory.access, Access::atomic) && port.has_atomics();
  const int access = rights(memory) | (atomics ? abi::kRemoteAtomic : 0);
  const bool written = includes(memory.access, Access::write) || includes(memory.access, Access::atomic);
  const auto registered = [&](int with) {
    return OwnRegion(port.register_memory(memory.address, memory.size_bytes, with, may_be_relaxed(memory)),
                     {&port.library()});
  };
  const auto attempt = [&](int more) {
    made.writable = true;
    made.region = registered(access | abi::kLocalWrite | more);
    if (made.region || written) return;
    made.writable = false;  // read-only pages
    made.region = registered(access | more);
  };
  const OnDemand wanted = port.options().on_demand;
  const bool pages = wanted != OnDemand::off && port.pages(atomics);
  if (wanted == OnDemand::always && pages) {
    attempt(abi::kOnDemand);
    if (made.region) made.how = "on-demand paging";
  }
  if (!made.region) {
    attempt(0);
    if (made.region && wanted == OnDemand::always)
      made.how = "pinned; no on-demand paging: " + port.why_no_pages(atomics);
  }
  if (!made.region && wanted == OnDemand::when_short && pages && (errno == ENOMEM || errno == EAGAIN)) {
    const int error = errno;
    attempt(abi::kOnDemand);
    if (made.region) made.how = "on-demand paging; pinning failed: " + port.refusal("its pages", error).message();
  }
  made.status = made.region ? Status() : port.refusal("the memory cannot be registered", errno);
}

// iWARP answers a read with an RDMA write, so the local memory of reads needs remote write access. It gets a key of its
// own, which is not told to anyone.
void register_for_reads(const Port& port, const GpuPart* part, Placing& made) {
  const Region& memory = made.memory;
  if (!made.region || !port.iwarp() || !made.writable || includes(memory.access, Access::write)) return;
  const int access = rights(memory) | abi::kLocalWrite | abi::kRemoteWrite;
  if (part == nullptr) {
    made.for_reads.reset(port.register_memory(memory.address, memory.size_bytes, access, may_be_relaxed(memory)));
    made.for_reads.get_deleter().library = &port.library();
    if (!made.for_reads) made.status = port.refusal("the memory cannot be registered", errno);
    return;
  }
  std::string as_before;
  auto region = part->register_at(port, access, may_be_relaxed(memory), as_before);
  made.status = region.status();
  if (region) made.for_reads = std::move(*region);
}

void place(const Port& port, const GpuPart* part, Placing& made) {
  if (part != nullptr)
    register_gpu_part(port, *part, made);
  else
    register_host(port, made);
  register_for_reads(port, part, made);
}

// Takes over the result of place().
Key settle_at(std::size_t port, Placing& placed, Registration& at) {
  at.ports |= 1U << port;
  at.writable = at.writable && placed.writable;
  at.lkeys[port] = placed.region->lkey;
  at.read_lkeys[port] = placed.for_reads ? placed.for_reads->lkey : at.lkeys[port];
  const Key key{reinterpret_cast<std::uintptr_t>(at.memory.address), placed.region->rkey, placed.word};
  at.regions.push_back({port, std::move(placed.region), std::move(placed.for_reads)});
  return key;
}

}  // namespace

void place(const Port& port, Placing& placing) {
  std::optional<GpuPart> part;
  if (placing.gpu != nullptr) part.emplace(placing.gpu->bus(), placing.memory.address, placing.memory.size_bytes);
  place(port, part ? &*part : nullptr, placing);
}

Result<RegisteredMemory> Registrations::add(std::span<const std::unique_ptr<Port>> ports, const Region& memory,
                                            Executor& executor) {
  const bool on_gpu = memory.kind == MemoryKind::device;
  if (memory.kind == MemoryKind::managed)
    return Status(ErrorCode::unsupported, "verbs: managed memory cannot be registered, since the driver migrates it");
  if (memory.id.slot >= slots_.size()) return Status(ErrorCode::invalid_argument, "verbs: no such region");
  std::vector<Port::Hold> held;
  for (const auto& port : ports) held.push_back(port->hold());
  auto made = std::make_unique<Registration>();
  made->memory = memory;
  std::optional<GpuPart> part;
  if (on_gpu) {
    const auto gpu = gpus_.of(memory.address, ports.size());
    if (!gpu) return gpu.status();
    made->gpu = *gpu;
    part.emplace((*gpu)->bus(), memory.address, memory.size_bytes);
    (*gpu)->bus().order_copies(memory.address);
  }
  std::vector<Placing> each(ports.size());  // its destructor ends registrations that were not taken over
  const auto work = [&](std::size_t i) {
    each[i].memory = made->memory;
    each[i].gpu = made->gpu;
    if (held[i])
      place(*ports[i], part ? &*part : nullptr, each[i]);
    else
      each[i].status = ports[i]->refusal("the memory cannot be registered", ENODEV);
  };
  if (memory.size_bytes >= kManyPages)
    executor.run_all(ports.size(), work);
  else
    for (std::size_t i = 0; i < ports.size(); ++i) work(i);
  RegisteredMemory out;
  for (std::size_t i = 0; i < ports.size(); ++i) {
    if (!each[i].status) {
      out.keys.emplace_back();
      made->refused.emplace_back(static_cast<DeviceIndex>(i), each[i].status);
      if (!held[i]) made->missed |= 1U << i;
      continue;
    }
    out.keys.push_back(encode(settle_at(i, each[i], *made)));
    if (each[i].how.empty()) continue;
    made->how += (made->how.empty() ? "" : "; ") + ports[i]->device().name + " " + each[i].how;
  }
  if (made->ports == 0 && made->missed == 0) return made->refused.front().second;
  out.handle = handle_of(memory.id);
  const bool without = made->missed != 0;
  delete slots_[memory.id.slot].exchange(made.release(), std::memory_order_acq_rel);
  if (without) added_without_.fetch_add(1, std::memory_order_acq_rel);
  return out;
}

std::unique_ptr<Registration> Registrations::take(std::uint64_t handle) {
  if (find(handle) == nullptr) return nullptr;
  return std::unique_ptr<Registration>(slots_[region_of(handle).slot].exchange(nullptr, std::memory_order_acq_rel));
}

Status Registration::end(std::span<const std::unique_ptr<Port>> of) {
  Status status;
  std::erase_if(regions, [&](AtPort& at) {
    bool ended = true;
    for (OwnRegion* each : {&at.for_reads, &at.region}) {
      Status one = of[at.port]->not_ended("ibv_dereg_mr", verbs::end(*each));
      ended &= one.is_ok();
      if (!one) status = std::move(one);
    }
    return ended;
  });
  return status;
}

std::vector<OwnRegion> Registrations::give_up_words(std::size_t port) {
  std::vector<OwnRegion> all;
  gpus_.give_up(port, all);
  return all;
}

std::vector<OwnRegion> Registrations::give_up(const Port& port) {
  std::vector<OwnRegion> all = give_up_words(port.index());
  for (const auto& slot : slots_) {
    Registration* const each = slot.load(std::memory_order_acquire);
    if (each == nullptr || !each->is_at(port.index())) continue;
    each->ports &= ~(1U << port.index());
    each->lost |= 1U << port.index();
    std::erase_if(each->regions, [&](Registration::AtPort& part) {
      if (part.port != port.index()) return false;
      all.push_back(std::move(part.region));
      if (part.for_reads) all.push_back(std::move(part.for_reads));
      return true;
    });
  }
  return all;
}

std::vector<Placing> Registrations::missing_at(std::size_t port) const {
  std::vector<Placing> all;
  for (const auto& slot : slots_) {
    const Registration* const each = slot.load(std::memory_order_acquire);
    if (each == nullptr || ((each->lost | each->missed) >> port & 1) == 0) continue;
    Placing& placing = all.emplace_back();
    placing.handle = handle_of(each->memory.id);
    placing.memory = each->memory;
    placing.gpu = each->gpu;
    placing.had = (each->lost >> port & 1) != 0;
  }
  return all;
}

std::optional<Key> Registrations::settle(std::size_t port, Placing& placing) {
  Registration* const at = this->at(placing.handle);
  if (at == nullptr) return std::nullopt;
  at->lost &= ~(1U << port);
  at->missed &= ~(1U << port);
  if (!placing.status) return std::nullopt;
  const Key key = settle_at(port, placing, *at);
  std::erase_if(at->renewed, [&](const auto& each) { return each.first == port; });
  at->renewed.emplace_back(port, key);
  return key;
}

std::vector<RenewedKey> Registrations::renewed_at(std::size_t port) const {
  std::vector<RenewedKey> all;
  for (const auto& slot : slots_)
    if (const Registration* const each = slot.load(std::memory_order_acquire); each != nullptr)
      for (const auto& [at, key] : each->renewed)
        if (at == port) all.push_back({handle_of(each->memory.id), key});
  return all;
}

}  // namespace fairway::transport::verbs
