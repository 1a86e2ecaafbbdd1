#include "lower.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

namespace fairway::python {
namespace {

constexpr std::uint64_t kMostBlocks = 1 << 24;  // beyond it the index arrays alone take 256 MiB

// The step between blocks of `block` bytes when one step says it all; 0: it does not.
std::uint64_t only_stride(const Runs& runs, std::uint64_t block) {
  if (runs.outer.empty()) return block;
  const bool one = runs.outer.size() == 1 && runs.run == block && runs.outer[0].second > 0;
  return one ? static_cast<std::uint64_t>(runs.outer[0].second) : 0;
}

// Offsets of all blocks, outermost dimension slowest.
std::vector<std::uint64_t> offsets(const Runs& runs, std::uint64_t block, std::uint64_t blocks) {
  std::vector<std::uint64_t> out;
  out.reserve(blocks);
  std::vector<std::int64_t> at(runs.outer.size(), 0);
  auto place = static_cast<std::int64_t>(runs.offset);
  for (;;) {
    for (std::uint64_t inside = 0; inside < runs.run; inside += block)
      out.push_back(static_cast<std::uint64_t>(place) + inside);
    std::size_t dim = at.size();
    for (; dim > 0; --dim) {
      const auto [count, stride] = runs.outer[dim - 1];
      if (++at[dim - 1] < count) {
        place += stride;
        break;
      }
      place -= stride * (count - 1);
      at[dim - 1] = 0;
    }
    if (dim == 0) return out;
  }
}

}  // namespace

bool Shape::makes_sense() const {
  constexpr std::int64_t kMost = std::int64_t{1} << 56;  // bytes; more than any address space
  if (counts.size() != strides.size() || counts.size() > 64 || item_bytes > kMost || offset > kMost) return false;
  auto total = std::max<std::int64_t>(static_cast<std::int64_t>(item_bytes), 1);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] < 0 || counts[i] > kMost || strides[i] < -kMost || strides[i] > kMost) return false;
    const std::int64_t count = std::max<std::int64_t>(counts[i], 1);
    if (total > kMost / count || std::llabs(strides[i]) > kMost / count) return false;
    total *= count;
  }
  return true;
}

void Shape::set_contiguous() {
  strides.resize(counts.size());
  std::uint64_t step = item_bytes;  // of a shape that makes no sense it may wrap around
  for (std::size_t i = counts.size(); i-- > 0; step *= static_cast<std::uint64_t>(counts[i]))
    strides[i] = static_cast<std::int64_t>(step);
}

std::uint64_t Shape::total_bytes() const {
  std::uint64_t total = item_bytes;
  for (const std::int64_t count : counts) total *= static_cast<std::uint64_t>(count);
  return total;
}

std::pair<std::int64_t, std::int64_t> Shape::reach() const {
  auto first = static_cast<std::int64_t>(offset);
  std::int64_t last = first + static_cast<std::int64_t>(item_bytes);
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::int64_t way = strides[i] * (counts[i] - 1);
    (way < 0 ? first : last) += way;
  }
  return {first, last};
}

Runs runs_of(const Shape& shape) {
  Runs out{shape.offset, shape.item_bytes, {}};
  bool contiguous = true;
  for (std::size_t i = shape.counts.size(); i-- > 0;) {
    const std::int64_t count = shape.counts[i];
    const std::int64_t stride = shape.strides[i];
    if (count == 1) continue;
    if (contiguous && stride == static_cast<std::int64_t>(out.run)) {
      out.run *= static_cast<std::uint64_t>(count);
      continue;
    }
    contiguous = false;
    if (!out.outer.empty() && stride == out.outer.back().first * out.outer.back().second)
      out.outer.back().first *= count;
    else
      out.outer.emplace_back(count, stride);
  }
  std::reverse(out.outer.begin(), out.outer.end());
  return out;
}

bool Runs::overlaps() const {
  auto by_stride = outer;
  std::sort(by_stride.begin(), by_stride.end(),
            [](const auto& a, const auto& b) { return std::llabs(a.second) < std::llabs(b.second); });
  auto covered = static_cast<std::int64_t>(run);
  for (const auto& [count, stride] : by_stride) {
    if (std::llabs(stride) < covered) return true;
    covered += std::llabs(stride) * (count - 1);
  }
  return false;
}

std::variant<Lowered, std::string> lower(RegionId local, const Shape& from, RemoteRegionId remote, const Shape& to,
                                         bool into_local) {
  const std::uint64_t total = from.total_bytes();
  if (total != to.total_bytes())
    return "the local side has " + std::to_string(total) + " bytes and the remote side " +
           std::to_string(to.total_bytes());
  if (total == 0) return std::string("there are no bytes to move: an array is empty");
  const Runs here = runs_of(from);
  const Runs there = runs_of(to);
  if ((into_local ? here : there).overlaps())
    return std::string("the ") + (into_local ? "local" : "remote") +
           " side would be written more than once: elements of its view overlap (a broadcast?)";
  const std::uint64_t block = std::gcd(here.run, there.run);
  const std::uint64_t blocks = total / block;
  const Extent first{{local, here.offset, block}, {remote, there.offset}};
  Lowered out;
  if (blocks == 1) {
    out.layout = first;
    return out;
  }
  const std::uint64_t step_here = only_stride(here, block);
  const std::uint64_t step_there = only_stride(there, block);
  if (step_here != 0 && step_there != 0) {
    out.layout = Strided{first, step_here, step_there, blocks};
    return out;
  }
  if (blocks > kMostBlocks)
    return "the two views share only runs of " + std::to_string(block) + " bytes, so it would be " +
           std::to_string(blocks) + " pieces; move contiguous arrays, or a view with longer rows";
  out.local_index = offsets(here, block, blocks);
  out.remote_index = offsets(there, block, blocks);
  out.layout = Paged{local, remote, block, 1, 1, out.local_index, out.remote_index};
  return out;
}

}  // namespace fairway::python
