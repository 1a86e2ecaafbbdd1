#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "sys/fd.h"
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

}  // namespace fairway::transport::host
