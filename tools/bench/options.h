#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "bench.h"

namespace fairway::tool {
class Tool;
}

// The options of the commands of `fairway bench`.
namespace fairway::tool::bench {

struct BenchOptions {
  std::string address, listen, job_key, directory;
  std::string from;  // a recorded machine
  std::string local, remote;
  std::vector<std::string> via, kinds, memories;
  std::vector<std::string> operations;
  std::vector<std::uint64_t> sizes;
  std::uint64_t pages = 0, depth = 1;
  double seconds = 0.15;
  bool sleep = false, serve = false, progress = false;
  unsigned turns = 3;
  std::vector<std::string> tools;
  std::string json, csv;
  RdmaOptions rdma;
};

// `sizes`: the default. invalid_argument: the options contradict each other.
Result<Plan> plan_of(const BenchOptions& options, std::vector<std::uint64_t> sizes);

void add_sizes_flag(CLI::App& command, BenchOptions& options);
void add_output_flags(CLI::App& command, BenchOptions& options);  // --json, --csv, --progress
void add_common_flags(CLI::App& command, BenchOptions& options);  // those, and what is measured
void add_memory_flags(CLI::App& command, BenchOptions& options);  // --local, --remote, --memory
// Whether the output files are distinct and writable.
Status check_outputs(const BenchOptions& options);

void add_bench_peers(Tool& tool, CLI::App& bench);  // `fairway bench peers`

}  // namespace fairway::tool::bench
