#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <cuda_runtime.h>

#include "checks.cuh"
#include "cuda_check.cuh"
#include "pattern.cuh"

// One rank's GPU, its buffers, and each operation with its expected result.
namespace work {

enum class Op { all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, send_recv, pair };
inline constexpr Op kOps[] = {Op::all_reduce, Op::all_gather, Op::reduce_scatter, Op::broadcast,
                              Op::reduce,     Op::all_to_all, Op::send_recv,      Op::pair};
inline const char* name_of(Op op) {
  constexpr const char* names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                   "reduce",     "all_to_all", "send_recv",      "pair"};
  return names[static_cast<int>(op)];
}
inline bool can_be_in_place(Op op) {
  return op != Op::all_to_all && op != Op::send_recv && op != Op::pair;
}
inline bool reduces(Op op) {
  return op == Op::all_reduce || op == Op::reduce_scatter || op == Op::reduce;
}
// Bytes on the busiest link per byte of the call, as nccl-tests computes it.
inline double bus_factor(Op op, int n) {
  switch (op) {
    case Op::all_reduce: return 2.0 * (n - 1) / n;
    case Op::all_gather:
    case Op::reduce_scatter:
    case Op::all_to_all: return (n - 1.0) / n;
    default: return 1;
  }
}

struct Group {  // a communicator and this rank's place in it
  nccl::Comm comm = nullptr;
  int rank = 0, ranks = 1;
};

struct Call {
  Op op;
  std::size_t bytes;  // of the larger buffer
  nccl::Type type;
  nccl::Reduction reduction = nccl::sum;
  bool in_place = false;
  std::uint64_t seed = 1;
};

class Gpu {
 public:
  Gpu(int device, std::size_t most_bytes) {
    CUDA_CHECK(cudaSetDevice(device));
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA_CHECK(cudaMalloc(&in_, most_bytes + 256));
    CUDA_CHECK(cudaMalloc(&out_, most_bytes + 256));
    CUDA_CHECK(cudaHostAlloc(&wrong_, sizeof *wrong_, cudaHostAllocMapped));
  }

  // Prepares a call: fills the input with this rank's values, and the result with wrong values.
  void prepare(const Call& call, const Group& group) {
    const Shape s = shape(call, group);
    CUDA_CHECK(cudaMemsetAsync(out_, 0xA5, s.out * s.unit + 1, stream));
    pattern::fill<<<256, 256, 0, stream>>>(s.from, call.type, s.in, call.seed, group.rank, 0, s.narrow);
    CUDA_CHECK(cudaGetLastError());
    CUDA_CHECK(cudaStreamSynchronize(stream));
  }

  void start(const Call& call, const Group& group) {
    const auto& n = nccl::library();
    const Shape s = shape(call, group);
    switch (call.op) {
      case Op::all_reduce: NCCL_CHECK(n.ncclAllReduce(s.from, s.to, s.in, call.type, call.reduction, group.comm, stream)); return;
      case Op::all_gather: NCCL_CHECK(n.ncclAllGather(s.from, s.to, s.in, call.type, group.comm, stream)); return;
      case Op::reduce_scatter:
        NCCL_CHECK(n.ncclReduceScatter(s.from, s.to, s.out, call.type, call.reduction, group.comm, stream));
        return;
      case Op::broadcast: NCCL_CHECK(n.ncclBroadcast(s.from, s.to, s.in, call.type, root(group), group.comm, stream)); return;
      case Op::reduce:
        NCCL_CHECK(n.ncclReduce(s.from, s.to, s.in, call.type, call.reduction, root(group), group.comm, stream));
        return;
      case Op::all_to_all:
        NCCL_CHECK(n.ncclGroupStart());
        for (int peer = 0; peer < group.ranks; ++peer) {
          NCCL_CHECK(n.ncclSend(at(s.from, peer * s.chunk * s.unit), s.chunk, call.type, peer, group.comm, stream));
          NCCL_CHECK(n.ncclRecv(at(s.to, peer * s.chunk * s.unit), s.chunk, call.type, peer, group.comm, stream));
        }
        NCCL_CHECK(n.ncclGroupEnd());
        return;
      case Op::send_recv:
        NCCL_CHECK(n.ncclGroupStart());
        NCCL_CHECK(n.ncclSend(s.from, s.in, call.type, (group.rank + 1) % group.ranks, group.comm, stream));
        NCCL_CHECK(n.ncclRecv(s.to, s.in, call.type, (group.rank + group.ranks - 1) % group.ranks, group.comm, stream));
        NCCL_CHECK(n.ncclGroupEnd());
        return;
      case Op::pair:
        if (group.rank == 0 && group.ranks > 1) NCCL_CHECK(n.ncclSend(s.from, s.in, call.type, 1, group.comm, stream));
        if (group.rank == 1) NCCL_CHECK(n.ncclRecv(s.to, s.in, call.type, 0, group.comm, stream));
        return;
    }
  }

  // The number of wrong values in the result.
  std::uint64_t check(const Call& call, const Group& group) {
    const Shape s = shape(call, group);
    *wrong_ = 0;
    const auto compare = [&](const void* from, std::uint64_t count, int rank, std::uint64_t first) {
      if (count == 0) return;
      const pattern::Expected expected{call.seed, rank, group.ranks, call.reduction, first, s.narrow};
      pattern::compare<<<256, 256, 0, stream>>>(from, call.type, count, expected, wrong_);
      CUDA_CHECK(cudaGetLastError());
    };
    switch (call.op) {
      case Op::all_reduce: compare(s.to, s.in, -1, 0); break;
      case Op::reduce:
        if (group.rank == root(group)) compare(s.to, s.in, -1, 0);
        break;
      case Op::reduce_scatter: compare(s.to, s.out, -1, group.rank * s.chunk); break;
      case Op::all_gather:
        for (int rank = 0; rank < group.ranks; ++rank) compare(at(s.to, rank * s.chunk * s.unit), s.chunk, rank, 0);
        break;
      case Op::broadcast: compare(s.to, s.in, root(group), 0); break;
      case Op::all_to_all:
        for (int rank = 0; rank < group.ranks; ++rank)
          compare(at(s.to, rank * s.chunk * s.unit), s.chunk, rank, group.rank * s.chunk);
        break;
      case Op::send_recv: compare(s.to, s.in, (group.rank + group.ranks - 1) % group.ranks, 0); break;
      case Op::pair:
        if (group.rank == 1) compare(s.to, s.in, 0, 0);
        break;
    }
    CUDA_CHECK(cudaStreamSynchronize(stream));
    return *wrong_;
  }

  cudaStream_t stream = nullptr;

 private:
  struct Shape {
    std::size_t unit, in, out, chunk;  // in values
    void *from, *to;
    bool narrow;
  };
  static int root(const Group& group) { return group.ranks - 1; }
  static void* at(void* from, std::size_t bytes) { return static_cast<char*>(from) + bytes; }
  Shape shape(const Call& call, const Group& group) const {
    Shape s{};
    s.unit = pattern::size_of(call.type);
    const std::size_t all = call.bytes / s.unit;
    s.chunk = all / static_cast<std::size_t>(group.ranks);
    const bool parted = call.op == Op::all_gather || call.op == Op::reduce_scatter || call.op == Op::all_to_all;
    s.in = !parted ? all : call.op == Op::all_gather ? s.chunk : s.chunk * static_cast<std::size_t>(group.ranks);
    s.out = !parted ? all : call.op == Op::reduce_scatter ? s.chunk : s.chunk * static_cast<std::size_t>(group.ranks);
    s.narrow = pattern::narrow(call.type, call.reduction);
    const std::size_t mine = static_cast<std::size_t>(group.rank) * s.chunk * s.unit;
    s.from = in_;
    s.to = out_;
    if (call.in_place && can_be_in_place(call.op)) {
      s.to = s.from = out_;
      if (call.op == Op::all_gather) s.from = at(out_, mine);
      if (call.op == Op::reduce_scatter) s.to = at(out_, mine);
    }
    return s;
  }

  void *in_ = nullptr, *out_ = nullptr;
  unsigned long long* wrong_ = nullptr;
};

}  // namespace work
