#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include <cuda_runtime.h>

#include "checks.cuh"
#include "library.h"

// NCCL's collectives in each of the ways that it has: as programs mostly call it; with buffers registered as symmetric
// windows; and with the copy engines moving what they can ("zero", for zero SMs). Those of a library that is too old
// are left out.
namespace nccl {

class Ways {
 public:
  // Of one rank. `share` gives rank 0's id to all, a collective call. The buffers are of `bytes` each, from
  // ncclMemAlloc where there is one.
  Ways(int ranks, int rank, const std::function<void(UniqueId&)>& share) : ranks_(ranks), rank_(rank) {
    add("plain", Policy::automatic, share);
    if (library().ncclMemAlloc == nullptr || library().ncclCommWindowRegister == nullptr ||
        library().ncclCommInitRankConfig == nullptr)
      return;
    add("windows", Policy::automatic, share);
    add("zero", Policy::zero, share);
  }
  [[nodiscard]] int count() const { return static_cast<int>(ways_.size()); }
  [[nodiscard]] const char* name(int way) const { return ways_[way].name; }

  // Registers them with all but the plain way. A collective call.
  void use(void* input, void* output, std::size_t bytes) {
    for (std::size_t way = 1; way < ways_.size(); ++way)
      for (void* buffer : {input, output}) {
        void* window = nullptr;  // until the process ends
        NCCL_CHECK(library().ncclCommWindowRegister(ways_[way].comm, buffer, bytes, &window, kSymmetricWindow));
      }
  }
  // kind: as in collective_values.cuh. count: elements of a block.
  void run(int way, int kind, const unsigned char* input, unsigned char* output, std::size_t count, Type type,
           std::size_t width, cudaStream_t stream) const {
    const Library& n = library();
    const Comm comm = ways_[way].comm;
    switch (kind) {
      case 0: NCCL_CHECK(n.ncclAllReduce(input, output, count, type, sum, comm, stream)); break;
      case 1: NCCL_CHECK(n.ncclAllGather(input, output, count, type, comm, stream)); break;
      case 2: NCCL_CHECK(n.ncclReduceScatter(input, output, count, type, sum, comm, stream)); break;
      case 3:
        if (n.ncclAlltoAll != nullptr) {
          NCCL_CHECK(n.ncclAlltoAll(input, output, count, type, comm, stream));
          break;
        }
        NCCL_CHECK(n.ncclGroupStart());
        for (int i = 0; i < ranks_; ++i) {
          const std::size_t at = static_cast<std::size_t>(i) * count * width;
          NCCL_CHECK(n.ncclSend(input + at, count, type, i, comm, stream));
          NCCL_CHECK(n.ncclRecv(output + at, count, type, i, comm, stream));
        }
        NCCL_CHECK(n.ncclGroupEnd());
        break;
      default: NCCL_CHECK(n.ncclBroadcast(input, output, count, type, 0, comm, stream)); break;
    }
  }

 private:
  struct Way {
    const char* name;
    Comm comm;
  };
  void add(const char* name, Policy policy, const std::function<void(UniqueId&)>& share) {
    UniqueId id = {};
    if (rank_ == 0) NCCL_CHECK(library().ncclGetUniqueId(&id));
    share(id);
    Comm comm = nullptr;
    if (policy == Policy::automatic) {
      NCCL_CHECK(library().ncclCommInitRank(&comm, ranks_, id, rank_));
    } else {
      Config config;
      config.cta_policy = static_cast<int>(policy);
      NCCL_CHECK(library().ncclCommInitRankConfig(&comm, ranks_, id, rank_, &config));
    }
    ways_.push_back({name, comm});
  }

  const int ranks_, rank_;
  std::vector<Way> ways_;
};

}  // namespace nccl
