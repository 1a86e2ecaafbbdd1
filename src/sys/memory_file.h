#pragma once

#include <cstddef>
#include <cstdint>

#include "fairway/status.h"

#include "sys/fd.h"

namespace fairway::sys {

// resource_exhausted: `ulimit -f` allows no file of so many bytes, of memory or not. The kernel kills a process
// (SIGXFSZ) that makes one all the same.
Status check_file_size(std::uint64_t size_bytes);

// Anonymous shared memory with a file descriptor (memfd); another process that gets the descriptor maps the same pages.
// The pages are reserved and the size is sealed, so that neither use nor a peer's ftruncate can raise SIGBUS. A move
// leaves the source empty.
class MemoryFile {
 public:
  enum class Writers : std::uint8_t { all, owner };  // owner: other processes can only read
  // Error: resource_exhausted when the machine or a control group has too little memory; checked before any is taken.
  static Result<MemoryFile> make(std::size_t size_bytes, Writers writers = Writers::all);

  MemoryFile() = default;
  ~MemoryFile();
  MemoryFile(MemoryFile&& other) noexcept;
  MemoryFile& operator=(MemoryFile&& other) noexcept;

  std::byte* address() const { return address_; }
  std::size_t size_bytes() const { return size_bytes_; }  // as requested; the mapping is rounded up to whole pages
  int fd() const { return fd_.get(); }
  void close_fd() { fd_.reset(); }  // the mapping stays

 private:
  Fd fd_;
  std::byte* address_ = nullptr;
  std::size_t size_bytes_ = 0;
  std::size_t mapped_bytes_ = 0;
};

}  // namespace fairway::sys
