#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/runtime.h"
#include "transport/fabric/domain.h"
#include "transport/handles.h"
#include "transport/memory.h"

namespace fairway::transport::fabric {

// What a peer needs to know of a region, for one domain of its owner.
struct Key {
  std::uint64_t address = 0;  // of its first byte, or 0 where the provider counts from there
  std::uint64_t key = 0;
  bool by_link = false;  // the provider binds memory to endpoints: each link has a key of its own, which is asked for
};
std::vector<std::byte> encode(const Key& key);
Result<Key> decode_key(std::span<const std::byte> bytes);

// A region with a domain, or with one end of it.
struct Registered {
  Owned<fid_mr> region;
  [[nodiscard]] void* descriptor() const { return region ? ::fi_mr_desc(region.get()) : nullptr; }
  [[nodiscard]] std::uint64_t key() const { return ::fi_mr_key(region.get()); }
};
// Any thread. `random` where keys are ours to choose; `end`: what it is bound to, where the provider wants that.
Result<Registered> register_with(const Domain& domain, const MemoryDescription& memory, Rng& random, fid_ep* end);

// A region's registrations, one for each domain; empty where the provider binds memory to endpoints. Immutable.
struct Registration {
  MemoryDescription memory;
  std::vector<Registered> with;
};

// The registrations by their region's slot. add() on any thread; find() and remove() are the worker's. A slot gets a
// new one only after its last was removed, as the contract has it.
class Registrations {
 public:
  explicit Registrations(std::uint32_t capacity) : slots_(capacity) {}
  ~Registrations();

  // Registers the memory with each domain; the keys are in their order.
  Result<RegisteredMemory> add(std::span<const std::unique_ptr<Domain>> domains, const MemoryDescription& memory,
                               Rng& random);
  [[nodiscard]] const Registration* find(std::uint64_t handle) const;  // null: not registered
  void remove(std::uint64_t handle);

 private:
  std::vector<std::atomic<Registration*>> slots_;  // owns what is in it
};

}  // namespace fairway::transport::fabric
