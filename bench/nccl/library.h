#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
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
    return made;
  }();
  return opened;
}

}  // namespace nccl
