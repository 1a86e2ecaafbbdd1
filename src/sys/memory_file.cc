#include "sys/memory_file.h"

#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "sys/available_memory.h"
#include "sys/error.h"

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

}  // namespace fairway::sys
