#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "sys/memory_file.h"
#include "transport/handles.h"
#include "transport/host/mover.h"

namespace fairway::transport::host {

// How the bytes of a peer's region are moved.
enum class Method : std::uint8_t {
  pending,  // its file has been requested: slices wait
  mapped,   // one copy, by this side
  cma,      // one copy, by the kernel: cross-memory attach
  bounced,  // two copies, by both sides, through the ring
  device,   // device memory, by its copy engines
};

// A peer's file, mapped here as a whole for all regions in it.
struct PeerFile {
  std::uint32_t number = 0;
  bool writable = false;
  std::uint32_t parts = 0;          // descriptors received
  bool asked = false;               // requested and not answered yet
  Method method = Method::pending;  // pending, mapped, device, or cma: the file is not available
  std::shared_ptr<sys::MappedFile> map = std::make_shared<sys::MappedFile>();
  std::shared_ptr<Mover::Hold> held;          // by a device's driver
  std::shared_ptr<Mover::Imported> imported;  // of device memory
  std::string why;
};

// The data of each import.
struct Remote {
  Method method = Method::bounced;
  std::shared_ptr<PeerFile> file;  // null: none
  std::uint64_t offset = 0;        // of the region in it
  std::string why;                 // why no better method is used

  // The address of `length` bytes of the region if its file is at `base`; null: outside of the file.
  std::byte* place(std::byte* base, std::uint64_t size, std::uint64_t at, std::uint64_t length) const {
    std::uint64_t begin = 0, end = 0;
    if (__builtin_add_overflow(offset, at, &begin) || __builtin_add_overflow(begin, length, &end) || end > size)
      return nullptr;
    return base + begin;
  }
};
using Imports = ImportTable<Remote>;

}  // namespace fairway::transport::host
