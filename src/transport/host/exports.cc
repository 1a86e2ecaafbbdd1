#include "transport/host/exports.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "sys/memory_file.h"
#include "transport/handles.h"

namespace fairway::transport::host {

std::optional<Key> Exports::add(const Region& memory, const MemorySource& source) {
  struct stat facts {};
  if (source.fd < 0 || ::fstat(source.fd, &facts) != 0) return {};
  const Inode inode(facts.st_dev, facts.st_ino);
  const std::lock_guard lock(mutex_);
  auto known = numbers_.find(inode);
  if (known == numbers_.end()) {
    if (!sys::check_lendable(source.fd, source.fd_offset, memory.size_bytes)) return {};
    sys::Fd copy(::fcntl(source.fd, F_DUPFD_CLOEXEC, 0));
    if (!copy) return {};
    files_[next_] = {{std::make_shared<sys::Fd>(std::move(copy))}, inode, 0, 0};
    known = numbers_.emplace(inode, next_++).first;
  }
  return place(memory, known->second, source.fd_offset);
}

Key Exports::add(const Region& memory, const Mover::Exported& exported) {
  const std::lock_guard lock(mutex_);
  const auto [known, fresh] = numbers_.try_emplace(Inode(kDevice, exported.identity), next_);
  if (fresh) files_[next_++] = {exported.files, known->first, 0, 0};
  Key key = place(memory, known->second, exported.offset);
  key.handle = exported.handle;
  return key;
}

Key Exports::place(const Region& memory, std::uint32_t number, std::uint64_t offset) {
  const bool writable = includes(memory.access, Access::write) || includes(memory.access, Access::atomic);
  File& file = files_[number];
  ++file.regions;
  file.writable_regions += writable ? 1 : 0;
  regions_[handle_of(memory.id)] = {number, writable};
  return {number, offset, {}};
}

std::uint32_t Exports::remove(RegionId id) {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(handle_of(id));
  if (found == regions_.end()) return 0;
  const Place place = found->second;
  regions_.erase(found);
  File& file = files_[place.file];
  file.writable_regions -= place.writable ? 1 : 0;
  if (--file.regions > 0) return 0;
  numbers_.erase(file.inode);
  files_.erase(place.file);
  return place.file;
}

Result<std::shared_ptr<sys::Fd>> Exports::descriptor(std::uint32_t number, std::uint32_t part, bool writable) const {
  std::shared_ptr<sys::Fd> fd;
  {
    const std::lock_guard lock(mutex_);
    const auto found = files_.find(number);
    if (found == files_.end()) return Status(ErrorCode::revoked, "its owner deregistered it");
    if (writable && found->second.writable_regions == 0)
      return Status(ErrorCode::access_denied, "its owner allows no writes");
    if (part >= found->second.fds.size()) return Status(ErrorCode::not_found, "its owner has no such descriptor");
    fd = found->second.fds[part];
    if (found->second.inode.first == kDevice) return fd;
  }
  if (writable) return fd;
  auto read_only = sys::open_read_only(fd->get());
  if (!read_only) return read_only.status();
  return std::make_shared<sys::Fd>(std::move(*read_only));
}

}  // namespace fairway::transport::host
