#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "fairway/request.h"

// From the shapes of two arrays to the request that moves one onto the other. Pure; knows no Python.
namespace fairway::python {

// How an array lies in a region: element [0, 0, ...] at `offset`, dimensions from the outermost, strides in bytes.
struct Shape {
  std::uint64_t offset = 0;
  std::uint64_t item_bytes = 1;
  std::vector<std::int64_t> counts;
  std::vector<std::int64_t> strides;

  static Shape bytes(std::uint64_t offset, std::uint64_t length) {
    return {offset, 1, {static_cast<std::int64_t>(length)}, {1}};
  }
  // A stride for each dimension, no count below 0, and all of it small enough that what follows cannot overflow.
  [[nodiscard]] bool makes_sense() const;
  void set_contiguous();  // the strides of C order
  [[nodiscard]] std::uint64_t total_bytes() const;
  // The bytes it touches, as [first, last) from the region's start; what lies before it is negative.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> reach() const;
};

// The same with runs of contiguous bytes as long as they get.
struct Runs {
  std::uint64_t offset = 0;
  std::uint64_t run = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> outer;  // count, stride; outermost first

  [[nodiscard]] bool overlaps() const;  // a byte belongs to two elements
};
Runs runs_of(const Shape& shape);

// A layout and the arrays that it borrows, which must stay until the transfer completes.
struct Lowered {
  Layout layout;
  std::vector<std::uint64_t> local_index;
  std::vector<std::uint64_t> remote_index;
};
// `into_local`: the local side is written (a read), else the remote one. The reason when it cannot be expressed.
std::variant<Lowered, std::string> lower(RegionId local, const Shape& from, RemoteRegionId remote, const Shape& to,
                                         bool into_local);

}  // namespace fairway::python
