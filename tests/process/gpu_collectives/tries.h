#pragma once

#include "process/gpu_collectives/gpu_rank.h"

// One operation on GPU memory after the other, every value of which is compared.
namespace fairway {

inline constexpr CollectiveKind kKinds[] = {
    CollectiveKind::all_reduce,     CollectiveKind::broadcast,  CollectiveKind::all_gather,
    CollectiveKind::reduce_scatter, CollectiveKind::all_to_all, CollectiveKind::barrier,
    CollectiveKind::reduce,         CollectiveKind::gather,     CollectiveKind::scatter};
inline constexpr Reduction kReductions[] = {Reduction::sum, Reduction::product, Reduction::min, Reduction::max,
                                            Reduction::average};

inline bool is_combining(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::reduce;
}

struct Try {
  CollectiveKind kind = CollectiveKind::all_reduce;
  DataType type = DataType::f32;
  Reduction reduction = Reduction::sum;
  std::size_t count = 1;
  bool in_place = false;
  std::size_t off = 0;  // bytes by which the memory is out of alignment
  Algorithm algorithm = Algorithm::automatic;
  int root = -1;  // the last rank

  [[nodiscard]] std::string text() const {
    return std::string(to_string(kind)) + " (" + std::string(to_string(reduction)) + ", " +
           std::string(to_string(algorithm)) + ") of " + std::to_string(count) + " " + std::string(to_string(type)) +
           (in_place ? " in place" : "") + (off != 0 ? " out of alignment" : "");
  }
};

// The blocks of this rank's input, and what its output's block `block` holds afterwards.
inline int blocks_in(const Try& one, int size, bool root) {
  if (one.kind == CollectiveKind::scatter) return root ? size : 0;
  return one.kind == CollectiveKind::reduce_scatter || one.kind == CollectiveKind::all_to_all ? size : 1;
}
inline int blocks_out(const Try& one, int size, bool root) {
  if (one.kind == CollectiveKind::reduce) return root ? 1 : 0;
  if (one.kind == CollectiveKind::gather) return root ? size : 0;
  return one.kind == CollectiveKind::all_gather || one.kind == CollectiveKind::all_to_all ? size : 1;
}
inline double wanted(const Try& one, int rank, int size, int root, int block, std::size_t at) {
  switch (one.kind) {
    case CollectiveKind::reduce:
    case CollectiveKind::all_reduce: return reduced(size, 0, at, one.reduction, one.type);
    case CollectiveKind::reduce_scatter: return reduced(size, rank, at, one.reduction, one.type);
    case CollectiveKind::broadcast: return given(root, 0, at, one.reduction);
    case CollectiveKind::scatter: return given(root, rank, at, one.reduction);
    case CollectiveKind::gather:
    case CollectiveKind::all_gather: return given(block, 0, at, one.reduction);
    default: return given(block, rank, at, one.reduction);
  }
}

class Tries {
 public:
  explicit Tries(GpuRank& rank) : rank_(rank), stream_(rank.stream()) {
    for (std::byte*& place : places_) place = rank.memory(kRoom);
  }
  bool run(const Try& one) {
    const int size = rank_.group.size(), me = rank_.group.rank(), root = one.root < 0 ? size - 1 : one.root;
    const bool here = me == root;
    const std::size_t width = size_of(one.type), block = one.count * width;
    const auto in = static_cast<std::size_t>(blocks_in(one, size, here)),
               out = static_cast<std::size_t>(blocks_out(one, size, here));
    Collective call{.kind = one.kind, .count = one.count, .type = one.type, .reduction = one.reduction};
    call.root = root;
    call.algorithm = one.algorithm;
    std::byte *input = places_[0] + one.off, *output = places_[1] + one.off;
    const bool gathers = one.kind == CollectiveKind::all_gather || one.kind == CollectiveKind::gather;
    const bool scatters = one.kind == CollectiveKind::reduce_scatter || one.kind == CollectiveKind::scatter;
    if (one.in_place && gathers && out != 0) input = output + static_cast<std::size_t>(me) * block;
    if (one.in_place && scatters && in != 0) output = input + static_cast<std::size_t>(me) * block;
    if (one.in_place && in == out && !gathers && !scatters) output = input;
    call.input = in == 0 ? nullptr : input;
    call.output = out == 0 ? nullptr : output;
    if (one.reduction == Reduction::premul_sum) call.factor = factor_of(me);
    std::vector<std::byte> values(in * block), guard(out * block + 16, std::byte{0x77});
    for (std::size_t b = 0; b < in; ++b)
      for (std::size_t i = 0; i < one.count; ++i)
        put(values.data() + b * block, i, one.type, given(me, static_cast<int>(b), i, one.reduction));
    const bool guarded = input != output && (!one.in_place || (!gathers && !scatters));
    if (guarded) rank_.fill(output, guard);
    rank_.fill(input, values);
    if (!rank_.expect(rank_.group.stream_run(call, stream_), one.text().c_str())) return false;
    if (!rank_.synchronize(stream_)) return rank_.fail(one.text() + ": the context is broken");
    if (!rank_.expect(rank_.group.stream_status(), one.text().c_str())) return false;
    if (one.kind == CollectiveKind::barrier) return true;
    const auto seen = rank_.read(output, out * block + 16);
    for (std::size_t b = 0; b < out; ++b)
      for (std::size_t i = 0; i < one.count; ++i) {
        const double want = wanted(one, me, size, root, static_cast<int>(b), i);
        const double got = get(seen.data() + b * block, i, one.type);
        if (got != want)
          return rank_.fail(one.text() + ": block " + std::to_string(b) + ", element " + std::to_string(i) + " is " +
                            std::to_string(got) + ", not " + std::to_string(want));
      }
    for (std::size_t i = out * block; guarded && i < seen.size(); ++i)
      if (seen[i] != std::byte{0x77}) return rank_.fail(one.text() + ": writes behind its output");
    return true;
  }

  static constexpr std::size_t kRoom = 9U << 20;
  [[nodiscard]] std::byte* place(int nth) const { return places_[nth]; }  // of the input, of the output: kRoom each

 private:
  GpuRank& rank_;
  GpuStream stream_;
  std::byte* places_[2] = {};
};

}  // namespace fairway
