#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sys/cuda.h"

namespace fairway::transport::cuda {

// How another process gets at an allocation.
enum class Way : std::uint8_t {
  none,  // not at all: `why`
  ipc,   // CUDA's IPC handle
  file,  // descriptors, of virtual memory management
};

using ProcessToken = std::array<std::byte, 16>;

// What a process tells of an allocation of its own.
struct Handle {
  ProcessToken process{};  // of its owner: within it the address itself serves
  sys::cuda::Uuid device{};
  std::uint64_t base = 0, size = 0;
  // Of a file: what each descriptor maps, one behind the other. Together they are `size`.
  std::vector<std::uint64_t> mappings;
  Way way = Way::none;
  sys::cuda::IpcHandle ipc{};
  std::string why;
};
std::vector<std::byte> encode(const Handle& handle);
Result<Handle> decode(std::span<const std::byte> bytes);

}  // namespace fairway::transport::cuda
