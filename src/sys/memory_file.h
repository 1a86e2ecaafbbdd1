#pragma once

#include <cstddef>
#include <cstdint>

#include "fairway/status.h"

#include "sys/fd.h"

// Memory that processes of one host share: by who made it, and by who maps it.
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

// A shared mapping of part of a memory file that another process sent. A move leaves the source empty.
class MappedFile {
 public:
  // Maps [offset, offset + size) of `file`, which need not stay open. access_denied: not a memory file, or its owner
  // could still take pages away and kill this process with SIGBUS (not sealed against shrinking; or huge pages, where a
  // hole is filled from a pool that may be empty). out_of_range: the file is shorter than that.
  static Result<MappedFile> map(const Fd& file, std::uint64_t offset, std::uint64_t size_bytes, bool writable);
  static Result<MappedFile> map_whole(const Fd& file, bool writable);

  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::byte* address() const { return address_; }
  std::uint64_t size_bytes() const { return size_bytes_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  std::byte* address_ = nullptr;
  std::uint64_t size_bytes_ = 0;
};

// Whether the range of `file` can be shared with other processes: a memory file that is sealed against shrinking and
// long enough.
Status check_lendable(int file, std::uint64_t offset, std::uint64_t size_bytes);
// Whether the descriptor can be a driver's handle to device memory: not a pipe, a socket, a directory or a disk.
Status check_device_memory(int file);
// A read-only descriptor of the same pages: they cannot be mapped for writing through it.
Result<Fd> open_read_only(int file);

}  // namespace fairway::sys
