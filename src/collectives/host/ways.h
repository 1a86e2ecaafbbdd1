#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fairway/collectives.h"

#include "collectives/host/wire.h"

// How long each algorithm took on a machine, on host memory, and who is the fastest at any size. Values; pure.
namespace fairway::collectives {

struct HostRow {
  using Times = std::vector<std::pair<Algorithm, std::uint64_t>>;  // nanoseconds
  CollectiveKind kind = CollectiveKind::all_reduce;
  std::uint64_t bytes = 0;  // of all blocks
  Times ns = {};
  [[nodiscard]] std::uint64_t of(Algorithm algorithm) const;  // 0: it was not measured
  bool operator==(const HostRow&) const = default;
};

// The fastest at each of some sizes, two for each doubling: what ranks tell each other when they join. A value.
class Fastest {
 public:
  static constexpr std::array kKinds{CollectiveKind::all_reduce,     CollectiveKind::reduce,
                                     CollectiveKind::broadcast,      CollectiveKind::all_gather,
                                     CollectiveKind::reduce_scatter, CollectiveKind::all_to_all};
  static constexpr std::uint64_t kLeast = 8, kMost = std::uint64_t{64} << 20;  // bytes
  static constexpr std::size_t kPoints = 47;
  static constexpr std::uint8_t kNone = 0xFF;

  Fastest() { all_.fill(kNone); }
  // The last one that is no longer; shorter and longer calls are as the nearest.
  [[nodiscard]] static std::size_t point_of(std::uint64_t bytes);
  [[nodiscard]] static std::uint64_t bytes_at(std::size_t point);
  // `automatic`: nothing is known.
  [[nodiscard]] Algorithm at(CollectiveKind kind, std::uint64_t bytes) const;
  void set(CollectiveKind kind, std::size_t point, Algorithm algorithm);
  [[nodiscard]] std::span<std::uint8_t> bytes() { return all_; }

 private:
  std::array<std::uint8_t, kKinds.size() * kPoints> all_;
};

class HostTable {
 public:
  static constexpr std::size_t kMostRows = 256;

  // `over`: the links that it was measured on, a number of the communicator's.
  explicit HostTable(int over = 0) : over_(over) {}
  // As text() has made it. Errors say why it cannot be used, as those of rows_in().
  static Result<HostTable> parse(const std::string& text, const std::string& key);
  [[nodiscard]] std::string text(const std::string& key) const;

  void add(HostRow row) { rows_.push_back(std::move(row)); }
  [[nodiscard]] const std::vector<HostRow>& rows() const { return rows_; }
  [[nodiscard]] int over() const { return over_; }
  // The rows with no more and no less bytes; null: there is none. Both may be the same.
  [[nodiscard]] std::pair<const HostRow*, const HostRow*> around(CollectiveKind kind, std::uint64_t bytes) const;
  // The one whose time is least, which between two rows lies on a line between theirs.
  [[nodiscard]] Fastest fastest() const;

 private:
  [[nodiscard]] Algorithm fastest_at(CollectiveKind kind, std::uint64_t bytes) const;

  int over_;
  std::vector<HostRow> rows_;
};

// Which algorithm a communicator takes on host memory, where that was measured on this machine: by rank 0's table, of
// which all ranks get who is the fastest when they join. Owner: a communicator.
class HostWays {
 public:
  // What rank 0 tells the others: `over` is none of theirs, so that the least of all ranks is rank 0's; then, if it has
  // a table, who is the fastest.
  static constexpr std::uint8_t kNoTable = 0xFE, kNotAsked = 0xFF;
  struct Offer {
    std::uint8_t over = kNotAsked;
    Fastest fastest = {};
  };

  // Rank 0's: reads the table of this machine, if there is one, and names what it would be kept under. Simulated ranks
  // have none.
  Offer look(Engine& engine, const std::vector<Words>& words, std::uint32_t slot_bytes);
  // Every rank's, once all have agreed over which links they go: what all have then is used if it is of such links.
  void take(const Offer& all, int over);
  // The same of what has just been measured. Rank 0 keeps it in its file.
  void take(HostTable table);
  [[nodiscard]] Status keep() const;

  // `automatic`: that was not measured. `bytes`: of all blocks.
  [[nodiscard]] Algorithm fastest(CollectiveKind kind, std::uint64_t bytes) const { return fastest_.at(kind, bytes); }
  // Why: times of the sizes around it, or that there is no table.
  [[nodiscard]] std::string why(CollectiveKind kind, std::uint64_t bytes) const;
  [[nodiscard]] int over() const { return over_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::string& key() const { return key_; }

 private:
  int over_ = 0;
  Fastest fastest_;
  HostTable table_;              // at rank 0, and of what was measured here
  std::string key_, path_ = {};  // at rank 0
  std::string reason_ = "rank 0 has no table of this machine, which measure() writes";
};

// Bytes of all blocks of that call, as rows count them; `one`: of its count.
[[nodiscard]] std::uint64_t all_bytes(CollectiveKind kind, std::uint64_t one, int size);

// Communicator::measure() of `group`, whose `ways` it fills. `in_levels`: it has all_reduce by `hierarchical`. `agree`:
// every rank says how it went; the first that failed.
using Agree = Status (*)(void* context, const Status& own);
Result<std::string> measure_hosts(Communicator& group, HostWays& ways, bool in_levels, std::size_t most_bytes,
                                  bool compare, Agree agree, void* context);

}  // namespace fairway::collectives
