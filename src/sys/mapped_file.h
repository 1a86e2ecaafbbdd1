#pragma once

#include <cstddef>
#include <cstdint>

#include "fairway/status.h"

#include "sys/fd.h"

namespace fairway::sys {

// Part of a memory file that another process made and sent, mapped shared. A resource; moving leaves the source empty.
class MappedFile {
 public:
  // [offset, offset + size) of `file`, which need not stay open. access_denied when it is no memory file, or one whose
  // owner could still take pages away, which would end who touches them with SIGBUS: one that is not sealed against
  // shrinking, or of huge pages (a hole in it is filled from a pool that may be empty). out_of_range when it is shorter
  // than that by now.
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

// Whether pages of `file` can be lent to others: a memory file that cannot shrink any more and holds that range.
Status check_lendable(int file, std::uint64_t offset, std::uint64_t size_bytes);
// Whether a driver may have made that descriptor for memory of its device: it is no pipe, socket or folder.
Status check_device_memory(int file);
// A descriptor of the same pages that cannot be mapped for writing.
Result<Fd> open_read_only(int file);

}  // namespace fairway::sys
