#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fairway/collectives.h"

// What was measured on a machine of operations on streams, and what follows from it. Values; all but the
// measuring is pure.
namespace fairway::collectives {

class GpuCalls;

// Who does an operation on a stream.
enum class GpuWay : std::uint8_t {
  kernels,  // Fairway's
  guarded,  // NCCL, behind an entry that finds who is not there or has called something else
  bare,     // NCCL alone
};
inline constexpr std::size_t kGpuWays = 3;

struct WayRow {
  CollectiveKind kind = CollectiveKind::all_reduce;
  bool captured = false;
  std::uint64_t bytes = 0;                      // of all blocks
  std::array<std::uint64_t, kGpuWays> ns = {};  // by GpuWay

  // By so much that it is no noise.
  [[nodiscard]] bool is_faster(GpuWay way) const;
  bool operator==(const WayRow&) const = default;
};

class WayTable {
 public:
  static constexpr std::size_t kMostRows = 1024;

  // As text() has made it. Errors say why it cannot be used: it is no such table, of another format, cut or damaged, or
  // of another machine (`key`).
  static Result<WayTable> parse(const std::string& text, const std::string& key);
  [[nodiscard]] std::string text(const std::string& key) const;

  void add(const WayRow& row) { rows_.push_back(row); }
  [[nodiscard]] const std::vector<WayRow>& rows() const { return rows_; }
  // The rows that decide on a call: the nearest with no more and with no less bytes, of which one may be missing, and
  // both be the same.
  struct Around {
    const WayRow *below = nullptr, *above = nullptr;
  };
  [[nodiscard]] Around around(CollectiveKind kind, bool captured, std::uint64_t bytes) const;
  // Whether that way is faster than Fairway's kernels in both.
  [[nodiscard]] bool takes(GpuWay way, CollectiveKind kind, bool captured, std::uint64_t bytes) const;
  [[nodiscard]] bool takes_any(GpuWay way) const;

 private:
  std::vector<WayRow> rows_;
};

// Bytes of all blocks of that call, as rows count them.
std::uint64_t bytes_of_all(const Collective& call, int size);

// Communicator::measure_gpu() of `group`, which is open; `gpu`: its operations on streams.
Result<std::string> measure_ways(Communicator& group, GpuCalls& gpu, std::size_t most_bytes, bool compare);

}  // namespace fairway::collectives
