#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "sys/fd.h"
#include "transport/memory.h"

namespace fairway::transport::shm {

// The files behind this side's regions, as peers may have them. Any thread.
class Exports {
 public:
  // Keeps a descriptor of the memory's file, for reading alone where peers may not write. False: it has no file that
  // can be lent, and why() says so.
  bool add(const MemoryDescription& memory);
  void remove(RegionId id);

  struct File {
    std::shared_ptr<sys::Fd> fd;  // null: none
    std::uint64_t offset = 0;
    bool writable = false;
    std::string why;
  };
  File find(RegionId id) const;

 private:
  mutable std::mutex mutex_;  // guards files_
  std::unordered_map<std::uint64_t, File> files_;
};

}  // namespace fairway::transport::shm
