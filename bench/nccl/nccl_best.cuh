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
      case 5: NCCL_CHECK(n.ncclReduce(input, output, count, type, sum, 0, comm, stream)); break;
      case 6:
      case 7:
      case 8:
      case 9: blocks(comm, kind, input, output, count, type, width, stream); break;
      case 3:
        if (n.ncclAlltoAll != nullptr) {
          NCCL_CHECK(n.ncclAlltoAll(input, output, count, type, comm, stream));
          break;
        }
        blocks(comm, 8, input, output, count, type, width, stream);
        break;
      default: NCCL_CHECK(n.ncclBroadcast(input, output, count, type, 0, comm, stream)); break;
    }
  }

 private:
  // gather, scatter, all_to_allv and messages around a ring, by sends and receives in a group.
  void blocks(Comm comm, int kind, const unsigned char* input, unsigned char* output, std::size_t count, Type type,
              std::size_t width, cudaStream_t stream) const {
    const Library& n = library();
    const int next = (rank_ + 1) % ranks_, last = (rank_ + ranks_ - 1) % ranks_;
    NCCL_CHECK(n.ncclGroupStart());
    for (int i = 0; i < ranks_; ++i) {
      const std::size_t at = static_cast<std::size_t>(i) * count * width;
      const bool sends = kind == 8 || (kind == 6 && i == 0) || (kind == 7 && rank_ == 0) || (kind == 9 && i == next);
      const bool takes = kind == 8 || (kind == 6 && rank_ == 0) || (kind == 7 && i == 0) || (kind == 9 && i == last);
      if (sends) NCCL_CHECK(n.ncclSend(input + (kind == 6 || kind == 9 ? 0 : at), count, type, i, comm, stream));
      if (takes) NCCL_CHECK(n.ncclRecv(output + (kind == 7 || kind == 9 ? 0 : at), count, type, i, comm, stream));
    }
    NCCL_CHECK(n.ncclGroupEnd());
  }
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
