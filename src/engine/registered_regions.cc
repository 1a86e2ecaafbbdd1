#include "engine/registered_regions.h"

#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

#include "engine/tables/request_check.h"
#include "sys/error.h"
#include "sys/process_memory.h"
#include "transport/gpu_access.h"

namespace fairway::engine {
namespace {

// Drivers pin memory page by page: from this size on, starting a thread for each worker costs less.
constexpr std::size_t kManyPages = std::size_t{16} << 20;

}  // namespace

// What a transport knows of the address, else what the caller states.
transport::MemoryPlace RegisteredRegions::place_of(const void* address, MemoryKind said) const {
  for (const auto& transport : workers_.transports())
    if (const transport::GpuAccess* gpus = transport->gpu(); gpus != nullptr)
      if (auto place = gpus->place_of(address)) return std::move(*place);
  return {said, {}};
}

Result<Region> RegisteredRegions::add(void* address, std::size_t size_bytes, Access access,
                                      const MemorySource& source) {
  if (waiting_.closed()) return Status(ErrorCode::closed, "the engine is closed");
  if (Status status = check_values(access, source.kind); !status) return status;
  if (address == nullptr || size_bytes == 0)
    return Status(ErrorCode::invalid_argument, "a region needs an address and at least one byte");
  MemoryAt at{place_of(address, source.kind), -1};
  const MemoryKind kind = at.place.kind;
  if (kind == MemoryKind::host) at.numa_node = sys::numa_node_of(address, size_bytes);
  if (reached_by_cpu(kind) && !sys::readable(address, size_bytes))
    return Status(
        ErrorCode::invalid_argument,
        fmt::format("{} bytes at {} are not mapped in this process, or are a GPU's memory: that needs the transport "
                    "cuda, or staged, in EngineOptions::transports",
                    size_bytes, address));
  const bool read_only = reached_by_cpu(kind) && !sys::writable(address, size_bytes);
  if (read_only && (includes(access, Access::write) || includes(access, Access::atomic)))
    return Status(ErrorCode::invalid_argument,
                  fmt::format("{} bytes at {} are read-only in this process: peers may only be allowed to read them",
                              size_bytes, address));
  if (includes(access, Access::atomic) && reinterpret_cast<std::uintptr_t>(address) % sizeof(std::uint64_t) != 0)
    return Status(ErrorCode::invalid_argument, "a region with Access::atomic starts at a multiple of 8 bytes");
  const auto id = tables_.regions.add(static_cast<std::byte*>(address), size_bytes, kind, access, read_only);
  if (!id) return id.status();
  Registered added;
  added.region = {*id, static_cast<std::byte*>(address), size_bytes, kind, access};
  added.file = sys::Fd(source.fd < 0 ? -1 : ::fcntl(source.fd, F_DUPFD_CLOEXEC, 0));
  if (source.fd >= 0 && !added.file) {
    const Status why = sys::system_status(errno, "cannot keep the memory's descriptor");
    (void)tables_.regions.revoke(*id);
    tables_.regions.remove(*id);
    return why;
  }
  const RegionFile file{added.file.get(), source.fd_offset};
  std::vector<Registration> made(workers_.count());
  const auto register_with = [&](std::size_t i) {
    made[i] = workers_[i].locals().register_with_all(added.region, {kind, file.fd, file.offset});
  };
  if (size_bytes >= kManyPages)
    tables_.runtime.executor.run_all(made.size(), register_with);
  else
    for (std::size_t i = 0; i < made.size(); ++i) register_with(i);
  Status status;
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (status) status = made[i].status;
    added.keys.insert(added.keys.end(), made[i].keys.begin(), made[i].keys.end());
    workers_[i].call([&](Worker& owner) { owner.locals().add(*id, std::move(made[i]), file, at); });
  }
  const Region region = added.region;
  {
    std::lock_guard lock(mutex_);
    regions_[id->slot] = std::move(added);
  }
  if (status) return region;
  if (const auto ending = begin_end(*id))  // also at workers that have it already
    (void)wait_for_end(*id, **ending, std::chrono::seconds(5));
  return status;
}

Result<Region> RegisteredRegions::allocate(std::size_t size_bytes, Access access) {
  auto memory = sys::MemoryFile::make(size_bytes);
  if (!memory) return memory.status();
  auto region = add(memory->address(), size_bytes, access, {MemoryKind::host, memory->fd(), 0});
  if (!region) return region;
  memory->close_fd();  // the region keeps its own
  std::lock_guard lock(mutex_);
  regions_[region->id.slot].memory = std::move(*memory);
  return region;
}

Result<std::shared_ptr<RegisteredRegions::Ending>> RegisteredRegions::begin_end(RegionId id) {
  auto ending = std::make_shared<Ending>();
  ending->left = static_cast<std::uint32_t>(workers_.count());
  {
    std::lock_guard lock(mutex_);
    const auto found = regions_.find(id.slot);
    if (found == regions_.end() || found->second.region.id != id)
      return Status(ErrorCode::revoked, "the region is not registered (deregistered before, or of another engine)");
    if (const auto& begun = found->second.ending; begun != nullptr) {
      std::lock_guard at_it(begun->mutex);
      if (!begun->over) return begun;
    }
    found->second.ending = ending;
    (void)tables_.regions.revoke(id);
  }
  workers_.post_all([this, ending, id](Worker& owner) {
    owner.stop_users_of(id);
    owner.remove_region(id, Worker::RegionOf::program, [this, ending, id](const Status& status) {
      if (!status) {
        std::lock_guard lock(ending->mutex);
        ending->status = status;
      }
      if (ending->left.fetch_sub(1) == 1) ended(id, *ending);
    });
  });
  return ending;
}

// By the last worker. A region whose end was refused stays: its slot, and what is known of it, until the next try.
void RegisteredRegions::ended(RegionId id, Ending& ending) {
  sys::MemoryFile freed;
  if (ending.status) {  // the last one reads it without the lock: nobody writes it any more
    freed = forget(id);
    tables_.regions.remove(id);
  }
  {
    std::lock_guard lock(ending.mutex);
    ending.over = true;
    if (ending.waiting > 0) ending.memory = std::move(freed);
  }
  waiting_.notice();
  // To unmap much memory takes long, and a worker has peers to serve.
  if (freed.address() != nullptr) unmapper_.end([memory = std::make_shared<sys::MemoryFile>(std::move(freed))] {});
}

Status RegisteredRegions::wait_for_end(RegionId id, Ending& ending, Timeout timeout) {
  const auto over = [&] {
    std::lock_guard lock(ending.mutex);
    return ending.over;
  };
  {
    std::lock_guard lock(ending.mutex);
    ++ending.waiting;
  }
  (void)waiting_.wait_until(waiting_.deadline(timeout), over);
  sys::MemoryFile freed;  // unmapped behind the lock
  {
    std::lock_guard lock(ending.mutex);
    --ending.waiting;
    freed = std::move(ending.memory);
    if (ending.over) return ending.status;
  }
  std::string holders;
  workers_.call_all([&](Worker& owner) { holders += owner.holders_of(id); });
  return Status(ErrorCode::not_fenced, "the region may still be touched: do not reuse its memory; held by " +
                                           (holders.empty() ? "this engine's own transfers" : holders));
}

Fence RegisteredRegions::fence_state(RegionId id) const {
  std::lock_guard lock(mutex_);
  const auto found = regions_.find(id.slot);
  if (found != regions_.end() && found->second.region.id == id)
    return found->second.ending == nullptr ? Fence::registered : Fence::pending;
  return tables_.regions.has_ended(id) ? Fence::fenced : Fence::unknown;
}

// Nothing accesses its memory any more.
sys::MemoryFile RegisteredRegions::forget(RegionId id) {
  std::lock_guard lock(mutex_);
  const auto found = regions_.find(id.slot);
  if (found == regions_.end() || found->second.region.id != id) return {};
  sys::MemoryFile memory = std::move(found->second.memory);
  regions_.erase(found);
  return memory;
}

Result<std::vector<std::byte>> RegisteredRegions::describe(RegionId id, std::uint64_t incarnation) const {
  const auto region = tables_.regions.find(id);
  if (!region) return region.status();
  Description description;
  description.incarnation = incarnation;
  description.region = id;
  description.size_bytes = region->size_bytes;
  description.kind = region->kind;
  description.access = region->access;
  {
    std::lock_guard lock(mutex_);
    const auto found = regions_.find(id.slot);
    if (found != regions_.end() && found->second.region.id == id) description.keys = found->second.keys;
  }
  return format_description(description);
}

std::size_t RegisteredRegions::count() const {
  std::lock_guard lock(mutex_);
  return regions_.size();
}

void RegisteredRegions::free_all() {
  std::map<std::uint32_t, Registered> freed;
  {
    std::lock_guard lock(mutex_);
    freed.swap(regions_);
  }
  unmapper_.finish();
}

}  // namespace fairway::engine
