#pragma once

#include <cstddef>
#include <cstdint>

// What NCCL and its net plugins share besides the tables (tables.h). Declared here from the facts of NCCL's public
// headers, so that the build needs neither NCCL nor CUDA. Checked against NCCL 2.28.3 and 2.30.7.
namespace fairway::nccl::abi {

// ncclResult_t. Unscoped and as large as an int, as in C.
enum Code : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

// ncclDebugLogLevel, and the values of ncclDebugLogSubSys that concern a network.
enum LogLevel : int { kWarn = 2, kInfo = 3, kTrace = 5 };
inline constexpr unsigned long kInit = 0x1, kNet = 0x10, kEnvironment = 0x80, kRegistration = 0x2000;
using Logger = void (*)(LogLevel level, unsigned long subsystems, const char* file, int line, const char* format, ...);
// ncclProfilerCallback_t. This plugin has no profiler events and never calls it.
using Profiler = Code (*)(void** event, int type, void* handle, std::int64_t plugin, void* data);

inline constexpr std::size_t kHandleBytes = 128;  // NCCL_NET_HANDLE_MAXSIZE
inline constexpr int kPointerHost = 1, kPointerCuda = 2, kPointerDmaBuf = 4;
inline constexpr int kMostRequests = 32;  // in flight on one connection
inline constexpr int kMostReceives = 8;   // in one grouped receive; the same as NCCL_NET_IB_MAX_RECVS
inline constexpr std::size_t kMostBytes = std::size_t{1} << 30;   // MAX_NET_SIZE: the largest message
inline constexpr std::uintptr_t kOptionalCompletion = 1;          // value of *request on entry to irecv
inline constexpr int kUndefined = -1;                             // NCCL_NET_ID_UNDEF
inline constexpr int kDeviceHost = 0, kDeviceInvalidVersion = 0;  // ncclNetDeviceType: no offload to a GPU

// ncclNetDeviceHandle_t, for plugins with device code. This plugin has none and never reads it.
struct DeviceHandle;

// ncclNetCommConfig_t.
struct Config {
  int traffic_class;
};

// ncclNetVDeviceProps_t: physical devices fused into one. At most four up to v11, eight from v12.
template <int Most>
struct VirtualDevice {
  int count;
  int devices[Most];
};

}  // namespace fairway::nccl::abi
