#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sys/fd.h"
#include "sys/memory_file.h"
#include "transport/command.h"
#include "transport/host/handshake.h"
#include "transport/host/mover.h"
#include "transport/transport.h"

namespace fairway::transport::host {

// The files behind this side's regions, which peers may map. Any thread.
class Exports {
 public:
  // Keeps a descriptor of the memory's file. Nothing: it has no file that can be exported.
  std::optional<Key> add(const Region& memory, const MemorySource& source);
  Key add(const Region& memory, const Mover::Exported& exported);  // of device memory
  // The number of the region's file if that was the last region in it, else 0.
  std::uint32_t remove(RegionId id);
  // A descriptor for a peer; a writable one only while a region in the file may be written by peers. `part`: which
  // descriptor, for memory with several.
  Result<std::shared_ptr<sys::Fd>> descriptor(std::uint32_t number, std::uint32_t part, bool writable) const;

 private:
  using Inode = std::pair<std::uint64_t, std::uint64_t>;  // of device memory: kDevice and its identity
  static constexpr std::uint64_t kDevice = ~std::uint64_t{0};
  struct File {
    std::vector<std::shared_ptr<sys::Fd>> fds;
    Inode inode;
    std::uint32_t regions = 0, writable_regions = 0;
  };
  Key place(const Region& memory, std::uint32_t number, std::uint64_t offset);

  struct Place {
    std::uint32_t file = 0;
    bool writable = false;
  };
  mutable std::mutex mutex_;  // guards all below
  std::unordered_map<std::uint64_t, Place> regions_;
  std::unordered_map<std::uint32_t, File> files_;
  std::map<Inode, std::uint32_t> numbers_;
  std::uint32_t next_ = 1;
};

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
