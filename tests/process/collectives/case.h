#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "fairway/collectives.h"

#include "process/collectives/combining.h"
#include "process/collectives/expected.h"

// One collective with its memory, every value of which is compared.
namespace fairway {

inline constexpr CollectiveKind kMoving[] = {
    CollectiveKind::all_reduce, CollectiveKind::reduce,         CollectiveKind::broadcast,
    CollectiveKind::all_gather, CollectiveKind::gather,         CollectiveKind::scatter,
    CollectiveKind::all_to_all, CollectiveKind::reduce_scatter, CollectiveKind::barrier};

struct Case {
  CollectiveKind kind = CollectiveKind::all_reduce;
  Algorithm algorithm = Algorithm::automatic;
  DataType type = DataType::f32;
  Reduction reduction = Reduction::sum;
  std::size_t count = 0;
  int root = 0;
  bool in_place = false;
  std::size_t shift = 0;  // of both buffers' addresses
  bool local = false;     // Collective::local_completion
};

// One collective of one rank, with its memory.
class One {
 public:
  One(const Case& with, int rank, int size) : case_(with), rank_(rank), size_(size) {
    const std::size_t width = size_of(with.type), one = with.count, all = one * static_cast<std::size_t>(size);
    const CollectiveKind kind = with.kind;
    const bool many_in =
        kind == CollectiveKind::scatter || kind == CollectiveKind::reduce_scatter || kind == CollectiveKind::all_to_all;
    const bool many_out =
        kind == CollectiveKind::gather || kind == CollectiveKind::all_gather || kind == CollectiveKind::all_to_all;
    input_.assign((many_in ? all : one) * width + with.shift, std::byte{0});
    output_.assign((many_out ? all : one) * width + with.shift + 1, std::byte{0x5A});
    call.kind = kind;
    call.algorithm = with.algorithm;
    call.count = one;
    call.type = with.type;
    call.reduction = with.reduction;
    if (with.reduction == Reduction::premul_sum) call.factor = factor_of(rank);
    call.root = with.root;
    call.local_completion = with.local;
    std::byte* in = input_.data() + with.shift;
    std::byte* out = output_.data() + with.shift;
    if (with.in_place) {
      if (many_out && kind != CollectiveKind::all_to_all) {
        if (kind == CollectiveKind::all_gather || rank == with.root)
          in = out + static_cast<std::size_t>(rank) * one * width;
      } else if (many_in && kind != CollectiveKind::all_to_all) {
        if (kind == CollectiveKind::reduce_scatter || rank == with.root)
          out = in + static_cast<std::size_t>(rank) * one * width;
      } else {
        out = in;
      }
    }
    call.input = in;
    call.output = out;
    const int blocks = many_in ? size : 1;
    for (int block = 0; block < blocks; ++block)
      for (std::size_t i = 0; i < one; ++i)
        put(in, static_cast<std::size_t>(block) * one + i, with.type, given(rank, block, i, with.reduction));
  }

  // Empty: every element is what it should be.
  [[nodiscard]] std::string wrong() const {
    const auto* const out = static_cast<const std::byte*>(call.output);
    const auto expect = [&](int block, std::size_t i, double want) -> std::string {
      const double got = get(out, static_cast<std::size_t>(block) * case_.count + i, case_.type);
      if (got == want) return {};
      return "rank " + std::to_string(rank_) + ", block " + std::to_string(block) + ", element " + std::to_string(i) +
             ": " + std::to_string(got) + " and not " + std::to_string(want);
    };
    const bool root = rank_ == case_.root;
    for (std::size_t i = 0; i < case_.count; ++i) {
      std::string bad;
      switch (case_.kind) {
        case CollectiveKind::all_reduce: bad = expect(0, i, reduced(size_, 0, i, case_.reduction, case_.type)); break;
        case CollectiveKind::reduce:
          if (root) bad = expect(0, i, reduced(size_, 0, i, case_.reduction, case_.type));
          break;
        case CollectiveKind::broadcast: bad = expect(0, i, given(case_.root, 0, i, case_.reduction)); break;
        case CollectiveKind::scatter: bad = expect(0, i, given(case_.root, rank_, i, case_.reduction)); break;
        case CollectiveKind::reduce_scatter:
          bad = expect(0, i, reduced(size_, rank_, i, case_.reduction, case_.type));
          break;
        case CollectiveKind::all_gather:
        case CollectiveKind::gather:
          for (int block = 0; bad.empty() && block < size_ && (root || case_.kind == CollectiveKind::all_gather);
               ++block)
            bad = expect(block, i, given(block, 0, i, case_.reduction));
          break;
        case CollectiveKind::all_to_all:
          for (int block = 0; bad.empty() && block < size_; ++block)
            bad = expect(block, i, given(block, rank_, i, case_.reduction));
          break;
        case CollectiveKind::barrier:
        case CollectiveKind::all_to_allv: break;
      }
      if (!bad.empty()) return bad;
    }
    return output_.back() == std::byte{0x5A} ? "" : "a byte behind the output changed";
  }

  // Overwrites the memory that the operation was called with, which is the caller's again; wrong() still has the
  // output.
  void scribble() {
    auto* const out = static_cast<std::byte*>(call.output);
    std::vector<std::byte>& held =
        out >= input_.data() && out < input_.data() + input_.size() ? input_ : output_;  // in place it may be either
    kept_ = held;
    call.output = kept_.data() + (out - held.data());
    std::fill(input_.begin(), input_.end(), std::byte{0xEE});
    std::fill(output_.begin(), output_.end() - 1, std::byte{0xEE});
  }

  Collective call;

 private:
  const Case case_;
  const int rank_, size_;
  std::vector<std::byte> input_, output_, kept_;
};

inline std::string name_of(const Case& one) {
  return std::string(to_string(one.kind)) + " by " + std::string(to_string(one.algorithm)) + " of " +
         std::to_string(one.count) + " " + std::string(to_string(one.type)) + " " +
         std::string(to_string(one.reduction)) + (one.in_place ? " in place" : "");
}

// False after a failure.
inline bool run_case(Communicator& communicator, const Case& with) {
  One one(with, communicator.rank(), communicator.size());
  const Status status = communicator.run(one.call);
  const std::string wrong = status ? one.wrong() : status.to_string();
  if (wrong.empty()) return true;
  ADD_FAILURE() << name_of(with) << ", " << communicator.size() << " ranks: " << wrong;
  return false;
}

}  // namespace fairway
