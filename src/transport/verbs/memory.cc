#include "transport/verbs/memory.h"

#include <cerrno>

#include "core/bytes.h"

namespace fairway::transport::verbs {

std::vector<std::byte> encode(const Key& key) {
  std::vector<std::byte> bytes(kKeyBytes);
  ByteWriter(bytes).put(key.address).put(key.rkey);
  return bytes;
}

Result<Key> decode_key(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Key key;
  key.address = reader.get<std::uint64_t>();
  key.rkey = reader.get<std::uint32_t>();
  if (!reader.done()) return Status(ErrorCode::protocol_error, "verbs: a key of the wrong size");
  return key;
}

Registration::~Registration() {
  for (const auto& [library, region] : regions) library->deregister(region);
}

Registrations::~Registrations() {
  for (const auto& slot : slots_) delete slot.load(std::memory_order_relaxed);
}

Result<RegisteredMemory> Registrations::add(std::span<const std::unique_ptr<Port>> ports,
                                            const MemoryDescription& memory) {
  if (memory.kind != MemoryKind::host && memory.kind != MemoryKind::pinned)
    return Status(ErrorCode::unsupported, "verbs registers host memory only");
  if (memory.id.slot >= slots_.size()) return Status(ErrorCode::invalid_argument, "verbs: no such region");
  auto made = std::make_unique<Registration>();
  made->generation = memory.id.generation;
  int access = 0;
  if (includes(memory.access, Access::write)) access |= abi::kRemoteWrite;
  if (includes(memory.access, Access::read)) access |= abi::kRemoteRead;
  const bool written = includes(memory.access, Access::write) || includes(memory.access, Access::atomic);
  // Words that CPUs watch or that atomics change keep the order of arrival; data may be in any order before its end.
  const bool relaxed = !includes(memory.access, Access::atomic);
  RegisteredMemory out;
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const bool atomics = includes(memory.access, Access::atomic) && ports[i]->device().capabilities.atomics_by_cpu;
    const auto attempt = [&](int flags) {
      if (atomics) flags |= abi::kRemoteAtomic;
      return ports[i]->register_memory(memory.address, memory.size_bytes, flags, relaxed);
    };
    abi::MemoryRegion* region = made->writable ? attempt(access | abi::kLocalWrite) : attempt(access);
    if (region == nullptr && !written && made->writable) {  // pages that nobody may write
      region = attempt(access);
      made->writable = region == nullptr;
    }
    if (region == nullptr) return ports[i]->refusal("the memory cannot be registered", errno);
    made->regions.emplace_back(&ports[i]->library(), region);
    made->lkeys[i] = region->lkey;
    out.keys.push_back(encode(Key{reinterpret_cast<std::uintptr_t>(memory.address), region->rkey}));
  }
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

void Registrations::remove(std::uint64_t handle) {
  if (find(handle) != nullptr) delete slots_[region_of(handle).slot].exchange(nullptr, std::memory_order_acq_rel);
}

}  // namespace fairway::transport::verbs
