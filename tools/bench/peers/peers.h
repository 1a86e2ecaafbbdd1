#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "bench/rows.h"

// Other tools that measure the same paths, if they are installed.
namespace fairway::tool::bench {

struct Rival {
  std::string tool;              // as on PATH: "ucx_perftest"
  std::string package;           // Debian's package
  std::string path;              // "shm", "tcp", "verbs"
  std::string what;              // "tag_lat"
  Operation operation;           // our equivalent
  bool rate = false;             // it measures the rate of large writes, not a time
  std::uint64_t depth = 1;       // operations in flight; the time is per operation
  std::string ours{}, theirs{};  // verbs: arguments that choose the port of each side; for UCX its environment
  std::string at = "127.0.0.1";  // the server's address
  [[nodiscard]] bool does(std::uint64_t size) const;
  [[nodiscard]] std::string test() const;  // for the table: `what`, and how ours completes where that may be otherwise
};
std::vector<Rival> rivals();

// A port of an RDMA device, as other tools name it.
struct PortName {
  std::string device;  // "mlx5_0"
  int number = 1;
  int gid_index = 0;
  std::string address;  // "10.0.0.1"; empty: its interface has no IPv4 address
};
// The first two ports that are up, the client's first; the same twice if there is only one; empty if there is none.
std::vector<PortName> two_ports();

// The variables that decide how it runs: those that it is given, and what the user has set for its library.
std::string environment_of(const Rival& rival);
std::string version_of(const Rival& rival);  // of its package; empty: unknown
// Runs it between two processes of this machine: microseconds one way, or of a read; for `rate`, of `size` bytes at the
// rate that it reached.
Result<double> run_rival(const Rival& rival, std::uint64_t size);

// The median over turns of the ratio theirs / ours, and its 95 % confidence interval (0: unknown: fewer than three
// turns, or a hundredfold and more wide).
struct Ratio {
  double median = 0, low = 0, high = 0;
};
Ratio ratio_of(const std::vector<double>& theirs, const std::vector<double>& ours);

// A tool's figure beside ours: medians of the turns.
struct PeerRow {
  std::string tool, version, environment, test, path;
  std::uint64_t size = 0, depth = 1;
  double its_us = 0, ours_us = 0;
  Ratio ratio;
};
// The table's heading, a line of it, and what is below it.
std::string peer_head();
std::string peer_row(const PeerRow& row);
std::string peer_end(const std::vector<std::string>& missing);
Fields fields(const PeerRow& row);

}  // namespace fairway::tool::bench
