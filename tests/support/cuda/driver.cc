// size: one table of entry points, in the order of the real one
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/cuda/exported.h"
#include "support/cuda/kernels.h"
#include "support/cuda/memory.h"
#include "support/cuda/stream.h"

// A stand-in CUDA driver for machines without a GPU: the entry points that Fairway uses, with memory files as device
// memory and threads as streams. It is stricter than the real driver: common mistakes fail (a copy without a current
// context, on the default stream, or to memory that the device may not access).
//
// Environment variables: FAIRWAY_STANDIN_DEVICES: number of devices. FAIRWAY_STANDIN_SPOIL: a number; that copy between
// devices has a wrong byte. FAIRWAY_STANDIN_NO_DMABUF, if set: memory cannot be exported. FAIRWAY_STANDIN_FULL, if set:
// there is no memory left. FAIRWAY_STANDIN_UNORDERED, if set: writes by other devices need a flush. It behaves as CUDA
// 12.8; built with FAIRWAY_STANDIN_OLD as 12.4, without newer entry points.
namespace standin {
namespace {

using namespace fairway::sys::cuda;

constexpr int kInvalidValue = 1, kOutOfMemory = 2, kInvalidContext = 201, kInvalidHandle = 400, kIllegalAddress = 700,
              kCapturing = 900;
constexpr std::uint64_t kGranule = 2u << 20;

int device_count() {
  const char* set = std::getenv("FAIRWAY_STANDIN_DEVICES");
  return set != nullptr ? std::atoi(set) : 2;
}
int first_device() {  // the process's first one of the machine's, as CUDA_VISIBLE_DEVICES has it
  return std::getenv("FAIRWAY_STANDIN_FIRST") != nullptr ? std::atoi(std::getenv("FAIRWAY_STANDIN_FIRST")) : 0;
}

struct Contexts {
  std::array<char, 16> tags{};  // a context handle is the address of its device's tags
  std::array<std::atomic<int>, 16> retained{};
  Context of(int device) { return reinterpret_cast<Context>(&tags[static_cast<std::size_t>(device)]); }
  int device_of(Context context) { return static_cast<int>(reinterpret_cast<char*>(context) - tags.data()); }
} contexts;

thread_local std::vector<Context> current;

bool no_context() {
  return current.empty();
}

struct IpcContents {
  pid_t pid;
  int fd, device;
  std::uint64_t size;
};

std::atomic<unsigned long> slow_calls{0};  // calls that a real driver may delay until running kernels end
std::atomic<unsigned long> stream_copies{0}, stream_batches{0};
std::atomic<long> refused_copy{-1};
std::atomic<void (*)(int device)> on_flush{nullptr};
std::atomic<bool> copies_held{false}, closings_held{false}, openings_held{false};

// As where a kernel of the program's runs.
void closing_waits() {
  while (closings_held) ::usleep(100);
}
void opening_waits() {
  while (openings_held) ::usleep(100);
}

// The driver refuses a copy that begins in pinned host memory and ends outside of that.
bool leaves_pinned(Address at, std::size_t size) {
  Range range;
  return Memory::get().find(at, range) && range.kind == Kind::pinned && at - range.base + size > range.size;
}

}  // namespace
}  // namespace standin

using namespace standin;
using namespace fairway::sys::cuda;

#pragma GCC visibility push(default)
extern "C" {

// For tests: the number of slow calls.
unsigned long fairway_standin_slow_calls() {
  return slow_calls.load();
}

// For tests: the number of copies posted to streams through copy-engine calls.
unsigned long fairway_standin_stream_copies() {
  return stream_copies.load();
}

// For tests: the number of batch copy calls.
unsigned long fairway_standin_stream_batches() {
  return stream_batches.load();
}

// For tests: batch calls refuse the copy with this number, counted from 0; -2: all copies; -1: none.
void fairway_standin_refuse_in_batches(long number) {
  refused_copy = number;
}

// For tests: the next copy has a wrong byte.
void fairway_standin_spoil_a_copy() {
  Memory::get().spoils = true;
}
// While on, a device's writes to another device's memory are lost.
void fairway_standin_lose_peer_writes(bool on) {
  Memory::get().loses_peer_writes = on;
}
// While on, stream copies are stalled.
void fairway_standin_hold_copies(bool on) {
  copies_held = on;
}
// While on, calls wait that a running kernel may hold up: that close; cuMemHostRegister and cuIpcGetMemHandle.
void fairway_standin_hold_closings(bool on) {
  closings_held = on;
}
void fairway_standin_hold_openings(bool on) {
  openings_held = on;
}
// Sets a function that a flush calls: for a NIC that holds back its writes.
void fairway_standin_on_flush(void (*call)(int device)) {
  on_flush = call;
}
// Where the bytes of device memory are accessible, as a NIC learns from a peer-memory module.
bool fairway_standin_where(std::uint64_t address, std::uint64_t size, Exported* out) {
  Range range;
  if (!Memory::get().find(address, range) || range.kind != Kind::device) return false;
  if (address - range.base + size > range.size) return false;
  *out = {Exported::kMagic, range.shadow + (address - range.base), size, range.backing->device};
  return true;
}

int cuInit(unsigned) {
  return kSuccess;
}
int cuDriverGetVersion(int* version) {
#ifdef FAIRWAY_STANDIN_OLD
  *version = 12040;
#else
  *version = 12080;
#endif
  return kSuccess;
}
int cuGetErrorName(int code, const char** name) {
  static thread_local std::string text;
  text = "STANDIN_ERROR_" + std::to_string(code);
  *name = text.c_str();
  return kSuccess;
}
int cuGetErrorString(int code, const char** words) {
  switch (code) {
    case kInvalidValue: *words = "invalid argument"; break;
    case kOutOfMemory: *words = "out of memory"; break;
    case kInvalidContext: *words = "no context is current"; break;
    case kIllegalAddress: *words = "an illegal memory access was encountered"; break;
    default: *words = "failed";
  }
  return kSuccess;
}

// ---- devices and contexts ----

int cuDeviceGetCount(int* count) {
  *count = device_count();
  return kSuccess;
}
int cuDeviceGet(Device* device, int index) {
  *device = index;
  return index >= 0 && index < device_count() ? kSuccess : kInvalidValue;
}
int cuDeviceGetName(char* name, int size, Device) {
  std::strncpy(name, "Stand-in GPU", static_cast<std::size_t>(size));
  return kSuccess;
}
int cuDeviceGetPCIBusId(char* id, int size, Device device) {  // as in tests/machines/h200_x2.json
  std::snprintf(id, static_cast<std::size_t>(size), "0000:00:%02X.0", 6 + first_device() + device);
  return kSuccess;
}
int cuDeviceGetUuid_v2(Uuid* uuid, Device device) {
  std::memset(uuid->bytes, 0x5a, sizeof uuid->bytes);
  uuid->bytes[0] = static_cast<unsigned char>(first_device() + device);
  return kSuccess;
}
int cuDeviceGetAttribute(int* value, int attribute, Device device) {
  if (device < 0 || device >= device_count()) return kInvalidValue;
  const bool ordered = std::getenv("FAIRWAY_STANDIN_UNORDERED") == nullptr;
  switch (attribute) {
    case kBusWritesOrdering: *value = ordered ? kOrderedForOwner : 0; return kSuccess;
    case kBusFlushOptions: *value = kFlushByHost; return kSuccess;
    default: return kInvalidValue;
  }
}
int cuDeviceCanAccessPeer(int* can, Device, Device) {
  *can = 1;
  return kSuccess;
}
int cuDeviceGetP2PAttribute(int* value, int attribute, Device, Device) {
  *value = std::getenv("FAIRWAY_STANDIN_NO_NVLINK") == nullptr ? 1 : 0;
  return attribute == kPeerAtomics ? kSuccess : kInvalidValue;
}
int cuDevicePrimaryCtxRetain(Context* context, Device device) {
  if (device < 0 || device >= device_count()) return kInvalidValue;
  ++contexts.retained[static_cast<std::size_t>(device)];
  *context = contexts.of(device);
  return kSuccess;
}
int cuDevicePrimaryCtxGetState(Device device, unsigned* flags, int* active) {
  if (device < 0 || device >= device_count()) return kInvalidValue;
  *flags = 0;
  *active = contexts.retained[static_cast<std::size_t>(device)] > 0 ? 1 : 0;
  return kSuccess;
}
int cuDevicePrimaryCtxRelease_v2(Device device) {
  if (device < 0 || device >= device_count()) return kInvalidValue;
  --contexts.retained[static_cast<std::size_t>(device)];
  return kSuccess;
}
int cuCtxPushCurrent_v2(Context context) {
  current.push_back(context);
  return kSuccess;
}
int cuCtxPopCurrent_v2(Context* context) {
  if (no_context()) return kInvalidContext;
  *context = current.back();
  current.pop_back();
  return kSuccess;
}
int cuCtxEnablePeerAccess(Context, unsigned) {
  ++slow_calls;
  return no_context() ? kInvalidContext : kSuccess;
}
int cuCtxGetId(Context context, unsigned long long* number) {
  return (*number = reinterpret_cast<std::uintptr_t>(context)) != 0 ? kSuccess : kInvalidContext;
}
int cuCtxSynchronize() {
  if (refuses_unsafe_call()) return kErrorCaptureUnsupported;
  if (no_context()) return kInvalidContext;
  standin::Stream::synchronize_all(contexts.device_of(current.back()));
  return kSuccess;
}

// ---- memory ----

int cuMemAlloc_v2(Address* address, std::size_t size) {
  if (refuses_unsafe_call()) return kErrorCaptureUnsupported;
  if (no_context()) return kInvalidContext;
  if (std::getenv("FAIRWAY_STANDIN_FULL") != nullptr) return kOutOfMemory;
  auto backing = Memory::get().back(size, contexts.device_of(current.back()), false, true);
  *address = backing ? Memory::get().map(std::move(backing), Kind::device) : 0;
  return *address != 0 ? kSuccess : kOutOfMemory;
}
int cuMemAllocManaged(Address* address, std::size_t size, unsigned) {
  if (no_context()) return kInvalidContext;
  auto backing = Memory::get().back(size, contexts.device_of(current.back()), false, false);
  *address = backing ? Memory::get().map(std::move(backing), Kind::managed) : 0;
  return *address != 0 ? kSuccess : kOutOfMemory;
}
int cuMemFree_v2(Address address) {
  if (refuses_unsafe_call()) return kErrorCaptureUnsupported;
  closing_waits();
  return Memory::get().unmap(address) ? kSuccess : kInvalidValue;
}
int cuMemHostAlloc(void** address, std::size_t size, unsigned) {
  if (refuses_unsafe_call()) return kErrorCaptureUnsupported;
  ++slow_calls;
  void* place = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (place == MAP_FAILED) return kOutOfMemory;
  Memory::get().add_host(place, size);
  *address = place;
  return kSuccess;
}
int cuMemFreeHost(void* address) {
  if (refuses_unsafe_call()) return kErrorCaptureUnsupported;
  closing_waits();
  Range range;
  if (!Memory::get().find(reinterpret_cast<Address>(address), range)) return kInvalidValue;
  Memory::get().remove_host(address);
  ::munmap(address, range.size);
  return kSuccess;
}
int cuMemHostRegister_v2(void* address, std::size_t size, unsigned) {
  if (refuses_unsafe_call()) return kErrorCaptureUnsupported;
  ++slow_calls;
  opening_waits();
  return Memory::get().add_host(address, size) ? kSuccess : kErrorAlreadyRegistered;
}
int cuMemHostUnregister(void* address) {
  if (refuses_unsafe_call()) return kErrorCaptureUnsupported;
  closing_waits();
  return Memory::get().remove_host(address) ? kSuccess : kInvalidValue;
}

int cuPointerGetAttributes(unsigned count, int* attributes, void** answers, Address address) {
  Range range;
  const bool known = Memory::get().find(address, range);
  const bool device = known && range.kind != Kind::pinned;
  const unsigned long long id = range.id;
  if (known) Memory::get().extend(range);
  for (unsigned i = 0; i < count; ++i) {
    switch (attributes[i]) {
      case kMemoryType: *static_cast<unsigned*>(answers[i]) = !known ? 0 : device ? kTypeDevice : kTypeHost; break;
      case kIsManaged: *static_cast<unsigned*>(answers[i]) = known && range.kind == Kind::managed; break;
      case kDeviceOrdinal: *static_cast<int*>(answers[i]) = device ? range.backing->device : -1; break;
      case kBufferId: *static_cast<unsigned long long*>(answers[i]) = id; break;
      case kRangeStart: *static_cast<Address*>(answers[i]) = range.base; break;
      case kRangeSize: *static_cast<std::size_t*>(answers[i]) = range.size; break;
      case kIpcCapable:
        *static_cast<unsigned*>(answers[i]) = device && !range.backing->vmm && range.backing->lendable;
        break;
      case kAllowedHandleTypes:
        *static_cast<unsigned long long*>(answers[i]) = device && range.backing->vmm && range.backing->lendable;
        break;
      default: return kInvalidValue;
    }
  }
  return kSuccess;
}

int cuPointerSetAttribute(const void* value, int attribute, Address address) {
  Range range;
  if (no_context()) return kInvalidContext;
  return attribute == kSyncCopies && *static_cast<const unsigned*>(value) == 1 && Memory::get().find(address, range)
             ? kSuccess
             : kInvalidValue;
}
int cuFlushGPUDirectRDMAWrites(int target, int scope) {
  if (no_context()) return kInvalidContext;
  if (target != kFlushCurrentContext || scope != kOrderedForOwner) return kInvalidValue;
  if (const auto call = on_flush.load()) call(contexts.device_of(current.back()));
  return kSuccess;
}

// ---- lending ----

int cuMemGetHandleForAddressRange(void* handle, Address address, std::size_t size, int type, unsigned long long flags) {
  constexpr std::uint64_t kPage = 4096;
  if (std::getenv("FAIRWAY_STANDIN_NO_DMABUF") != nullptr) return kErrorNotSupported;
  if (no_context()) return kInvalidContext;
  Range range;
  if (type != kDmaBuf || flags != 0 || address % kPage != 0 || size % kPage != 0 || size == 0) return kInvalidValue;
  if (!Memory::get().find(address, range) || range.kind != Kind::device) return kInvalidValue;
  const std::uint64_t pages = (range.size + kPage - 1) / kPage * kPage;
  if (address - range.base + size > pages) return kInvalidValue;
  const int file = ::memfd_create("standin-dmabuf", MFD_CLOEXEC);
  const Exported says{Exported::kMagic, range.shadow + (address - range.base), size, range.backing->device};
  if (file < 0 || ::write(file, &says, sizeof says) != sizeof says) return kOutOfMemory;
  *static_cast<int*>(handle) = file;
  return kSuccess;
}

int cuIpcGetMemHandle(IpcHandle* handle, Address address) {
  Range range;
  if (no_context()) return kInvalidContext;
  opening_waits();
  if (!Memory::get().find(address, range) || range.kind != Kind::device || range.backing->vmm) return kInvalidValue;
  const IpcContents contents{::getpid(), range.backing->file.get(), range.backing->device, range.size};
  std::memset(handle->bytes, 0, sizeof handle->bytes);
  std::memcpy(handle->bytes, &contents, sizeof contents);
  return kSuccess;
}
int cuIpcOpenMemHandle_v2(Address* address, IpcHandle handle, unsigned) {
  if (refuses_unsafe_call()) return kErrorCaptureUnsupported;
  ++slow_calls;
  if (no_context()) return kInvalidContext;
  IpcContents contents{};
  std::memcpy(&contents, handle.bytes, sizeof contents);
  if (contents.pid == ::getpid()) return kInvalidContext;  // as the real driver does
  const std::string path = "/proc/" + std::to_string(contents.pid) + "/fd/" + std::to_string(contents.fd);
  auto backing = std::make_shared<Backing>();
  backing->file = fairway::sys::Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  backing->size = contents.size;
  backing->device = contents.device;
  if (!backing->file) return kInvalidHandle;
  *address = Memory::get().map(std::move(backing), Kind::device);
  return *address != 0 ? kSuccess : kOutOfMemory;
}
int cuIpcCloseMemHandle(Address address) {
  if (refuses_unsafe_call()) return kErrorCaptureUnsupported;
  closing_waits();
  return no_context() ? kInvalidContext : Memory::get().unmap(address) ? kSuccess : kInvalidValue;
}

int cuMemCreate(Allocation* allocation, std::size_t size, const AllocationProperties* properties, unsigned long long) {
  if (size % kGranule != 0) return kInvalidValue;
  auto backing = Memory::get().back(size, properties->location.id, true, (properties->handle_types & kHandleFile) != 0);
  if (!backing) return kOutOfMemory;
  *allocation = reinterpret_cast<Allocation>(new std::shared_ptr<Backing>(std::move(backing)));
  return kSuccess;
}
int cuMemRetainAllocationHandle(Allocation* allocation, void* address) {
  Range range;
  if (!Memory::get().find(reinterpret_cast<Address>(address), range) || !range.backing || !range.backing->vmm)
    return kInvalidValue;
  *allocation = reinterpret_cast<Allocation>(new std::shared_ptr<Backing>(range.backing));
  return kSuccess;
}
int cuMemRelease(Allocation allocation) {
  delete reinterpret_cast<std::shared_ptr<Backing>*>(allocation);
  return kSuccess;
}
int cuMemExportToShareableHandle(void* out, Allocation allocation, int type, unsigned long long) {
  const auto& backing = *reinterpret_cast<std::shared_ptr<Backing>*>(allocation);
  if (type != kHandleFile || !backing->lendable) return kInvalidValue;
  *static_cast<int*>(out) = ::fcntl(backing->file.get(), F_DUPFD_CLOEXEC, 0);
  return kSuccess;
}
int cuMemImportFromShareableHandle(Allocation* allocation, void* os_handle, int type) {
  struct stat facts {};
  auto backing = std::make_shared<Backing>();
  backing->file =
      fairway::sys::Fd(::fcntl(static_cast<int>(reinterpret_cast<std::intptr_t>(os_handle)), F_DUPFD_CLOEXEC, 0));
  if (type != kHandleFile || !backing->file || ::fstat(backing->file.get(), &facts) != 0) return kInvalidValue;
  backing->size = static_cast<std::uint64_t>(facts.st_size);
  backing->vmm = true;
  *allocation = reinterpret_cast<Allocation>(new std::shared_ptr<Backing>(std::move(backing)));
  return kSuccess;
}
int cuMemAddressReserve(Address* address, std::size_t size, std::size_t, Address, unsigned long long) {
  // Aligned as the driver's are. mmap() promises a page; only some kernels align what is large.
  constexpr Address kAligned = 2 << 20;
  void* place = ::mmap(nullptr, size + kAligned, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) return kOutOfMemory;
  const auto begin = reinterpret_cast<Address>(place);
  *address = (begin + kAligned - 1) / kAligned * kAligned;
  if (*address != begin) ::munmap(place, *address - begin);
  ::munmap(reinterpret_cast<void*>(*address + size), begin + kAligned - *address);
  return kSuccess;
}
int cuMemAddressFree(Address address, std::size_t size) {
  return ::munmap(reinterpret_cast<void*>(address), size) == 0 ? kSuccess : kInvalidValue;
}
int cuMemMap(Address address, std::size_t size, std::size_t, Allocation allocation, unsigned long long) {
  const auto& backing = *reinterpret_cast<std::shared_ptr<Backing>*>(allocation);
  if (size != backing->size) return kInvalidValue;
  return Memory::get().map(backing, Kind::device, address) != 0 ? kSuccess : kOutOfMemory;
}
int cuMemUnmap(Address address, std::size_t) {
  return Memory::get().unmap(address) ? kSuccess : kInvalidValue;
}
int cuMemSetAccess(Address address, std::size_t size, const AccessDescription* access, std::size_t count) {
  ++slow_calls;
  for (std::size_t i = 0; i < count; ++i)
    if (!Memory::get().allow(address, size, access[i].location.id)) return kInvalidValue;
  return kSuccess;
}

// ---- copies, streams ----

int cuMemcpy(Address to, Address from, std::size_t size) {
  if (no_context()) return kInvalidContext;
  const int device = contexts.device_of(current.back());
  return Memory::get().copy(to, from, size, device) ? kSuccess : kIllegalAddress;
}
int cuMemsetD8Async(Address to, unsigned char value, std::size_t size, fairway::sys::cuda::Stream stream) {
  if (no_context() || stream == nullptr) return kInvalidContext;
  auto* queue = reinterpret_cast<standin::Stream*>(stream);
  queue->post([to, value, size, device = queue->device()] { return Memory::get().set(to, value, size, device); });
  return kSuccess;
}
int cuMemcpyAsync(Address to, Address from, std::size_t size, fairway::sys::cuda::Stream stream) {
  if (no_context() || stream == nullptr) return kInvalidContext;
  if (size != 0 && (to == 0 || from == 0)) return kInvalidValue;
  if (leaves_pinned(to, size) || leaves_pinned(from, size)) return kInvalidValue;
  ++stream_copies;
  auto* queue = reinterpret_cast<standin::Stream*>(stream);
  queue->post([to, from, size, device = queue->device()] {
    while (copies_held) ::usleep(100);
    return Memory::get().copy(to, from, size, device);
  });
  return kSuccess;
}
#ifndef FAIRWAY_STANDIN_OLD
// Behaves as 12.8 on a driver of version 580 (bench/nccl/copies.cu --answers). A bad call copies nothing and names no
// copy. A bad copy ends the call there, with the earlier copies already submitted. Copies run last to first, so that
// code which relies on an order fails.
int cuMemcpyBatchAsync(Address* to, Address* from, std::size_t* sizes, std::size_t count, CopyAttributes* attributes,
                       std::size_t* firsts, std::size_t described, std::size_t* failed,
                       fairway::sys::cuda::Stream stream) {
  *failed = ~std::size_t{0};
  if (no_context()) return kInvalidContext;
  if (stream == nullptr || count == 0 || to == nullptr || from == nullptr || sizes == nullptr) return kInvalidValue;
  if (attributes == nullptr || firsts == nullptr || described != 1 || firsts[0] != 0) return kInvalidValue;
  if (attributes->source_order != kInStreamOrder) return kInvalidValue;
  ++stream_batches;
  if (refused_copy == -2) return kInvalidValue;
  std::size_t good = 0;
  while (good < count && static_cast<long>(good) != refused_copy && to[good] != 0 && from[good] != 0 &&
         sizes[good] != 0 && !leaves_pinned(to[good], sizes[good]) && !leaves_pinned(from[good], sizes[good]))
    ++good;
  struct Part {
    Address to, from;
    std::size_t size;
  };
  std::vector<Part> parts;
  for (std::size_t i = good; i-- > 0;) parts.push_back({to[i], from[i], sizes[i]});
  auto* queue = reinterpret_cast<standin::Stream*>(stream);
  queue->post([parts, device = queue->device()] {
    while (copies_held) ::usleep(100);
    for (const Part& part : parts)
      if (!Memory::get().copy(part.to, part.from, part.size, device)) return false;
    return true;
  });
  if (good == count) return kSuccess;
  *failed = good;
  return kInvalidValue;
}
#endif
int cuStreamCreateWithPriority(fairway::sys::cuda::Stream* stream, unsigned, int) {
  ++slow_calls;
  if (no_context()) return kInvalidContext;
  *stream = reinterpret_cast<fairway::sys::cuda::Stream>(new standin::Stream(contexts.device_of(current.back())));
  return kSuccess;
}
int cuStreamDestroy_v2(fairway::sys::cuda::Stream stream) {
  delete reinterpret_cast<standin::Stream*>(stream);
  return kSuccess;
}
int cuStreamQuery(fairway::sys::cuda::Stream stream) {
  if (refuses_unsafe_call()) return kErrorCaptureUnsupported;
  switch (reinterpret_cast<standin::Stream*>(stream)->state()) {
    case standin::Stream::State::idle: return kSuccess;
    case standin::Stream::State::busy: return kErrorNotReady;
    case standin::Stream::State::failed: break;
  }
  return kIllegalAddress;
}
int cuStreamSynchronize(fairway::sys::cuda::Stream stream) {
  if (refuses_unsafe_call()) return kErrorCaptureUnsupported;
  if (reinterpret_cast<standin::Stream*>(stream)->capture() != nullptr) return kCapturing;
  return reinterpret_cast<standin::Stream*>(stream)->synchronize() ? kSuccess : kIllegalAddress;
}
int cuStreamWriteValue32_v2(fairway::sys::cuda::Stream stream, Address address, std::uint32_t value, unsigned) {
  reinterpret_cast<standin::Stream*>(stream)->post([address, value] {
    std::atomic_ref(*reinterpret_cast<std::uint32_t*>(address)).store(value, std::memory_order_release);
    return true;
  });
  return kSuccess;
}
int cuStreamWriteValue64_v2(fairway::sys::cuda::Stream stream, Address address, std::uint64_t value, unsigned) {
  auto* queue = reinterpret_cast<standin::Stream*>(stream);
  queue->post([address, value, device = queue->device()] {
    std::atomic_thread_fence(std::memory_order_release);
    return Memory::get().copy(address, reinterpret_cast<Address>(&value), sizeof value, device);
  });
  return kSuccess;
}
int cuStreamWaitValue32_v2(fairway::sys::cuda::Stream stream, Address address, std::uint32_t value, unsigned) {
  reinterpret_cast<standin::Stream*>(stream)->post([address, value] {
    while (static_cast<std::int32_t>(std::atomic_ref(*reinterpret_cast<std::uint32_t*>(address)).load() - value) < 0)
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    return true;
  });
  return kSuccess;
}
int cuStreamGetCtx(fairway::sys::cuda::Stream stream, Context* context) {
  *context = contexts.of(reinterpret_cast<standin::Stream*>(stream)->device());
  return kSuccess;
}

// ---- kernels: found by name, whatever the code ----

int cuModuleLoadData(Module* module, const void*) {
  ++slow_calls;
  *module = reinterpret_cast<Module>(&slow_calls);
  return cuCtxSynchronize();  // driver 580 waits for what runs
}
int cuModuleGetFunction(Function* function, Module, const char* name) {
  *function = reinterpret_cast<Function>(const_cast<Kernel*>(find_kernel(name)));
  return *function != nullptr ? kSuccess : kInvalidHandle;
}
int cuLaunchKernel(Function function, unsigned, unsigned, unsigned, unsigned threads, unsigned, unsigned, unsigned,
                   fairway::sys::cuda::Stream stream, void** arguments, void**) {
  if (no_context()) return kInvalidContext;
  if (stream == nullptr || threads == 0 || threads > 1024) return kInvalidValue;
  auto& on = *reinterpret_cast<standin::Stream*>(stream);
  on.post(reinterpret_cast<const Kernel*>(function)->bind(on.device(), arguments));
  return kSuccess;
}
int cuLaunchKernelEx(const LaunchConfig* config, Function function, void** arguments, void** extra) {
  if (config->count != 1 || config->attributes->id != kEarlyLaunch || config->attributes->value != 1)
    return kInvalidValue;
  return cuLaunchKernel(function, config->blocks, 1, 1, config->threads, 1, 1, 0, config->stream, arguments, extra);
}
int cuFuncGetAttribute(int* value, int attribute, Function) {
  if (attribute == kPtxVersion) *value = 90;
  return attribute == kPtxVersion ? kSuccess : kInvalidValue;
}
}
#pragma GCC visibility pop
