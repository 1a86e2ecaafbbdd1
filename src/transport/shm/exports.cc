#include "transport/shm/exports.h"

#include <utility>

#include <fcntl.h>

#include "sys/mapped_file.h"
#include "transport/handles.h"

namespace fairway::transport::shm {
namespace {

Result<sys::Fd> lend(const MemoryDescription& memory, bool writable) {
  if (Status status = sys::check_lendable(memory.memory_fd, memory.memory_offset, memory.size_bytes); !status)
    return status;
  if (!writable) return sys::open_read_only(memory.memory_fd);
  sys::Fd copy(::fcntl(memory.memory_fd, F_DUPFD_CLOEXEC, 0));
  if (!copy) return Status(ErrorCode::resource_exhausted, "no descriptor was left to lend its file (ulimit -n)");
  return copy;
}

}  // namespace

bool Exports::add(const MemoryDescription& memory) {
  if (memory.memory_fd < 0) return false;
  File file;
  file.offset = memory.memory_offset;
  file.writable = includes(memory.access, Access::write) || includes(memory.access, Access::atomic);
  auto lent = lend(memory, file.writable);
  if (lent)
    file.fd = std::make_shared<sys::Fd>(std::move(*lent));
  else
    file.why = lent.status().message();
  const bool has = file.fd != nullptr;
  const std::lock_guard lock(mutex_);
  files_[handle_of(memory.id)] = std::move(file);
  return has;
}

void Exports::remove(RegionId id) {
  const std::lock_guard lock(mutex_);
  files_.erase(handle_of(id));
}

Exports::File Exports::find(RegionId id) const {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(handle_of(id));
  if (found != files_.end()) return found->second;
  return {nullptr, 0, false, "its owner does not lend a file behind it (allocate() makes one)"};
}

}  // namespace fairway::transport::shm
