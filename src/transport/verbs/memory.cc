#include "transport/verbs/memory.h"

#include <cerrno>
#include <optional>
#include <string>

#include "core/bytes.h"

namespace fairway::transport::verbs {

constexpr std::size_t kKeyBytes = 12, kGpuKeyBytes = kKeyBytes + 12;

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
    if (key.word.address == 0) return Status(ErrorCode::protocol_error, "verbs: a key without its word");
  }
  if (!reader.done()) return Status(ErrorCode::protocol_error, "verbs: a key of the wrong size");
  return key;
}

Registration::~Registration() {
  for (const AtPort& each : regions) each.library->deregister(each.region);
}

Registrations::~Registrations() {
  for (const auto& slot : slots_) delete slot.load(std::memory_order_relaxed);
}

namespace {

// One region's way to one port.
struct AtPort {
  abi::MemoryRegion* region = nullptr;
  abi::MemoryRegion* for_reads = nullptr;  // null: the same
  bool writable = true;
  std::string how;  // where there was a choice
  Status status;
};

// Words that CPUs watch or that atomics change keep the order of arrival; data may be in any order before its end.
bool may_be_relaxed(const MemoryDescription& memory) {
  return !includes(memory.access, Access::atomic);
}

int rights(const MemoryDescription& memory) {
  return (includes(memory.access, Access::write) ? abi::kRemoteWrite : 0) |
         (includes(memory.access, Access::read) ? abi::kRemoteRead : 0);
}

AtPort register_gpu_part(const Port& port, const MemoryDescription& memory, const Gpu& part_of, const GpuPart& part) {
  AtPort made;
  if (!part_of.at(port.index())) {
    made.status = part_of.at(port.index());
    return made;
  }
  auto region = part.register_at(port, rights(memory) | abi::kLocalWrite, may_be_relaxed(memory), made.how);
  if (region)
    made.region = *region;
  else
    made.status = region.status();
  return made;
}

AtPort register_host(const Port& port, const MemoryDescription& memory) {
  AtPort made;
  const bool atomics = includes(memory.access, Access::atomic) && port.device().capabilities.atomics_by_cpu;
  const int access = rights(memory) | (atomics ? abi::kRemoteAtomic : 0);
  const bool written = includes(memory.access, Access::write) || includes(memory.access, Access::atomic);
  const auto attempt = [&](int more) {
    made.writable = true;
    made.region = port.register_memory(memory.address, memory.size_bytes, access | abi::kLocalWrite | more,
                                       may_be_relaxed(memory));
    if (made.region != nullptr || written) return;
    made.writable = false;  // pages that nobody may write
    made.region = port.register_memory(memory.address, memory.size_bytes, access | more, may_be_relaxed(memory));
  };
  const OnDemand wanted = port.options().on_demand;
  const bool pages = wanted != OnDemand::off && port.pages(atomics);
  if (wanted == OnDemand::always && pages) {
    attempt(abi::kOnDemand);
    if (made.region != nullptr) made.how = "on demand: its pages come as they are used";
  }
  if (made.region == nullptr) {
    attempt(0);
    if (made.region != nullptr && wanted == OnDemand::always)
      made.how = "pinned, for on demand it cannot be: " + port.why_no_pages(atomics);
  }
  if (made.region == nullptr && wanted == OnDemand::when_short && pages && (errno == ENOMEM || errno == EAGAIN)) {
    const int error = errno;
    attempt(abi::kOnDemand);
    if (made.region != nullptr)
      made.how = "on demand, for it cannot be pinned: " + port.refusal("its pages", error).message();
  }
  if (made.region == nullptr) made.status = port.refusal("the memory cannot be registered", errno);
  return made;
}

// With iWARP the answer to a read is a write by the peer. That right is of a key of its own, which nobody is told.
void register_for_reads(const Port& port, const MemoryDescription& memory, const GpuPart* part, AtPort& made) {
  if (made.region == nullptr || !port.iwarp() || !made.writable || includes(memory.access, Access::write)) return;
  const int access = rights(memory) | abi::kLocalWrite | abi::kRemoteWrite;
  if (part == nullptr) {
    made.for_reads = port.register_memory(memory.address, memory.size_bytes, access, may_be_relaxed(memory));
    if (made.for_reads == nullptr) made.status = port.refusal("the memory cannot be registered", errno);
    return;
  }
  std::string as_before;
  auto region = part->register_at(port, access, may_be_relaxed(memory), as_before);
  if (region)
    made.for_reads = *region;
  else
    made.status = region.status();
}

}  // namespace

Result<RegisteredMemory> Registrations::add(std::span<const std::unique_ptr<Port>> ports,
                                            const MemoryDescription& memory, Executor& executor) {
  const bool on_gpu = memory.kind == MemoryKind::device;
  if (memory.kind == MemoryKind::managed)
    return Status(ErrorCode::unsupported, "verbs: the driver moves managed memory about: no NIC can hold on to it");
  if (memory.id.slot >= slots_.size()) return Status(ErrorCode::invalid_argument, "verbs: no such region");
  std::vector<Port::Hold> held;
  for (const auto& port : ports) held.push_back(port->hold());
  auto made = std::make_unique<Registration>();
  made->generation = memory.id.generation;
  made->size_bytes = memory.size_bytes;
  std::optional<GpuPart> part;
  if (on_gpu) {
    const auto gpu = gpus_.of(memory.address, ports);
    if (!gpu) return gpu.status();
    made->gpu = *gpu;
    part.emplace((*gpu)->bus(), memory.address, memory.size_bytes);
    (*gpu)->bus().order_copies(memory.address);
  }
  std::vector<AtPort> each(ports.size());
  const auto work = [&](std::size_t i) {
    each[i] = part ? register_gpu_part(*ports[i], memory, *made->gpu, *part) : register_host(*ports[i], memory);
    register_for_reads(*ports[i], memory, part ? &*part : nullptr, each[i]);
  };
  if (memory.size_bytes >= kManyPages)
    executor.run_all(ports.size(), work);
  else
    for (std::size_t i = 0; i < ports.size(); ++i) work(i);
  for (std::size_t i = 0; i < ports.size(); ++i)  // before any error is returned: they end with `made`
    for (abi::MemoryRegion* region : {each[i].region, each[i].for_reads})
      if (region != nullptr) made->regions.push_back({i, &ports[i]->library(), region});
  RegisteredMemory out;
  for (std::size_t i = 0; i < ports.size(); ++i) {
    if (!each[i].status) {
      out.keys.emplace_back();
      out.refused.emplace_back(static_cast<DeviceIndex>(i), each[i].status);
      continue;
    }
    made->ports |= 1U << i;
    made->writable = made->writable && each[i].writable;
    made->lkeys[i] = each[i].region->lkey;
    made->read_lkeys[i] = each[i].for_reads != nullptr ? each[i].for_reads->lkey : made->lkeys[i];
    out.keys.push_back(encode(Key{reinterpret_cast<std::uintptr_t>(memory.address), each[i].region->rkey,
                                  on_gpu ? made->gpu->word(i) : Word()}));
    if (!each[i].how.empty()) out.how += (out.how.empty() ? "" : "; ") + ports[i]->device().name + " " + each[i].how;
  }
  if (made->ports == 0) return out.refused.front().second;
  out.handle = handle_of(memory.id);
  delete slots_[memory.id.slot].exchange(made.release(), std::memory_order_acq_rel);
  return out;
}

const Registration* Registrations::find(std::uint64_t handle) const {
  const RegionId id = region_of(handle);
  if (id.slot >= slots_.size()) return nullptr;
  const Registration* found = slots_[id.slot].load(std::memory_order_acquire);
  return found != nullptr && found->generation == id.generation ? found : nullptr;
}

std::unique_ptr<Registration> Registrations::take(std::uint64_t handle) {
  if (find(handle) == nullptr) return nullptr;
  return std::unique_ptr<Registration>(slots_[region_of(handle).slot].exchange(nullptr, std::memory_order_acq_rel));
}

std::vector<abi::MemoryRegion*> Registrations::give_up(const Port& port) {
  std::vector<abi::MemoryRegion*> all;
  gpus_.give_up(port.index(), all);
  for (const auto& slot : slots_) {
    Registration* const each = slot.load(std::memory_order_acquire);
    if (each == nullptr || !each->is_at(port.index())) continue;
    each->ports &= ~(1U << port.index());
    std::erase_if(each->regions, [&](const Registration::AtPort& part) {
      if (part.port == port.index()) all.push_back(part.region);
      return part.port == port.index();
    });
  }
  return all;
}

}  // namespace fairway::transport::verbs
