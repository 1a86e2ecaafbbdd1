#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>

#include <dlfcn.h>

// NCCL's C interface, loaded at run time, so that neither its headers nor a development package is needed. Declared
// from the facts of nccl.h; checked against 2.28.3.
struct ncclComm;
struct CUstream_st;

namespace nccl {

using Comm = ncclComm*;
using Stream = CUstream_st*;
struct UniqueId {
  char bytes[128];
};
enum Type : int {
  int8,
  uint8,
  int32,
  uint32,
  int64,
  uint64,
  float16,
  float32,
  float64,
  bfloat16,
  float8e4m3,
  float8e5m2
};
inline constexpr int kTypes = 12;
enum Reduction : int { sum, product, maximum, minimum };
inline constexpr int kInProgress = 7;
inline constexpr int kSymmetricWindow = 1;

// How many SMs operations may take: zero lets the copy engines move what they can (from 2.28 on).
enum class Policy : int { automatic = 0, zero = 2 };

// ncclConfig_t as 2.28 has it; members that nobody has set are INT_MIN or null.
struct Config {
  static constexpr int kUnset = std::numeric_limits<int>::min();
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef, version = 22800;
  int blocking = kUnset, cga_cluster_size = kUnset, min_ctas = kUnset, max_ctas = kUnset;
  const char* net_name = nullptr;
  int split_share = kUnset, traffic_class = kUnset;
  const char* comm_name = nullptr;
  int collnet_enable = kUnset, cta_policy = kUnset, shrink_share = kUnset, nvls_ctas = kUnset;
  int channels_per_net_peer = kUnset, nvlink_centric = kUnset;
};

struct Library {
  int (*ncclGetVersion)(int*);
  int (*ncclGetUniqueId)(UniqueId*);
  int (*ncclCommInitRank)(Comm*, int, UniqueId, int);
  int (*ncclCommSplit)(Comm, int color, int key, Comm*, void* config);
  int (*ncclCommDestroy)(Comm);
  int (*ncclCommAbort)(Comm);
  int (*ncclCommGetAsyncError)(Comm, int*);
  const char* (*ncclGetErrorString)(int);
  const char* (*ncclGetLastError)(Comm);
  int (*ncclAllReduce)(const void*, void*, std::size_t, Type, Reduction, Comm, Stream);
  int (*ncclReduce)(const void*, void*, std::size_t, Type, Reduction, int root, Comm, Stream);
  int (*ncclBroadcast)(const void*, void*, std::size_t, Type, int root, Comm, Stream);
  int (*ncclAllGather)(const void*, void*, std::size_t, Type, Comm, Stream);
  int (*ncclReduceScatter)(const void*, void*, std::size_t, Type, Reduction, Comm, Stream);
  int (*ncclSend)(const void*, std::size_t, Type, int peer, Comm, Stream);
  int (*ncclRecv)(void*, std::size_t, Type, int peer, Comm, Stream);
  int (*ncclGroupStart)();
  int (*ncclGroupEnd)();
  // From 2.28 on; null before.
  int (*ncclMemAlloc)(void**, std::size_t);
  int (*ncclCommInitRankConfig)(Comm*, int, UniqueId, int, Config*);
  int (*ncclCommWindowRegister)(Comm, void*, std::size_t, void** window, int flags);
  int (*ncclAlltoAll)(const void*, void*, std::size_t, Type, Comm, Stream);
};

// Loads NCCL_LIBRARY, or libnccl.so.2 from the loader's path. Prints the reason and exits when there is none.
inline const Library& library() {
  static const Library opened = [] {
    const char* path = std::getenv("NCCL_LIBRARY");
    void* handle = ::dlopen(path != nullptr ? path : "libnccl.so.2", RTLD_NOW | RTLD_GLOBAL);
    if (handle == nullptr) {
      std::fprintf(stderr, "no NCCL: %s; set NCCL_LIBRARY to libnccl.so.2\n", ::dlerror());
      std::exit(2);
    }
    Library made{};
#define FIND(name)                                                                              \
  if ((made.name = reinterpret_cast<decltype(made.name)>(::dlsym(handle, #name))) == nullptr) { \
    std::fprintf(stderr, "this NCCL has no %s\n", #name);                                       \
    std::exit(2);                                                                               \
  }
    FIND(ncclGetVersion)
    FIND(ncclGetUniqueId)
    FIND(ncclCommInitRank)
    FIND(ncclCommSplit)
    FIND(ncclCommDestroy)
    FIND(ncclCommAbort)
    FIND(ncclCommGetAsyncError)
    FIND(ncclGetErrorString)
    FIND(ncclGetLastError)
    FIND(ncclAllReduce)
    FIND(ncclReduce)
    FIND(ncclBroadcast)
    FIND(ncclAllGather)
    FIND(ncclReduceScatter)
    FIND(ncclSend)
    FIND(ncclRecv)
    FIND(ncclGroupStart)
    FIND(ncclGroupEnd)
#undef FIND
#define LOOK_FOR(name) made.name = reinterpret_cast<decltype(made.name)>(::dlsym(handle, #name));
    LOOK_FOR(ncclMemAlloc)
    LOOK_FOR(ncclCommInitRankConfig)
    LOOK_FOR(ncclCommWindowRegister)
    LOOK_FOR(ncclAlltoAll)
#undef LOOK_FOR
    return made;
  }();
  return opened;
}

}  // namespace nccl
