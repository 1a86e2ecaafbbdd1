#pragma once

#include <cstddef>
#include <cstdint>

#include "fairway/status.h"

#include "sys/fd.h"

namespace fairway::sys {

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
