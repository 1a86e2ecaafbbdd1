#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench.h"

// Other people's tools that measure the same paths, where they are installed.
namespace fairway::tool::bench {

struct Rival {
  std::string tool;     // as on PATH: "ucx_perftest"
  std::string package;  // of Debian, that has it
  std::string path;     // "shm", "tcp"
  std::string what;     // "tag_lat", for the table
  Operation operation;  // ours that does the same
  bool rate = false;    // it tells a rate of large writes, and not a time
};
std::vector<Rival> rivals();
bool installed(const Rival& rival);
// Runs it between two processes of this machine: microseconds one way, or of a read; for `rate`, of `size` bytes at the
// rate that it reached.
Result<double> run_rival(const Rival& rival, std::uint64_t size);

}  // namespace fairway::tool::bench
