#include "sys/mapped_file.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "sys/error.h"

namespace fairway::sys {
namespace {

constexpr auto kHugePages = 0x958458f6;  // linux/magic.h: HUGETLBFS_MAGIC

}  // namespace

Status check_lendable(int file, std::uint64_t offset, std::uint64_t size_bytes) {
  const int seals = ::fcntl(file, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return {ErrorCode::access_denied, "the memory file is not sealed against shrinking (F_SEAL_SHRINK)"};
  struct stat facts {};
  struct statfs system {};
  if (::fstat(file, &facts) != 0 || ::fstatfs(file, &system) != 0)
    return system_status(errno, "cannot read the size of the memory file");
  if (system.f_type == kHugePages)
    return {ErrorCode::access_denied,
            "the memory file uses huge pages, which its owner can take back while they are mapped"};
  const auto length = static_cast<std::uint64_t>(facts.st_size);
  if (offset > length || size_bytes > length - offset)
    return {ErrorCode::out_of_range,
            fmt::format("the memory file has {} bytes, too few for {} bytes at offset {}", length, size_bytes, offset)};
  return {};
}

Status check_device_memory(int file) {
  struct stat facts {};
  if (::fstat(file, &facts) != 0) return system_status(errno, "cannot inspect the file descriptor");
  if (S_ISSOCK(facts.st_mode) || S_ISFIFO(facts.st_mode) || S_ISDIR(facts.st_mode) || S_ISBLK(facts.st_mode))
    return {ErrorCode::protocol_error,
            "the file descriptor sent as device memory is a pipe, a socket, a directory or a disk"};
  return {};
}

Result<Fd> open_read_only(int file) {
  Fd opened(::open(fmt::format("/proc/self/fd/{}", file).c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened) return system_status(errno, "cannot reopen the memory file read-only (/proc/self/fd)");
  return opened;
}

Result<MappedFile> MappedFile::map(const Fd& file, std::uint64_t offset, std::uint64_t size_bytes, bool writable) {
  if (Status status = check_lendable(file.get(), offset, size_bytes); !status) return status;
  if (size_bytes == 0) return Status(ErrorCode::invalid_argument, "cannot map a range of 0 bytes");
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = offset / page * page;
  MappedFile mapped;
  mapped.mapped_bytes_ = static_cast<std::size_t>(offset - begin + size_bytes);
  void* base = ::mmap(nullptr, mapped.mapped_bytes_, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED,
                      file.get(), static_cast<off_t>(begin));
  if (base == MAP_FAILED) return system_status(errno, "cannot map the peer's memory file");
  mapped.base_ = static_cast<std::byte*>(base);
  mapped.address_ = mapped.base_ + (offset - begin);
  mapped.size_bytes_ = size_bytes;
  return mapped;
}

Result<MappedFile> MappedFile::map_whole(const Fd& file, bool writable) {
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0 || facts.st_size < 0)
    return system_status(errno, "cannot read the size of the memory file");
  return map(file, 0, static_cast<std::uint64_t>(facts.st_size), writable);
}

MappedFile::~MappedFile() {
  if (base_ != nullptr) ::munmap(base_, mapped_bytes_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
      address_(std::exchange(other.address_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  MappedFile old(std::move(*this));
  base_ = std::exchange(other.base_, nullptr);
  mapped_bytes_ = std::exchange(other.mapped_bytes_, 0);
  address_ = std::exchange(other.address_, nullptr);
  size_bytes_ = std::exchange(other.size_bytes_, 0);
  return *this;
}

}  // namespace fairway::sys
