#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <string>

#include "fairway/collectives.h"
#include "fairway/status.h"

// NCCL's C interface, found at run time: neither its header nor its library is needed to build or to start. Declared
// from what its documentation says of each call; structures as in 2.18, which later versions read by their `size`.
namespace fairway::collectives::nccl {

using Comm = struct CommTag*;
using Stream = void*;  // cudaStream_t
struct UniqueId {
  char bytes[128];
};
// Of ncclResult_t and ncclDataType_t, ncclRedOp_t.
inline constexpr int kSuccess = 0, kInProgress = 7;
inline constexpr int kInt8 = 0, kUint8 = 1, kInt32 = 2, kUint32 = 3, kInt64 = 4, kUint64 = 5, kFloat16 = 6,
                     kFloat32 = 7, kFloat64 = 8, kBfloat16 = 9;
inline constexpr int kSum = 0, kProduct = 1, kMax = 2, kMin = 3, kAverage = 4;

struct Config {
  static constexpr int kUnset = std::numeric_limits<int>::min();
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef, version = 21800;
  int blocking = kUnset, cga_cluster_size = kUnset, min_ctas = kUnset, max_ctas = kUnset;
  const char* net_name = nullptr;
  int split_share = kUnset;
};

// (name, arguments) of each function in use, each of which returns a result.
#define FAIRWAY_NCCL_ENTRIES(X)                                                                     \
  X(ncclGetVersion, (int*))                                                                         \
  X(ncclGetUniqueId, (UniqueId*))                                                                   \
  X(ncclCommInitRankConfig, (Comm*, int ranks, UniqueId, int rank, Config*))                        \
  X(ncclCommFinalize, (Comm))                                                                       \
  X(ncclCommDestroy, (Comm))                                                                        \
  X(ncclCommAbort, (Comm))                                                                          \
  X(ncclCommGetAsyncError, (Comm, int*))                                                            \
  X(ncclAllReduce, (const void*, void*, std::size_t, int type, int reduction, Comm, Stream))        \
  X(ncclBroadcast, (const void*, void*, std::size_t, int type, int root, Comm, Stream))             \
  X(ncclAllGather, (const void*, void*, std::size_t, int type, Comm, Stream))                       \
  X(ncclReduceScatter, (const void*, void*, std::size_t, int type, int reduction, Comm, Stream))    \
  X(ncclReduce, (const void*, void*, std::size_t, int type, int reduction, int root, Comm, Stream)) \
  X(ncclSend, (const void*, std::size_t, int type, int peer, Comm, Stream))                         \
  X(ncclRecv, (void*, std::size_t, int type, int peer, Comm, Stream))                               \
  X(ncclGroupStart, ())                                                                             \
  X(ncclGroupEnd, ())

// A loaded library. Immutable; any thread. It stays loaded: it may have started threads of its own.
class Library {
 public:
  static constexpr int kOldest = 21800, kTooNew = 30000;

#define FAIRWAY_NCCL_MEMBER(name, arguments) int(*name) arguments = nullptr;
  struct Table {
    FAIRWAY_NCCL_ENTRIES(FAIRWAY_NCCL_MEMBER)
  };
#undef FAIRWAY_NCCL_MEMBER

  // `path`, or if it is empty the file that FAIRWAY_NCCL_LIBRARY names, or if that is not set the libnccl.so.2 that
  // something in this process has loaded, such as PyTorch; none is searched for. Error: unsupported, and why.
  static Result<std::shared_ptr<const Library>> open(const std::string& path);

  const Table* operator->() const {
    return &table_;
  }
  [[nodiscard]] int version() const {
    return version_;
  }                                                // 22809
  [[nodiscard]] std::string version_text() const;  // "2.28.9"
  [[nodiscard]] const std::string& path() const {
    return path_;
  }  // where it was found
  // Ok for kSuccess; otherwise system_error: `what` with the library's own text.
  [[nodiscard]] Status check(int result, const std::string& what) const;

 private:
  Library() = default;
  Table table_;
  const char* (*error_string_)(int) = nullptr;
  int version_ = 0;
  std::string path_;
};

std::string version_text(int version);

// Fairway's operations on streams as calls of NCCL.

// A communicator of NCCL's, and whose.
struct Member {
  Comm comm = nullptr;
  int rank = 0, size = 1;
};

// Whether NCCL does what that call asks for. The same on every rank.
bool can(const Collective& call);

// What it can do, and all_to_allv: NCCL's result. With the GPU's context; what is only moved is bytes.
int enqueue(const Library& library, const Collective& call, const Member& as, void* stream);
int enqueue(const Library& library, std::span<const StreamMessage> group, const Member& as, void* stream);

}  // namespace fairway::collectives::nccl
