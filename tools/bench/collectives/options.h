#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives.h"

// The options of `fairway bench collectives`, and which go together.
namespace fairway::tool::bench {

struct CollectiveOptions {
  std::vector<std::string> ranks;  // empty: the usual numbers
  std::vector<std::string> operations{"all_reduce"};
  std::string memory = "host";
  std::vector<std::string> via;
  bool namespaces = false, local = false;
  int per_host = 1;
  bool graph = false;
  std::vector<std::string> beside;
  std::string nccl_library, from;
  std::vector<std::uint64_t> sizes;
  std::string type = "f32", reduction = "sum", algorithm = "automatic";
  double seconds = 0.15;
  unsigned turns = 3;
  bool progress = false;
  std::string json, csv, svg, listen;
  int rank = -1;
  [[nodiscard]] bool on_gpus() const { return memory == "gpu"; }
  [[nodiscard]] bool beside_nccl() const;
  [[nodiscard]] std::optional<GpuPlace> gpu() const;  // of --memory gpu
};
void add_collective_flags(CLI::App& command, CollectiveOptions& options);

struct CollectivePlan {
  std::vector<int> ranks;
  std::vector<std::vector<CollectiveWork>> works;  // of each operation; their number of ranks is still open
};
// invalid_argument: the options contradict each other.
Result<CollectivePlan> plan_of(const CollectiveOptions& options);

}  // namespace fairway::tool::bench
