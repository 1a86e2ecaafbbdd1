#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/runtime.h"
#include "sys/cuda_memory.h"
#include "transport/command.h"
#include "transport/fabric/domain.h"
#include "transport/keyed_memory.h"
#include "transport/transport.h"

namespace fairway::transport::fabric {

// What a peer needs to access a region through one domain of its owner.
struct Key {
  std::uint64_t address = 0;  // of its first byte; 0 if the provider uses offsets
  std::uint64_t key = 0;
  bool by_link = false;  // FI_MR_ENDPOINT: each link has its own key, which must be requested
};
std::vector<std::byte> encode(const Key& key);
Result<Key> decode_key(std::span<const std::byte> bytes);

// A region registered with a domain or with one of its endpoints.
struct Registered {
  Owned<fid_mr> region;
  [[nodiscard]] void* descriptor() const { return region ? ::fi_mr_desc(region.get()) : nullptr; }
  [[nodiscard]] std::uint64_t key() const { return ::fi_mr_key(region.get()); }
};
// Any thread. `random`: for keys that the user chooses; `end`: the endpoint to bind it to, or null.
Result<Registered> register_with(const Domain& domain, const Region& memory, Rng& random, fid_ep* end);

// A region's registrations, one for each domain that accepted it; empty with FI_MR_ENDPOINT. Immutable until it ends.
struct Registration {
  Region memory;
  const sys::BusGpu* gpu = nullptr;  // of its memory; null: host memory
  std::uint64_t domains = 0;         // one bit per domain that accepted it, or will at the first use by a link
  [[nodiscard]] bool is_at(std::size_t domain) const { return (domains >> domain & 1) != 0; }
  std::vector<Registered> with;
  Refusals refused;
  // Ends all access. Not ok: a provider refused, and what it has is kept.
  Status end(std::span<const std::unique_ptr<Domain>> of);
};

// From this size on, pinning or unpinning pages takes longer than handing it to another thread.
inline constexpr std::uint64_t kManyPages = std::uint64_t{16} << 20;

// The registrations by their region's slot. add() runs on any thread; find() and take() on the worker. A slot is reused
// only after take(), by the contract.
class Registrations {
 public:
  explicit Registrations(std::uint32_t capacity) : slots_(capacity) {}
  ~Registrations();

  // Registers the memory with each domain, in parallel if it is large; keys are in the order of domains. Fails if no
  // domain accepts it.
  Result<RegisteredMemory> add(std::span<const std::unique_ptr<Domain>> domains, const Region& memory,
                               Runtime& runtime);
  [[nodiscard]] const Registration* find(std::uint64_t handle) const;  // null: not registered
  std::unique_ptr<Registration> take(std::uint64_t handle);

 private:
  // The GPU of the address; kept until this is destroyed. One that failed is tried again for the next region.
  Result<const sys::BusGpu*> gpu_of(const std::byte* address);

  std::mutex gpus_mutex_;                             // guards gpus_
  std::map<int, std::unique_ptr<sys::BusGpu>> gpus_;  // by device
  std::vector<std::atomic<Registration*>> slots_;     // owns what is in it
};

}  // namespace fairway::transport::fabric
