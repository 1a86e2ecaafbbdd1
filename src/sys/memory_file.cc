#include "sys/memory_file.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "sys/error.h"
#include "sys/process_memory.h"

namespace fairway::sys {
namespace {

// Reserving more memory than there is does not fail: the kernel kills a process, often this one. Sizes below this are
// reserved without asking, as any other allocation is.
constexpr std::size_t kAskFrom = std::size_t{1} << 20;

Status fits(std::size_t size_bytes) {
  if (size_bytes < kAskFrom) return {};
  const AvailableMemory available = available_memory();
  const std::size_t bookkeeping = size_bytes / 128 + kAskFrom;  // page tables, the file's own index
  if (size_bytes <= available.bytes && bookkeeping <= available.bytes - size_bytes) return {};
  return {ErrorCode::resource_exhausted, fmt::format("cannot reserve {} bytes of memory: {} leaves {} bytes",
                                                     size_bytes, available.limited_by, available.bytes)};
}

}  // namespace

Status check_file_size(std::uint64_t size_bytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || size_bytes <= limit.rlim_cur)
    return {};
  return {
      ErrorCode::resource_exhausted,
      fmt::format("this process may have files of {} bytes, also of memory, and needs one of {}: raise the limit with "
                  "`ulimit -f`",
                  limit.rlim_cur, size_bytes)};
}

Result<MemoryFile> MemoryFile::make(std::size_t size_bytes, Writers writers) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  MemoryFile memory;
  memory.size_bytes_ = size_bytes;
  memory.mapped_bytes_ = (size_bytes + page - 1) / page * page;
  const auto refused = [&](std::string_view what) {
    return Status(ErrorCode::resource_exhausted,
                  system_status(errno, fmt::format("cannot {} {} bytes of memory", what, size_bytes)).message());
  };
  if (size_bytes == 0 || memory.mapped_bytes_ < size_bytes)
    return Status(ErrorCode::invalid_argument, fmt::format("cannot allocate {} bytes", size_bytes));
  if (Status status = check_file_size(memory.mapped_bytes_); !status) return status;
  if (Status status = fits(memory.mapped_bytes_); !status) return status;
  memory.fd_ = Fd(::memfd_create("fairway", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.fd_) return refused("make a file for");
  const auto length = static_cast<off_t>(memory.mapped_bytes_);
  if (::ftruncate(memory.fd_.get(), length) != 0) return refused("size");
  if (::fallocate(memory.fd_.get(), 0, 0, length) != 0) return refused("reserve");
  void* address = ::mmap(nullptr, memory.mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd_.get(), 0);
  if (address == MAP_FAILED) return refused("map");
  memory.address_ = static_cast<std::byte*>(address);
  const int others_write = writers == Writers::owner ? F_SEAL_FUTURE_WRITE : 0;
  if (::fcntl(memory.fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | others_write) != 0)
    return refused("seal");
  return memory;
}

MemoryFile::~MemoryFile() {
  if (address_ != nullptr) ::munmap(address_, mapped_bytes_);
}

MemoryFile::MemoryFile(MemoryFile&& other) noexcept
    : fd_(std::move(other.fd_)),
      address_(std::exchange(other.address_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)) {}

MemoryFile& MemoryFile::operator=(MemoryFile&& other) noexcept {
  if (this == &other) return *this;
  MemoryFile old(std::move(*this));
  fd_ = std::move(other.fd_);
  address_ = std::exchange(other.address_, nullptr);
  size_bytes_ = std::exchange(other.size_bytes_, 0);
  mapped_bytes_ = std::exchange(other.mapped_bytes_, 0);
  return *this;
}

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
