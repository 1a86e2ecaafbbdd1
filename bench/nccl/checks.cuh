#pragma once

#include <cstdio>
#include <cstdlib>

// What ends a program of this folder with the place and the reason: an error of Fairway's (its header), or of NCCL's
// (library.h), of whoever uses the macro.
#define FAIRWAY_CHECK(status)                                                               \
  do {                                                                                      \
    const fairway::Status status_ = (status);                                               \
    if (!status_) {                                                                         \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, status_.to_string().c_str()); \
      std::_Exit(3);                                                                        \
    }                                                                                       \
  } while (0)
#define NCCL_CHECK(call)                                                                                         \
  do {                                                                                                           \
    const int result_ = (call);                                                                                  \
    if (result_ != 0) {                                                                                          \
      std::fprintf(stderr, "%s:%d: NCCL: %s: %s\n", __FILE__, __LINE__, nccl::library().ncclGetErrorString(result_), \
                   nccl::library().ncclGetLastError(nullptr));                                                   \
      std::_Exit(4);                                                                                             \
    }                                                                                                            \
  } while (0)
