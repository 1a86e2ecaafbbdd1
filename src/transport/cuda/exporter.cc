#include "transport/cuda/exporter.h"

#include <algorithm>
#include <cstring>

#include "core/bytes.h"
#include "sys/cuda_memory.h"
#include "transport/command.h"

namespace fairway::transport::cuda {
namespace {

constexpr std::uint8_t kVersion = 2;
constexpr std::size_t kMaxWhy = 300;
constexpr std::uint32_t kMaxMappings = 65536;

// Adjacent mappings of equal size.
struct Run {
  std::uint32_t count = 0;
  std::uint64_t size = 0;
};

std::vector<Run> runs_of(const std::vector<std::uint64_t>& mappings) {
  std::vector<Run> runs;
  for (const std::uint64_t size : mappings) {
    if (runs.empty() || runs.back().size != size) runs.push_back({0, size});
    ++runs.back().count;
  }
  return runs;
}

// False: their sizes do not add up to the handle's size.
bool read_mappings(ByteReader& reader, Handle& handle) {
  std::uint64_t left = handle.size;
  const auto runs = reader.get<std::uint16_t>();
  for (std::uint16_t i = 0; i < runs && reader.ok(); ++i) {
    const auto count = reader.get<std::uint32_t>();
    const auto size = reader.get<std::uint64_t>();
    if (size == 0 || count == 0 || count > kMaxMappings - handle.mappings.size() || size > left / count) return false;
    left -= size * count;
    handle.mappings.insert(handle.mappings.end(), count, size);
  }
  return left == 0 && !handle.mappings.empty();
}

}  // namespace

std::vector<std::byte> encode(const Handle& handle) {
  const std::vector<Run> runs = runs_of(handle.mappings);
  std::vector<std::byte> bytes(160 + kMaxWhy + runs.size() * sizeof(Run));
  ByteWriter writer(bytes);
  writer.put(kVersion).put(static_cast<std::uint8_t>(handle.by)).put_bytes(handle.process);
  writer.put_bytes(std::as_bytes(std::span(handle.device.bytes))).put(handle.base).put(handle.size);
  if (handle.by == Export::ipc) writer.put_bytes(std::as_bytes(std::span(handle.ipc.bytes)));
  if (handle.by == Export::file) {
    writer.put(static_cast<std::uint16_t>(runs.size()));
    for (const Run& run : runs) writer.put(run.count).put(run.size);
  }
  if (handle.by == Export::none) writer.put_text(std::string_view(handle.why).substr(0, kMaxWhy));
  bytes.resize(writer.size());
  return bytes;
}

Result<Handle> decode(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Handle handle;
  const auto take = [&](void* into, std::size_t size) {
    const auto from = reader.get_bytes(size);
    if (from.size() == size) std::memcpy(into, from.data(), size);
  };
  const auto version = reader.get<std::uint8_t>();
  const auto by = reader.get<std::uint8_t>();
  take(handle.process.data(), handle.process.size());
  take(handle.device.bytes, sizeof handle.device.bytes);
  handle.base = reader.get<std::uint64_t>();
  handle.size = reader.get<std::uint64_t>();
  handle.by = static_cast<Export>(by);
  if (handle.by == Export::ipc) take(handle.ipc.bytes, sizeof handle.ipc.bytes);
  if (handle.by == Export::none) handle.why = reader.get_text();
  const bool mapped = handle.by != Export::file || read_mappings(reader, handle);
  if (!mapped || !reader.done() || version != kVersion || by > static_cast<std::uint8_t>(Export::file))
    return Status(ErrorCode::protocol_error, "malformed handle of GPU memory");
  return handle;
}

using namespace sys::cuda;

Result<std::optional<host::Mover::Exported>> Exporter::export_memory(const Region& memory) {
  const CudaDriver& cu = devices_->driver();
  Plain plain{memory.kind, {memory.address, memory.size_bytes}};
  // Its first byte says what it is: where the rest is pinned otherwise, the region is treated as if none of it were.
  if (plain.kind == MemoryKind::pinned && !sys::pinned_by_program(cu, memory.address, memory.size_bytes))
    plain.kind = MemoryKind::host;
  if (plain.kind == MemoryKind::pinned) plain.pinned_by = look_at(cu, memory.address).device;
  if (plain.kind != MemoryKind::device) {
    const std::lock_guard lock(mutex_);
    plain_[handle_of(memory.id)] = plain;
    return std::optional<host::Mover::Exported>();
  }
  const Pointer pointer = look_at(cu, memory.address);
  if (pointer.kind != MemoryKind::device)
    return Status(ErrorCode::invalid_argument, "cuda: the address is not in GPU memory");
  auto mappings = mappings_at(devices_->driver(), pointer, memory.address, memory.size_bytes);
  if (!mappings) return mappings.status();
  Numbers numbers;
  for (const Pointer& each : *mappings) numbers.push_back(each.allocation);
  const std::uint64_t offset = reinterpret_cast<std::uint64_t>(memory.address) - pointer.base;
  // Counts the region, if the allocation is known or has been `made`.
  const auto add = [&](Allocation* made) -> std::optional<host::Mover::Exported> {
    const std::lock_guard lock(mutex_);
    auto found = allocations_.find(numbers);
    if (found == allocations_.end()) {
      if (made == nullptr) return {};
      made->identity = next_identity_++;
      found = allocations_.emplace(numbers, std::move(*made)).first;
    }
    Allocation& allocation = found->second;
    ++allocation.regions;
    regions_[handle_of(memory.id)] = {numbers, pointer.device};
    return host::Mover::Exported{allocation.identity, offset, allocation.handle, allocation.files};
  };
  if (auto exported = add(nullptr)) return exported;
  // Not under the lock, for which workers wait that copy: it may take long. That two make the same does no harm.
  Allocation made;
  if (Status status = make(*mappings, made); !status) return status;
  return add(&made);
}

Result<std::vector<Pointer>> mappings_at(const CudaDriver& driver, const Pointer& first, const std::byte* address,
                                         std::uint64_t size) {
  const auto begin = reinterpret_cast<std::uint64_t>(address);
  std::vector<Pointer> found{first};
  const auto leaves = [](const char* what) {
    return Status(ErrorCode::out_of_range, std::string("cuda: the region is larger than its allocation: ") + what);
  };
  std::uint64_t end = 0;
  if (begin < first.base || __builtin_add_overflow(begin, size, &end))
    return leaves("it ends beyond the address space");
  while (found.back().base + found.back().size < end) {
    const std::uint64_t at = found.back().base + found.back().size;
    const Pointer next = look_at(driver, reinterpret_cast<const void*>(at));
    if (next.kind != MemoryKind::device || next.base != at) return leaves("nothing is mapped after it");
    if (next.device != first.device) return leaves("another GPU's memory is mapped after it: register each part");
    found.push_back(next);
    // Allocations of cudaMalloc may be adjacent and still are separate.
    if (found.front().ipc || next.ipc) return leaves("another allocation follows it: register each part");
  }
  return found;
}

// Memory that cannot be exported is still used within the process, and staged for peers, which are told why.
Status Exporter::make(const std::vector<Pointer>& mappings, Allocation& out) {
  const CudaDriver& cu = devices_->driver();
  const Pointer& first = mappings.front();
  const auto context = devices_->use(first.device);
  if (!context) return context.status();
  const Current current(cu, *context);
  Handle handle;
  handle.process = process_;
  handle.device = devices_->uuid(first.device);
  handle.base = first.base;
  handle.size = mappings.back().base + mappings.back().size - first.base;
  if (std::all_of(mappings.begin(), mappings.end(), [](const Pointer& each) { return each.file; })) {
    const Status status = export_files(mappings, out);
    handle.by = status ? Export::file : Export::none;
    handle.why = status.message();
    for (const Pointer& each : mappings) handle.mappings.push_back(each.size);
  } else if (first.ipc) {
    const Status status = cu.check(cu->cuIpcGetMemHandle(&handle.ipc, first.base), "cuIpcGetMemHandle");
    handle.by = status ? Export::ipc : Export::none;
    handle.why = status.message();
  } else {
    handle.why = "it is from a memory pool or a mapping that was created without a shareable handle type";
  }
  out.handle = encode(handle);
  return {};
}

// One descriptor for each mapping.
Status Exporter::export_files(const std::vector<Pointer>& mappings, Allocation& out) {
  const CudaDriver& cu = devices_->driver();
  for (const Pointer& each : mappings) {
    sys::cuda::Allocation allocation = 0;
    int fd = -1;
    Status status = cu.check(cu->cuMemRetainAllocationHandle(&allocation, reinterpret_cast<void*>(each.base)),
                             "cuMemRetainAllocationHandle");
    if (status) {
      status =
          cu.check(cu->cuMemExportToShareableHandle(&fd, allocation, kHandleFile, 0), "cuMemExportToShareableHandle");
      cu->cuMemRelease(allocation);
    }
    if (!status) {
      out.files.clear();
      return status;
    }
    out.files.push_back(std::make_shared<sys::Fd>(fd));
  }
  return {};
}

void Exporter::end_export(RegionId region) {
  const std::lock_guard lock(mutex_);
  plain_.erase(handle_of(region));
  const auto found = regions_.find(handle_of(region));
  if (found == regions_.end()) return;
  const auto allocation = allocations_.find(found->second.allocation);
  if (--allocation->second.regions == 0) allocations_.erase(allocation);
  regions_.erase(found);
}

std::optional<Exporter::Plain> Exporter::plain(RegionId region) const {
  const std::lock_guard lock(mutex_);
  const auto found = plain_.find(handle_of(region));
  return found == plain_.end() ? std::nullopt : std::optional(found->second);
}

int Exporter::device_of(RegionId region) const {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(handle_of(region));
  return found == regions_.end() ? -1 : found->second.device;
}

std::vector<std::byte> Exporter::handle(RegionId region) const {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(handle_of(region));
  return found == regions_.end() ? std::vector<std::byte>() : allocations_.at(found->second.allocation).handle;
}

}  // namespace fairway::transport::cuda
