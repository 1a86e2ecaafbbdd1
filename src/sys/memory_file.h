#pragma once

#include <cstddef>
#include <cstdint>

#include "fairway/status.h"

#include "sys/fd.h"

namespace fairway::sys {

// Anonymous memory behind a file descriptor, mapped shared: another process that gets the descriptor maps the same
// pages. Its pages are reserved, and its size is sealed, so that neither use nor a peer's ftruncate can end in SIGBUS.
// A resource; moving leaves the source empty.
class MemoryFile {
 public:
  enum class Writers : std::uint8_t { all, owner };  // owner: others that get the descriptor can only read
  // resource_exhausted when the pages cannot be had: machine and control groups are asked before they are taken.
  static Result<MemoryFile> make(std::size_t size_bytes, Writers writers = Writers::all);

  MemoryFile() = default;
  ~MemoryFile();
  MemoryFile(MemoryFile&& other) noexcept;
  MemoryFile& operator=(MemoryFile&& other) noexcept;

  std::byte* address() const { return address_; }
  std::size_t size_bytes() const { return size_bytes_; }  // as asked for; the mapping is whole pages
  int fd() const { return fd_.get(); }
  void close_fd() { fd_.reset(); }  // the mapping stays

 private:
  Fd fd_;
  std::byte* address_ = nullptr;
  std::size_t size_bytes_ = 0;
  std::size_t mapped_bytes_ = 0;
};

}  // namespace fairway::sys
