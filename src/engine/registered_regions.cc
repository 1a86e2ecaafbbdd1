#include "engine/registered_regions.h"

#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

#include "engine/values.h"
#include "sys/error.h"
#include "sys/numa.h"
#include "sys/readable.h"
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
  const auto id = table_.add(static_cast<std::byte*>(address), size_bytes, kind, access, read_only);
  if (!id) return id.status();
  Registered added;
  added.region = {*id, static_cast<std::byte*>(address), size_bytes, kind, access};
  added.file = sys::Fd(source.fd < 0 ? -1 : ::fcntl(source.fd, F_DUPFD_CLOEXEC, 0));
  if (source.fd >= 0 && !added.file) {
    const Status why = sys::system_status(errno, "cannot keep the memory's descriptor");
    (void)table_.revoke(*id);
    table_.remove(*id);
    return why;
  }
  const RegionFile file{added.file.get(), source.fd_offset};
  std::vector<Registration> made(workers_.count());
  const auto register_with = [&](std::size_t i) {
    made[i] = workers_[i].locals().register_with_all(added.region, {kind, file.fd, file.offset});
  };
  if (size_bytes >= kManyPages)
    runtime_.executor.run_all(made.size(), register_with);
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
  if (!waiting_.closed() && revoke(*id))
    (void)end(*id, std::chrono::seconds(5));  // also at workers that have it already
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

Status RegisteredRegions::end(RegionId id, Timeout timeout) {
  // Shared with the workers, which may finish after this call's timeout.
  struct Ending {
    std::atomic<std::uint32_t> left;
    std::mutex mutex;  // guards status
    Status status;
  };
  auto ending = std::make_shared<Ending>();
  ending->left = static_cast<std::uint32_t>(workers_.count());
  workers_.post_all([this, ending, id](Worker& owner) {
    owner.stop_users_of(id);
    owner.remove_region(id, nullptr, [this, ending, id](const Status& status) {
      if (!status) {
        std::lock_guard lock(ending->mutex);
        ending->status = status;
      }
      if (ending->left.fetch_sub(1) != 1) return;
      if (ending->status.is_ok()) forget(id);
      table_.remove(id);
      waiting_.notice();
    });
  });
  if (!waiting_.wait_until(waiting_.deadline(timeout), [&] { return ending->left.load() == 0; })) {
    std::string holders;
    workers_.call_all([&](Worker& owner) { holders += owner.holders_of(id); });
    return Status(ErrorCode::not_fenced, "the region may still be touched: do not reuse its memory; held by " +
                                             (holders.empty() ? "this engine's own transfers" : holders));
  }
  std::lock_guard lock(ending->mutex);
  return ending->status;
}

// Nothing accesses its memory any more.
void RegisteredRegions::forget(RegionId id) {
  sys::MemoryFile freed;  // unmapped after the lock is released
  std::lock_guard lock(mutex_);
  const auto found = regions_.find(id.slot);
  if (found == regions_.end() || found->second.region.id != id) return;
  freed = std::move(found->second.memory);
  regions_.erase(found);
}

Result<std::vector<std::byte>> RegisteredRegions::describe(RegionId id, std::uint64_t incarnation) const {
  const auto region = table_.find(id);
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
  std::lock_guard lock(mutex_);
  freed.swap(regions_);
}

}  // namespace fairway::engine
