#pragma once

#include <memory>
#include <string>

#include "gpu.h"

namespace fairway::tool::bench {

// Memory by name: "host" is ordinary, "host:numa1" ordinary on that node, "shared" from Engine::allocate, "pinned" from
// the GPU's driver; "gpu:1" on that GPU, as cudaMalloc gives it, "gpu:1:mapped" and "gpu:1:locked" mapped with and
// without a descriptor for others, "gpu:1:managed" managed.
struct NamedMemory {
  Region region;
  std::shared_ptr<void> bytes;  // memory that the engine did not allocate
  std::shared_ptr<Gpu> gpu;     // for memory that no CPU reaches
  int device = 0;               // its

  // The pattern of `seed` in its first bytes, zeros, and how many bytes are not that pattern.
  Status fill(std::uint64_t size, std::uint64_t seed) const;
  Status clear(std::uint64_t size) const;
  Result<std::uint64_t> wrong(std::uint64_t size, std::uint64_t seed) const;
};
Result<NamedMemory> open_memory(Engine& engine, const std::string& name, std::uint64_t size, Access access);

}  // namespace fairway::tool::bench
