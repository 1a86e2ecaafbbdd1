#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/runtime.h"
#include "transport/fabric/domain.h"
#include "transport/handles.h"
#include "transport/transport.h"

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

// A region's registrations, one for each domain that took it; empty where the provider binds memory to endpoints.
// Immutable.
struct Registration {
  MemoryDescription memory;
  std::uint64_t domains = 0;  // a bit for each that took it, or will when a link first uses it
  [[nodiscard]] bool is_at(std::size_t domain) const { return (domains >> domain & 1) != 0; }
  std::vector<Registered> with;
};

// From so many bytes on what pins or unpins a region's pages takes longer than handing it to another thread.
inline constexpr std::uint64_t kManyPages = std::uint64_t{16} << 20;

// The registrations by their region's slot. add() on any thread; find() and take() are the worker's. A slot gets a
// new one only after its last was taken, as the contract has it.
class Registrations {
 public:
  explicit Registrations(std::uint32_t capacity) : slots_(capacity) {}
  ~Registrations();

  // Registers the memory with each domain, with all of them at once where there is much of it; the keys are in their
  // order. Refused where no domain takes it.
  Result<RegisteredMemory> add(std::span<const std::unique_ptr<Domain>> domains, const MemoryDescription& memory,
                               Runtime& runtime);
  [[nodiscard]] const Registration* find(std::uint64_t handle) const;  // null: not registered
  // The end of what is given ends all access.
  std::unique_ptr<Registration> take(std::uint64_t handle);

 private:
  std::vector<std::atomic<Registration*>> slots_;  // owns what is in it
};

}  // namespace fairway::transport::fabric
