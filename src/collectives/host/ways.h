#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fairway/collectives.h"

#include "collectives/host/table.h"
#include "collectives/host/wire.h"

namespace fairway::collectives {

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
