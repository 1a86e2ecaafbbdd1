#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench.h"
#include "bench_rows.h"

// Other people's tools that measure the same paths, where they are installed.
namespace fairway::tool::bench {

struct Rival {
  std::string tool;              // as on PATH: "ucx_perftest"
  std::string package;           // of Debian, that has it
  std::string path;              // "shm", "tcp", "verbs"
  std::string what;              // "tag_lat", for the table
  Operation operation;           // ours that does the same
  bool rate = false;             // it tells a rate of large writes, and not a time
  std::uint64_t depth = 1;       // so many at once, and the time is each one's part
  std::string ours{}, theirs{};  // verbs: words that choose the port of each side, of UCX in its environment
  std::string at = "127.0.0.1";  // where the measuring side finds the other
  [[nodiscard]] bool does(std::uint64_t size) const;
};
std::vector<Rival> rivals();

// A port of an RDMA device, by the words that other people's tools take.
struct PortName {
  std::string device;  // "mlx5_0"
  int number = 1;
  int gid_index = 0;
  std::string address;  // "10.0.0.1"; empty: its interface has none of IPv4
};
// The first two that are up, the measuring side's first; twice the same where there is one; empty: there is none.
std::vector<PortName> two_ports();

std::string version_of(const Rival& rival);  // of its package; empty: not known
// Runs it between two processes of this machine: microseconds one way, or of a read; for `rate`, of `size` bytes at the
// rate that it reached.
Result<double> run_rival(const Rival& rival, std::uint64_t size);

// The median of what each turn came to, theirs by ours, and between which two the ratio is with 19 chances in 20; 0: of
// one turn nobody knows.
struct Ratio {
  double median = 0, low = 0, high = 0;
};
Ratio ratio_of(const std::vector<double>& theirs, const std::vector<double>& ours);

// A tool's figure beside ours: medians of the turns.
struct PeerRow {
  std::string tool, version, test, path;
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
