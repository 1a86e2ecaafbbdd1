#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "sys/cuda.h"
#include "sys/cuda_memory.h"
#include "transport/cuda/devices.h"
#include "transport/host/mover.h"
#include "transport/transport.h"

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

using Pointer = sys::CudaPointer;
using sys::look_at;
// The allocation that contains the bytes, or all virtual memory mappings that they overlap.
Result<std::vector<Pointer>> mappings_at(const CudaDriver& driver, const Pointer& first, const std::byte* address,
                                         std::uint64_t size);

// This process's regions of GPU memory and the handles of their allocations. A handle is made for the first region in
// an allocation and kept until the last one is gone. Any thread.
class Exporter {
 public:
  Exporter(std::shared_ptr<Devices> devices, const ProcessToken& process)
      : devices_(std::move(devices)), process_(process) {}

  Result<std::optional<host::Mover::Exported>> export_memory(const Region& memory);
  void end_export(RegionId region);
  const ProcessToken& process() const { return process_; }
  // A region that is not device memory. `pinned`: the user had pinned all of it when it was registered.
  struct Plain {
    MemoryKind kind = MemoryKind::host;
    std::span<std::byte> bytes;
    int pinned_by = -1;  // the device in whose context the user pinned it; -1: not pinned by the user
  };
  std::optional<Plain> plain(RegionId region) const;
  int device_of(RegionId region) const;                  // -1: not device memory
  std::vector<std::byte> handle(RegionId region) const;  // of its allocation; empty: not device memory

 private:
  // Memory that is exported together: an allocation, or adjacent mappings that a region overlaps.
  struct Allocation {
    std::uint32_t regions = 0;
    std::uint64_t identity = 0;
    std::vector<std::byte> handle;
    std::vector<std::shared_ptr<sys::Fd>> files;
  };
  using Numbers = std::vector<std::uint64_t>;  // the driver's id of each mapping
  struct Place {
    Numbers allocation;
    int device = -1;
  };
  Status make(const std::vector<Pointer>& mappings, Allocation& out);
  Status export_files(const std::vector<Pointer>& mappings, Allocation& out);

  std::shared_ptr<Devices> devices_;
  const ProcessToken process_;
  mutable std::mutex mutex_;  // guards all below
  std::unordered_map<std::uint64_t, Place> regions_;
  std::unordered_map<std::uint64_t, Plain> plain_;
  std::map<Numbers, Allocation> allocations_;
  std::uint64_t next_identity_ = 1;
};

}  // namespace fairway::transport::cuda
