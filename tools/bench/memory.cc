#include "memory.h"

#include <array>
#include <charconv>
#include <cstring>
#include <vector>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pattern.h"

namespace fairway::tool::bench {
namespace {

Result<NamedMemory> open_gpu_memory(Engine& engine, int device, Gpu::Kind kind, std::uint64_t size, Access access) {
  auto gpu = Gpu::open();
  if (!gpu) return gpu.status();
  auto bytes = (*gpu)->allocate(kind, device, size);
  if (!bytes) return bytes.status();
  const bool by_cpu = kind == Gpu::Kind::managed || kind == Gpu::Kind::pinned;
  auto region = engine.register_memory(bytes->get(), size, access);
  if (!region) return region.status();
  if (by_cpu) std::memset(bytes->get(), 1, size);
  return NamedMemory{*region, *bytes, by_cpu ? nullptr : *gpu, device};
}

}  // namespace

Status NamedMemory::fill(std::uint64_t size, std::uint64_t seed) const {
  if (!gpu) {
    bench::fill(region.address, size, seed);
    return {};
  }
  std::vector<std::byte> here(size);
  bench::fill(here.data(), size, seed);
  return gpu->copy(device, region.address, here.data(), size);
}

Status NamedMemory::clear(std::uint64_t size) const {
  if (!gpu) {
    std::memset(region.address, 0, size);
    return {};
  }
  const std::vector<std::byte> zeros(size);
  return gpu->copy(device, region.address, zeros.data(), size);
}

Result<std::uint64_t> NamedMemory::wrong(std::uint64_t size, std::uint64_t seed) const {
  if (!gpu) return wrong_bytes(region.address, size, seed);
  std::vector<std::byte> here(size);
  if (Status status = gpu->copy(device, here.data(), region.address, size); !status) return status;
  return wrong_bytes(here.data(), size, seed);
}

Result<NamedMemory> open_memory(Engine& engine, const std::string& name, std::uint64_t size, Access access) {
  if (name == "shared") {
    auto region = engine.allocate(size, access);
    if (!region) return region.status();
    return NamedMemory{*region, nullptr, nullptr, 0};
  }
  int device = 0;
  Gpu::Kind kind{};
  if (parse_gpu(name, device, kind)) {
    auto memory = open_gpu_memory(engine, device, kind, size, access);
    return memory ? std::move(memory) : Status(memory.status()).with_context(name);
  }
  unsigned node = 0;
  constexpr std::string_view kNuma = "host:numa";
  const bool bound = name.starts_with(kNuma);
  if (bound) {
    const char* end = name.data() + name.size();
    if (const auto read = std::from_chars(name.data() + kNuma.size(), end, node);
        read.ec != std::errc() || read.ptr != end || node >= 1024)
      return Status(ErrorCode::invalid_argument,
                    fmt::format("\"{}\": the node is a number below 1024, as in host:numa0", name));
  } else if (name != "host") {
    return Status(
        ErrorCode::invalid_argument,
        fmt::format(
            "\"{}\" is no memory of this build; there are: host, host:numaN, shared, pinned, gpu:N, gpu:N:mapped, "
            "gpu:N:locked, gpu:N:managed",
            name));
  }
  void* bytes = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (bytes == MAP_FAILED) return Status(ErrorCode::resource_exhausted, fmt::format("cannot map {} bytes", size));
  const std::shared_ptr<void> held(bytes, [size](void* at) { ::munmap(at, size); });
  if (bound) {
    constexpr int kBind = 2;  // MPOL_BIND
    std::array<unsigned long, 1024 / (8 * sizeof(unsigned long))> mask{};
    mask[node / (8 * sizeof(unsigned long))] = 1UL << node % (8 * sizeof(unsigned long));
    if (::syscall(SYS_mbind, bytes, size, kBind, mask.data(), 1024UL, 0U) != 0)
      return Status(ErrorCode::invalid_argument, fmt::format("this machine has no NUMA node {} with memory", node));
  }
  std::memset(bytes, 1, size);  // touches its pages before anything is measured
  auto region = engine.register_memory(bytes, size, access);
  if (!region) return region.status();
  return NamedMemory{*region, held, nullptr, 0};
}

}  // namespace fairway::tool::bench
