#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fairway/status.h"

// The CUDA driver API, called through a table that is filled at run time, so that Fairway builds without a toolkit and
// starts without a driver. Types and numbers are those of the driver's stable ABI ("CUDA Driver API", reference manual,
// modules 6.4 to 6.17), in the versions of entry points that CUDA 12 introduced or kept.
namespace fairway::sys {

namespace cuda {

using Device = int;
using Address = unsigned long long;  // a device address
using Context = struct ContextTag*;
using Stream = struct StreamTag*;
using Event = struct EventTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using Graph = struct GraphTag*;
using ReadyGraph = struct ReadyGraphTag*;  // cudaGraphExec_t
using UserObject = struct UserObjectTag*;
using Allocation = unsigned long long;  // a handle of virtual memory management

struct Uuid {
  unsigned char bytes[16];
  bool operator==(const Uuid&) const = default;
};
struct IpcHandle {
  unsigned char bytes[64];
};
struct Location {
  int type;  // kLocationDevice
  int id;
};
struct AccessDescription {
  Location location;
  int flags;
};
struct AllocationProperties {
  int type;          // kAllocationPinned
  int handle_types;  // kHandleFile
  Location location;
  void* win32;
  unsigned char compression, rdma_capable;
  unsigned short usage;
  unsigned char reserved[4];
};

struct CopyAttributes {  // of a batched copy
  int source_order;      // kInStreamOrder
  Location source_hint, target_hint;
  unsigned flags;
};

struct LaunchAttribute {
  int id;  // kEarlyLaunch
  char unused[4];
  int value;
  char room[60];  // of other attributes
};
struct LaunchConfig {
  unsigned blocks, blocks_y, blocks_z, threads, threads_y, threads_z, shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned count;
};
inline constexpr int kEarlyLaunch = 6;  // programmatic stream serialization: the kernel waits for what is ahead of it
inline constexpr int kPtxVersion = 5;   // attribute of a function: what its code was compiled for, 90 for 9.0

inline constexpr int kInStreamOrder = 1;
inline constexpr int kSuccess = 0, kErrorNotReady = 600, kErrorNotSupported = 801, kErrorPeerAccessAlreadyEnabled = 704,
                     kErrorAlreadyRegistered = 712, kErrorInvalidValue = 1;
// What is not allowed while a stream of the program captures (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED and _IMPLICIT): the
// same call may succeed later. And: the event was recorded by a stream that captures.
inline constexpr int kErrorCaptureUnsupported = 900, kErrorCaptureImplicit = 906, kErrorCapturedEvent = 907;
inline constexpr bool refused_by_capture(int result) {
  return result == kErrorCaptureUnsupported || result == kErrorCaptureImplicit;
}
inline constexpr int kLocationDevice = 1, kAllocationPinned = 1, kHandleFile = 1;
inline constexpr int kReadWrite = 3;
inline constexpr unsigned kStreamNonBlocking = 1, kHostPortable = 1, kHostMapped = 2, kIpcLazyPeerAccess = 1;
inline constexpr unsigned kEventDisableTiming = 2, kWaitAtLeast = 0;

// Attributes of pointers.
inline constexpr int kMemoryType = 2, kBufferId = 7, kIsManaged = 8, kDeviceOrdinal = 9, kIpcCapable = 10,
                     kRangeStart = 11, kRangeSize = 12, kAllowedHandleTypes = 14;
inline constexpr int kSyncCopies = 6;  // the only one that can be set
inline constexpr unsigned kTypeHost = 1, kTypeDevice = 2;
// Attributes of devices: how writes by other devices over the bus are ordered and flushed.
inline constexpr int kBusFlushOptions = 117, kBusWritesOrdering = 118;
inline constexpr int kReadsPages = 88;  // attribute of a device: its kernels access pageable memory
inline constexpr int kFlushByHost = 1, kOrderedForOwner = 100, kFlushCurrentContext = 0;
inline constexpr int kPeerAtomics = 3;      // attribute of a pair of devices
inline constexpr int kCaptureOfThread = 1;  // cuStreamBeginCapture_v2: other threads' calls are not looked at
inline constexpr int kCaptureRelaxed = 2;   // cuThreadExchangeStreamCaptureMode: this thread's calls end no capture
// Of cuStreamGetCaptureInfo; 0: it does not capture, 2: the capture has failed.
inline constexpr int kCaptureActive = 1;
inline constexpr unsigned kNoSynchronization = 1;  // of a user object: nobody waits for its destructor
inline constexpr unsigned kMoveReference = 1;      // cuGraphRetainUserObject: the caller's becomes the graph's
inline constexpr int kDmaBuf = 1;                  // handle type for an address range

// (name, arguments) of each entry point in use. A driver that lacks one is too old.
#define FAIRWAY_CUDA_ENTRIES(X)                                                               \
  X(cuInit, (unsigned))                                                                       \
  X(cuDriverGetVersion, (int*))                                                               \
  X(cuGetErrorName, (int, const char**))                                                      \
  X(cuGetErrorString, (int, const char**))                                                    \
  X(cuDeviceGetCount, (int*))                                                                 \
  X(cuDeviceGet, (Device*, int))                                                              \
  X(cuDeviceGetName, (char*, int, Device))                                                    \
  X(cuDeviceGetPCIBusId, (char*, int, Device))                                                \
  X(cuDeviceGetUuid_v2, (Uuid*, Device))                                                      \
  X(cuDeviceGetAttribute, (int*, int, Device))                                                \
  X(cuDeviceCanAccessPeer, (int*, Device, Device))                                            \
  X(cuDeviceGetP2PAttribute, (int*, int, Device, Device))                                     \
  X(cuDevicePrimaryCtxRetain, (Context*, Device))                                             \
  X(cuDevicePrimaryCtxRelease_v2, (Device))                                                   \
  X(cuDevicePrimaryCtxGetState, (Device, unsigned*, int*))                                    \
  X(cuCtxPushCurrent_v2, (Context))                                                           \
  X(cuCtxPopCurrent_v2, (Context*))                                                           \
  X(cuCtxEnablePeerAccess, (Context, unsigned))                                               \
  X(cuCtxGetId, (Context, unsigned long long*))                                               \
  X(cuCtxSynchronize, ())                                                                     \
  X(cuPointerGetAttributes, (unsigned, int*, void**, Address))                                \
  X(cuPointerSetAttribute, (const void*, int, Address))                                       \
  X(cuMemGetHandleForAddressRange, (void*, Address, std::size_t, int, unsigned long long))    \
  X(cuFlushGPUDirectRDMAWrites, (int, int))                                                   \
  X(cuIpcGetMemHandle, (IpcHandle*, Address))                                                 \
  X(cuIpcOpenMemHandle_v2, (Address*, IpcHandle, unsigned))                                   \
  X(cuIpcCloseMemHandle, (Address))                                                           \
  X(cuMemRetainAllocationHandle, (Allocation*, void*))                                        \
  X(cuMemExportToShareableHandle, (void*, Allocation, int, unsigned long long))               \
  X(cuMemImportFromShareableHandle, (Allocation*, void*, int))                                \
  X(cuMemRelease, (Allocation))                                                               \
  X(cuMemCreate, (Allocation*, std::size_t, const AllocationProperties*, unsigned long long)) \
  X(cuMemAddressReserve, (Address*, std::size_t, std::size_t, Address, unsigned long long))   \
  X(cuMemAddressFree, (Address, std::size_t))                                                 \
  X(cuMemMap, (Address, std::size_t, std::size_t, Allocation, unsigned long long))            \
  X(cuMemUnmap, (Address, std::size_t))                                                       \
  X(cuMemSetAccess, (Address, std::size_t, const AccessDescription*, std::size_t))            \
  X(cuMemAlloc_v2, (Address*, std::size_t))                                                   \
  X(cuMemAllocManaged, (Address*, std::size_t, unsigned))                                     \
  X(cuMemFree_v2, (Address))                                                                  \
  X(cuMemHostAlloc, (void**, std::size_t, unsigned))                                          \
  X(cuMemFreeHost, (void*))                                                                   \
  X(cuMemHostRegister_v2, (void*, std::size_t, unsigned))                                     \
  X(cuMemHostUnregister, (void*))                                                             \
  X(cuMemcpyAsync, (Address, Address, std::size_t, Stream))                                   \
  X(cuMemcpy, (Address, Address, std::size_t))                                                \
  X(cuMemsetD8Async, (Address, unsigned char, std::size_t, Stream))                           \
  X(cuStreamCreateWithPriority, (Stream*, unsigned, int))                                     \
  X(cuStreamDestroy_v2, (Stream))                                                             \
  X(cuStreamQuery, (Stream))                                                                  \
  X(cuStreamSynchronize, (Stream))                                                            \
  X(cuStreamWriteValue32_v2, (Stream, Address, std::uint32_t, unsigned))                      \
  X(cuStreamWaitValue32_v2, (Stream, Address, std::uint32_t, unsigned))                       \
  X(cuStreamGetCtx, (Stream, Context*))                                                       \
  X(cuStreamWaitEvent, (Stream, Event, unsigned))                                             \
  X(cuEventCreate, (Event*, unsigned))                                                        \
  X(cuEventRecord, (Event, Stream))                                                           \
  X(cuEventQuery, (Event))                                                                    \
  X(cuEventDestroy_v2, (Event))                                                               \
  X(cuModuleLoadData, (Module*, const void*))                                                 \
  X(cuModuleGetFunction, (Function*, Module, const char*))                                    \
  X(cuLaunchKernel,                                                                           \
    (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, void**, void**))

// Entry points that not every driver has; null in the table elsewhere. The batch copy is the one of 12.8, which reports
// which copy was refused; that of 13 has another name (_v2) and does not report it.
#define FAIRWAY_CUDA_NEWER_ENTRIES(X)                                                                                  \
  X(cuMemcpyBatchAsync,                                                                                                \
    (Address*, Address*, std::size_t*, std::size_t, CopyAttributes*, std::size_t*, std::size_t, std::size_t*, Stream)) \
  X(cuLaunchKernelEx, (const LaunchConfig*, Function, void**, void**))                                                 \
  X(cuFuncGetAttribute, (int*, int, Function))                                                                         \
  X(cuStreamWriteValue64_v2, (Stream, Address, std::uint64_t, unsigned))                                               \
  X(cuStreamGetId, (Stream, unsigned long long*))                                                                      \
  X(cuThreadExchangeStreamCaptureMode, (int*))                                                                         \
  X(cuStreamBeginCapture_v2, (Stream, int))                                                                            \
  X(cuStreamEndCapture, (Stream, Graph*))                                                                              \
  X(cuGraphInstantiateWithFlags, (ReadyGraph*, Graph, unsigned long long))                                             \
  X(cuGraphLaunch, (ReadyGraph, Stream))                                                                               \
  X(cuGraphExecDestroy, (ReadyGraph))                                                                                  \
  X(cuGraphDestroy, (Graph))                                                                                           \
  X(cuStreamGetCaptureInfo_v2, (Stream, int*, unsigned long long*, Graph*, void*, void*))                              \
  X(cuUserObjectCreate, (UserObject*, void*, void (*)(void*), unsigned, unsigned))                                     \
  X(cuUserObjectRelease, (UserObject, unsigned))                                                                       \
  X(cuGraphRetainUserObject, (Graph, UserObject, unsigned, unsigned))

}  // namespace cuda

class CudaPins;

// The loaded driver. Immutable after open(), but for what pins() counts; any thread.
class CudaDriver {
 public:
#define FAIRWAY_CUDA_MEMBER(name, arguments) int(*name) arguments = nullptr;
  struct Table {
    using Device = cuda::Device;
    using Address = cuda::Address;
    using Context = cuda::Context;
    using Stream = cuda::Stream;
    using Event = cuda::Event;
    using Module = cuda::Module;
    using Function = cuda::Function;
    using Graph = cuda::Graph;
    using ReadyGraph = cuda::ReadyGraph;
    using UserObject = cuda::UserObject;
    using Allocation = cuda::Allocation;
    using Uuid = cuda::Uuid;
    using IpcHandle = cuda::IpcHandle;
    using AccessDescription = cuda::AccessDescription;
    using AllocationProperties = cuda::AllocationProperties;
    using CopyAttributes = cuda::CopyAttributes;
    using LaunchConfig = cuda::LaunchConfig;
    FAIRWAY_CUDA_ENTRIES(FAIRWAY_CUDA_MEMBER)
    FAIRWAY_CUDA_NEWER_ENTRIES(FAIRWAY_CUDA_MEMBER)
  };
#undef FAIRWAY_CUDA_MEMBER

  // Loads the driver once per process: `path`, or if empty the file named by FAIRWAY_CUDA_DRIVER, or libcuda.so.1.
  // Error: unsupported, naming the reason: no driver, older than 12.0, or no device.
  static Result<std::shared_ptr<const CudaDriver>> open(const std::string& path = {});
  // The driver, if anything in this process has loaded it; null: then no memory here belongs to a GPU.
  static std::shared_ptr<const CudaDriver> in_use();
  ~CudaDriver();
  CudaDriver(const CudaDriver&) = delete;
  CudaDriver& operator=(const CudaDriver&) = delete;

  const Table& operator*() const {
    return table_;
  }
  const Table* operator->() const {
    return &table_;
  }
  int version() const {
    return version_;
  }  // for example 12040 for 12.4
  int devices() const {
    return devices_;
  }
  // Ok for kSuccess; otherwise system_error: `what` with the driver's own text. queue_full: a capture of the program's
  // refuses it, and it may succeed later.
  Status check(int result, const std::string& what) const;
  // All pinning of host memory of others than Fairway's own goes by it.
  CudaPins& pins() const {
    return *pins_;
  }

 private:
  CudaDriver();
  void* library_ = nullptr;
  Table table_;
  int version_ = 0, devices_ = 0;
  std::unique_ptr<CudaPins> pins_;
};

// As cuModuleLoadData(), in the current context, which is `context`: its kernels stay loaded for as long as the context
// lives. So only the first who needs an image waits for the kernels that run on that GPU then: the driver makes
// loading wait for them, and unloading too (H200, driver 580). `image` is compared by its address. Any thread.
int load_once(const CudaDriver& driver, cuda::Context context, const void* image, cuda::Module* module);

}  // namespace fairway::sys
