#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sys/cuda.h"

namespace fairway::transport::cuda {

// How another process imports an allocation.
enum class Export : std::uint8_t {
  none,  // it cannot: `why`
  ipc,   // by a CUDA IPC handle
  file,  // by file descriptors of virtual memory management
};

using ProcessToken = std::array<std::byte, 16>;

// How a process describes its own allocation to another.
struct Handle {
  ProcessToken process{};  // of its owner, which uses the address itself
  sys::cuda::Uuid device{};
  std::uint64_t base = 0, size = 0;
  // Export::file: the sizes that the descriptors map one after the other; `size` in total.
  std::vector<std::uint64_t> mappings;
  Export by = Export::none;
  sys::cuda::IpcHandle ipc{};
  std::string why;
};
std::vector<std::byte> encode(const Handle& handle);
Result<Handle> decode(std::span<const std::byte> bytes);

}  // namespace fairway::transport::cuda
